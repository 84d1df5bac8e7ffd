package retirer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// poolVersions are those in which the Gateway API inference extension serves its pools,
// and where a pool of each names what its gateway does when its picker does not answer.
var poolVersions = []struct {
	schema.GroupVersion
	picker string
}{
	{schema.GroupVersion{Group: "inference.networking.k8s.io", Version: "v1"}, "endpointPickerRef"},
	{schema.GroupVersion{Group: "inference.networking.x-k8s.io", Version: "v1alpha2"}, "extensionRef"},
}

// bypass is withdraw.Fleet's Bypassed and By, and why a pool has a replica still, though
// that is marked; empty where none does.
type bypass struct {
	is   withdraw.Tri
	by   string
	kept string
}

// bypasses is whether anything but its router may choose each replica, or its pool has it
// still. The gateways in front of endpoint pickers do where their pool fails open: one
// that has not heard yet that the replica is no part of the pool any more sends to it when
// no picker answers.
func (r *routers) bypasses(ctx context.Context, ref routerRef, about []router.Backend) []bypass {
	all := make([]bypass, len(about))
	pools := map[string]pools{}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for i, b := range about {
		all[i].is = withdraw.No
		if ref.name != v1alpha1.LLMDRouter {
			continue
		}
		if _, read := pools[b.Namespace]; !read {
			pools[b.Namespace] = r.pools(ctx, b.Namespace)
		}
		all[i] = pools[b.Namespace].bypass(&b)
	}
	return all
}

// pools are those of a namespace.
type pools struct {
	all []pool
	err string
}

type pool struct {
	name string
	open bool
	// selector is nil where it cannot be read.
	selector labels.Selector
}

func (p pools) bypass(b *router.Backend) bypass {
	if p.err != "" {
		return bypass{is: withdraw.Unknown, by: p.err}
	}
	serving := labels.Merge(b.Labels, labels.Set{names.LabelServing: names.Serving}) // as it was before the mark
	by := bypass{is: withdraw.No}
	for _, one := range p.all {
		if one.open && (one.selector == nil || one.selector.Matches(serving)) {
			by.is, by.by = withdraw.Yes, fmt.Sprintf("InferencePool %s fails open: its gateway chooses replicas by itself where its picker does not answer", one.name)
		}
		// Some pickers leave out of their metrics what they have not heard of lately, and
		// may choose it all the same.
		if b.Labels[names.LabelServing] == names.Withdrawn && one.selector != nil && one.selector.Matches(labels.Set(b.Labels)) {
			by.kept = fmt.Sprintf("the selector of InferencePool %s has the replica without the label %s=%s", one.name, names.LabelServing, names.Serving)
		}
	}
	return by
}

// pools reads those of a namespace. Where the API is not there, nor are they.
func (r *routers) pools(ctx context.Context, namespace string) (all pools) {
	for _, version := range poolVersions {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(version.WithKind("InferencePoolList"))
		err := r.live.List(ctx, list, client.InNamespace(namespace))
		for i := range list.Items {
			all.add(&list.Items[i], version.picker)
		}
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			return pools{err: "listing InferencePools, which may fail open: " + err.Error()}
		}
	}
	return all
}

func (p *pools) add(object *unstructured.Unstructured, picker string) {
	mode, _, err := unstructured.NestedString(object.Object, "spec", picker, "failureMode")
	// FailClose is what is meant where nothing is said.
	p.all = append(p.all, pool{object.GetName(), err != nil || mode == "FailOpen", selectorOf(object)})
}

// selectorOf is which Pods a pool has: one version has labels under matchLabels, the
// other has nothing but labels.
func selectorOf(object *unstructured.Unstructured) labels.Selector {
	wants, found, err := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
	if !found && err == nil {
		wants, found, err = unstructured.NestedStringMap(object.Object, "spec", "selector")
	}
	if err != nil || !found {
		return nil
	}
	return labels.SelectorFromSet(wants)
}
