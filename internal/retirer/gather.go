package retirer

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/startup"
)

// seen is everything a round is decided from.
type seen struct {
	deployment   *v1alpha1.ModelDeployment
	now          time.Time
	spec         retire.Spec
	status       retire.Status
	observations retire.Observations
	// pods are those of the observations, by their UID.
	pods map[types.UID]*corev1.Pod
	// router is the one in front of it; zero where there is none.
	router routerRef
}

// released reports whether there is nothing left to do for an object that is being
// deleted: it was let go, and others still hold it.
func (s *seen) released() bool {
	return s.deployment.DeletionTimestamp != nil && !finalizer.On(s.deployment)
}

// gather reads everything about one ModelDeployment, from the cache or from the API
// server itself.
func (r *Reconciler) gather(ctx context.Context, live bool, key types.NamespacedName) (*seen, error) {
	from := client.Reader(r.Client)
	if live {
		from = r.Live
	}
	md := &v1alpha1.ModelDeployment{}
	if err := from.Get(ctx, key, md); err != nil {
		return nil, err
	}
	s := &seen{
		deployment: md, now: r.Clock.Now(), spec: specOf(md, r.Budgets),
		status: retire.Status{Retirement: md.Status.Retirement, Last: md.Status.LastRetirement},
		pods:   map[types.UID]*corev1.Pod{},
	}
	if err := r.gatherPods(ctx, from, s); err != nil {
		return nil, err
	}
	r.gatherWorkloads(ctx, live, s)
	o := &s.observations
	o.Since = r.since()
	o.Reads, o.Direct, o.Refused = r.reads.of(key)
	s.router = refOf(md)
	o.Routed = r.routers.of(key, s.router)
	if md.DeletionTimestamp == nil {
		return s, nil
	}
	o.Foreground = slices.Contains(md.Finalizers, metav1.FinalizerDeleteDependents)
	namespace := &corev1.Namespace{}
	err := r.Live.Get(ctx, types.NamespacedName{Name: md.Namespace}, namespace)
	gone := apierrors.IsNotFound(err) // somebody forced it, and left what was in it
	if err != nil && !gone {
		return nil, fmt.Errorf("reading the namespace: %w", err)
	}
	o.NamespaceTerminating = gone || namespace.DeletionTimestamp != nil
	return s, nil
}

// gatherPods reads the deployment's Pods: those it controls and, where a deletion
// leaves them behind, those that were bound while it did.
func (r *Reconciler) gatherPods(ctx context.Context, from client.Reader, s *seen) error {
	md := s.deployment
	var pods corev1.PodList
	err := from.List(ctx, &pods, client.InNamespace(md.Namespace), client.MatchingLabels{
		names.LabelManagedBy: names.Operator, names.LabelInstance: md.Name,
	})
	if err != nil {
		return fmt.Errorf("listing Pods: %w", err)
	}
	bound := map[types.UID]bool{}
	if md.Status.Retirement != nil && md.DeletionTimestamp != nil {
		for _, t := range md.Status.Retirement.Targets {
			for _, m := range t.Members {
				bound[m.UID] = true
			}
		}
	}
	var owned, orphans []*corev1.Pod
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case metav1.IsControlledBy(pod, md):
			owned = append(owned, pod)
		case bound[pod.UID] && metav1.GetControllerOf(pod) == nil:
			orphans = append(orphans, pod)
		}
	}
	cascade := md.DeletionTimestamp != nil && slices.Contains(md.Finalizers, metav1.FinalizerOrphanDependents)
	// Else somebody has taken a Pod out: that leaves the others to the deletion, and this one
	// to whoever it was.
	if s.observations.Orphaned = cascade || len(owned) == 0 && len(orphans) > 0; s.observations.Orphaned {
		owned = append(owned, orphans...)
	}
	unreachable := map[string]bool{}
	for _, pod := range owned {
		node := pod.Spec.NodeName
		if _, known := unreachable[node]; !known && node != "" {
			if unreachable[node], err = r.unreachable(ctx, node); err != nil {
				return err
			}
		}
		s.add(pod, unreachable[node])
	}
	return nil
}

// add puts a Pod into its slot, by its name as the operator does. One without the
// name of a slot is none of ours to take away.
func (s *seen) add(pod *corev1.Pod, unreachable bool) {
	role, ordinal, _, ok := render.SlotOf(s.deployment, pod.Name)
	if !ok {
		return
	}
	s.pods[pod.UID] = pod
	member := memberOf(pod)
	member.NodeUnreachable = unreachable
	all := &s.observations.Replicas
	at := slices.IndexFunc(*all, func(r retire.Replica) bool { return r.Role == role && r.Ordinal == ordinal })
	if at < 0 {
		at = len(*all)
		*all = append(*all, retire.Replica{Role: role, Ordinal: ordinal})
	}
	(*all)[at].Members = append((*all)[at].Members, member)
}

// unreachable reports whether a node does not answer, or is gone.
func (r *Reconciler) unreachable(ctx context.Context, name string) (bool, error) {
	node := &corev1.Node{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, node)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading node %s: %w", name, err)
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	}), nil
}

// specOf is what a ModelDeployment asks for.
func specOf(md *v1alpha1.ModelDeployment, budgets retire.Budgets) retire.Spec {
	spec := retire.Spec{
		Generation: md.Generation, Wanted: map[string]int32{}, Plan: planOf(&md.Spec), Budgets: budgets,
		Deleting:    md.DeletionTimestamp != nil,
		WaitForIdle: md.Annotations[names.AnnotationDeletion] == names.DeletionWaitForIdle,
		RetryToken:  tokenOf(md.Annotations[names.AnnotationRetryRetirement]),
	}
	for i := range md.Spec.Roles {
		spec.Wanted[md.Spec.Roles[i].Name] = render.Replicas(&md.Spec.Roles[i])
	}
	own := md.Spec.Retirement
	if own.DrainSeconds != nil {
		spec.Budgets.Drain = time.Duration(*own.DrainSeconds) * time.Second
		spec.Budgets.Total = max(spec.Budgets.Total, spec.Budgets.Drain+drainToTotal)
	}
	if own.TotalSeconds != nil {
		spec.Budgets.Total = time.Duration(*own.TotalSeconds) * time.Second
	}
	return spec
}

// drainToTotal is what is left for the rest where only draining was given longer.
const drainToTotal = 60 * time.Second

func planOf(spec *v1alpha1.ModelDeploymentSpec) retire.Plan {
	switch {
	case spec.Router != nil:
		return retire.PlanRouter
	case spec.Withdrawal.Direct == v1alpha1.DirectConnections:
		return retire.PlanConnections
	}
	return retire.PlanHold
}

// memberOf reads a member from its own Pod, never from its role as it is now.
func memberOf(pod *corev1.Pod) retire.Member {
	record, _ := mutate.RecordOf(pod.Annotations)
	known, _ := engine.Lookup(engine.Name(record.Engine))
	m := retire.Member{
		Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		Index: number(pod.Labels[names.LabelMember], -1), Size: number(pod.Labels[names.LabelSize], 0),
		Ended:     pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded,
		Withdrawn: pod.Labels[names.LabelServing] == names.Withdrawn,
		Grace:     corev1.DefaultTerminationGracePeriodSeconds * time.Second,
		Engine:    record.Engine, Endpoint: record.MetricsURL, Refresh: known.Refresh,
		TakenOver: pod.Annotations[names.AnnotationTakeOver] == "true",
		Split:     splits(pod, engineContainer(pod)),
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		m.Grace = time.Duration(*grace) * time.Second
	}
	if pod.DeletionTimestamp != nil { // which is when its grace period ends
		m.LeavingBy = pod.DeletionTimestamp.Time
	}
	name := engineContainer(pod)
	named := slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == name })
	for i := range pod.Status.ContainerStatuses {
		// Where none has the name, any container that ran may have been the engine.
		if c := &pod.Status.ContainerStatuses[i]; c.Name == name || !named && c.ContainerID != "" {
			m.ContainerID, m.Running = c.ContainerID, c.State.Running != nil
			m.Starting = c.Started != nil && !startup.Done(pod, c)
		}
	}
	return m
}

func number(label string, otherwise int32) int32 {
	n, err := strconv.ParseInt(label, 10, 32)
	if err != nil || n < 0 {
		return otherwise
	}
	return int32(n)
}

// engineContainer is the name of the container that is read.
func engineContainer(pod *corev1.Pod) string {
	record, _ := mutate.RecordOf(pod.Annotations)
	return cmp.Or(record.Container, names.MainContainer)
}

// splits reports whether a member prefills or decodes for others: by what it was
// made for, or by its own command line.
func splits(pod *corev1.Pod, container string) bool {
	switch v1alpha1.RoleKind(pod.Labels[names.LabelRoleKind]) {
	case v1alpha1.Prefill, v1alpha1.Decode:
		return true
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == container {
			match, _ := engine.Recognize(mutate.Describe(c), engine.Source{Annotations: pod.Annotations, OperatorBuilt: true})
			return match.SplitsWork
		}
	}
	return false
}

// ports are those of a Pod that clients may be connected to: what its engine serves
// on and declares, what a proxy in front of the engine serves on, and where a mesh's
// sidecar takes connections for them.
func ports(pod *corev1.Pod) (all []uint16) {
	add := func(port int32) {
		if p := uint16(port); p != 0 && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	record, _ := mutate.RecordOf(pod.Annotations)
	if at, err := url.Parse(record.MetricsURL); err == nil {
		if port, err := strconv.ParseUint(at.Port(), 10, 16); err == nil {
			add(int32(port))
		}
	}
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, port := range c.Ports {
			// A sidecar's own metrics are not what clients come for.
			if port.Protocol != corev1.ProtocolUDP && (c.Name == engineContainer(pod) || port.Name == render.PortHTTP) {
				add(port.ContainerPort)
			}
		}
		for _, port := range inbound[c.Name] {
			add(port)
		}
	}
	return all
}

// inbound are the ports on which sidecars take the connections that were meant for
// the other containers, and which they do not declare. Source: Istio's and Linkerd's
// documentation.
var inbound = map[string][]int32{"istio-proxy": {15006, 15008}, "linkerd-proxy": {4143}}

// addresses parses those of a Pod or its node; what cannot be parsed is left out.
func addresses[T any](all []T, text func(T) string) (parsed []netip.Addr) {
	for _, a := range all {
		if addr, err := netip.ParseAddr(text(a)); err == nil {
			parsed = append(parsed, addr.Unmap())
		}
	}
	return parsed
}
