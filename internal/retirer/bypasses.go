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

// bypass is withdraw.Fleet's Bypassed and By.
type bypass struct {
	is withdraw.Tri
	by string
}

// bypasses is whether anything but its router may choose each replica. The gateways in
// front of endpoint pickers do where their pool fails open: one that has not heard yet
// that the replica is no part of the pool any more sends to it when no picker answers.
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

// pools are those of a namespace that fail open.
type pools struct {
	open []pool
	err  string
}

type pool struct {
	name string
	// selector is nil where it cannot be read.
	selector labels.Selector
}

func (p pools) bypass(b *router.Backend) bypass {
	if p.err != "" {
		return bypass{withdraw.Unknown, p.err}
	}
	serving := labels.Merge(b.Labels, labels.Set{names.LabelServing: names.Serving}) // as it was before the mark
	for _, one := range p.open {
		if one.selector == nil || one.selector.Matches(serving) {
			return bypass{withdraw.Yes, fmt.Sprintf("InferencePool %s fails open: its gateway chooses replicas by itself where its picker does not answer", one.name)}
		}
	}
	return bypass{is: withdraw.No}
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
	if err == nil && mode != "FailOpen" {
		return // FailClose is what is meant where nothing is said
	}
	p.open = append(p.open, pool{object.GetName(), selectorOf(object)})
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
