package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// gatherer reads the facts. What may not be read is left out and noted; an API
// server that does not answer is an error.
type gatherer struct {
	client    client.Reader
	namespace string // empty: all
	facts     facts
	known     map[types.UID]owner // the top owner of a controller
	refused   map[string]bool     // kinds of owners that may not be read
}

// pageSize is how many objects are asked for at once, as kubectl does.
const pageSize = 500

func gather(ctx context.Context, c client.Reader, namespace, name string) (facts, error) {
	g := &gatherer{
		client:    c,
		namespace: namespace,
		facts:     facts{owners: map[types.UID]owner{}, optedIn: map[string]bool{}},
		known:     map[types.UID]owner{},
		refused:   map[string]bool{},
	}
	steps := []func(context.Context) error{g.readModelDeployments, g.readNamespaces, g.readPods, g.readOwners, g.readLabelled}
	if name != "" {
		steps = []func(context.Context) error{func(ctx context.Context) error { return g.readModelDeployment(ctx, name) }}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return facts{}, err
		}
	}
	return g.facts, nil
}

// note takes down that something could not be read. It returns the error where
// nothing else will be readable either.
func (g *gatherer) note(what string, err error) error {
	if apierrors.IsUnauthorized(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return fmt.Errorf("reading %s: %w", what, err)
	}
	g.facts.unread = append(g.facts.unread, fmt.Sprintf("%s: %v", what, err))
	return nil
}

// list reads all objects of a kind that the selector selects, and passes each page
// on.
func (g *gatherer) list(ctx context.Context, list client.ObjectList, namespace, selector string, page func()) error {
	selected, err := labels.Parse(selector)
	if err != nil {
		panic(err) // the selectors are ours
	}
	for {
		err := g.client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selected},
			client.Limit(pageSize), client.Continue(list.GetContinue()))
		if err != nil {
			return err
		}
		page()
		if list.GetContinue() == "" {
			return nil
		}
	}
}

func (g *gatherer) readModelDeployments(ctx context.Context) error {
	var list v1alpha1.ModelDeploymentList
	err := g.list(ctx, &list, g.namespace, "", func() { g.facts.deployments = append(g.facts.deployments, list.Items...) })
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		g.facts.notInstalled = true
		return nil
	}
	if err != nil {
		return g.note("ModelDeployments", err)
	}
	return nil
}

// readModelDeployment reads one ModelDeployment and its Pods.
func (g *gatherer) readModelDeployment(ctx context.Context, name string) error {
	md, err := readModelDeployment(ctx, g.client, g.namespace, name)
	if err != nil {
		return err
	}
	g.facts.deployments = []v1alpha1.ModelDeployment{*md}
	return g.appendPods(ctx, g.namespace, names.LabelManagedBy+"="+names.Operator+","+names.LabelInstance+"="+name)
}

func readModelDeployment(ctx context.Context, c client.Reader, namespace, name string) (*v1alpha1.ModelDeployment, error) {
	var md v1alpha1.ModelDeployment
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &md)
	if meta.IsNoMatchError(err) {
		return nil, errors.New("ModelDeployments are not installed in this cluster: install the chart of lastcall")
	}
	if err != nil {
		return nil, fmt.Errorf("reading ModelDeployment %q in namespace %s: %w", name, namespace, err)
	}
	return &md, nil
}

func (g *gatherer) readNamespaces(ctx context.Context) error {
	if g.namespace != "" {
		var namespace corev1.Namespace
		if err := g.client.Get(ctx, client.ObjectKey{Name: g.namespace}, &namespace); err != nil {
			return g.note("Namespace "+g.namespace+", whose label opts its Pods in", err)
		}
		g.facts.optedIn[g.namespace] = namespace.Labels[names.LabelDrain] == names.DrainEnabled
		return nil
	}
	var list corev1.NamespaceList
	err := g.list(ctx, &list, "", names.LabelDrain+"="+names.DrainEnabled, func() {
		for _, namespace := range list.Items {
			g.facts.optedIn[namespace.Name] = true
		}
	})
	if err != nil {
		return g.note("Namespaces, whose label opts their Pods in", err)
	}
	return nil
}

// readPods reads the Pods that the operator built, those with the label, and the
// others of opted-in namespaces. No Pod is of two of these.
func (g *gatherer) readPods(ctx context.Context) error {
	const others = names.LabelManagedBy + "!=" + names.Operator
	if err := g.appendPods(ctx, g.namespace, names.LabelManagedBy+"="+names.Operator); err != nil {
		return err
	}
	if err := g.appendPods(ctx, g.namespace, names.LabelDrain+","+others); err != nil {
		return err
	}
	for namespace, optedIn := range g.facts.optedIn {
		if optedIn {
			if err := g.appendPods(ctx, namespace, "!"+names.LabelDrain+","+others); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *gatherer) appendPods(ctx context.Context, namespace, selector string) error {
	var list corev1.PodList
	err := g.list(ctx, &list, namespace, selector, func() { g.facts.pods = append(g.facts.pods, list.Items...) })
	if err != nil {
		return g.note("Pods with "+selector, err)
	}
	return nil
}

// readLabelled reads the workloads of Kubernetes that have the label themselves.
func (g *gatherer) readLabelled(ctx context.Context) error {
	add := func(kind string, object metav1.ObjectMeta, template corev1.PodTemplateSpec) {
		g.facts.labelled = append(g.facts.labelled, labelledWorkload{
			owner{object.Namespace, appsv1.GroupName, kind, object.Name}, object.Labels[names.LabelDrain], template.Labels[names.LabelDrain],
		})
	}
	var deployments appsv1.DeploymentList
	var statefulSets appsv1.StatefulSetList
	var daemonSets appsv1.DaemonSetList
	for _, kind := range []struct {
		name string
		list client.ObjectList
		page func()
	}{
		{"Deployment", &deployments, func() {
			for _, o := range deployments.Items {
				add("Deployment", o.ObjectMeta, o.Spec.Template)
			}
		}},
		{"StatefulSet", &statefulSets, func() {
			for _, o := range statefulSets.Items {
				add("StatefulSet", o.ObjectMeta, o.Spec.Template)
			}
		}},
		{"DaemonSet", &daemonSets, func() {
			for _, o := range daemonSets.Items {
				add("DaemonSet", o.ObjectMeta, o.Spec.Template)
			}
		}},
	} {
		if err := g.list(ctx, kind.list, g.namespace, names.LabelDrain, kind.page); err != nil {
			if err := g.note(kind.name+"s with the label "+names.LabelDrain, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// longestChain bounds how many controllers stand above a Pod: a chain that is longer
// is a circle.
const longestChain = 8

// readOwners finds the workload that each Pod is part of, which no ModelDeployment
// has to do with.
func (g *gatherer) readOwners(ctx context.Context) error {
	deployments := map[types.UID]bool{}
	for _, md := range g.facts.deployments {
		deployments[md.UID] = true
	}
	for _, p := range g.facts.pods {
		top := owner{p.Namespace, "", "Pod", p.Name}
		var passed []types.UID
		ref := metav1.GetControllerOfNoCopy(&p)
		for ref != nil && len(passed) < longestChain && !deployments[ref.UID] {
			if found, ok := g.known[ref.UID]; ok {
				top = found
				break
			}
			passed = append(passed, ref.UID)
			group, _, _ := strings.Cut(ref.APIVersion, "/")
			top = owner{p.Namespace, group, ref.Kind, ref.Name}
			next, err := g.controllerOf(ctx, p.Namespace, ref)
			if err != nil {
				return err
			}
			ref = next
		}
		for _, uid := range passed {
			g.known[uid] = top
		}
		g.facts.owners[p.UID] = top
	}
	return nil
}

// controllerOf returns what controls the object that this reference names; nil where
// nothing does, or where the object is gone or cannot be read.
func (g *gatherer) controllerOf(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*metav1.OwnerReference, error) {
	if g.refused[ref.Kind] {
		return nil, nil
	}
	var object metav1.PartialObjectMetadata
	object.APIVersion, object.Kind = ref.APIVersion, ref.Kind
	err := g.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &object)
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		g.refused[ref.Kind] = true
		return nil, g.note(ref.Kind+"s, to find what they are part of", err)
	case object.UID != ref.UID: // another of the same name
		return nil, nil
	}
	return metav1.GetControllerOf(&object), nil
}
