package envtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// history is all that happened to the Pods and ModelDeployments of a namespace, as
// the API server tells it. Every stage is audited at its end.
type history struct {
	mu      sync.Mutex
	changes []change
	// taken are the Pods that somebody else than the operator deleted.
	taken map[types.UID]bool
}

// change is one write. Versions are those of etcd, so they order the changes of
// all kinds.
type change struct {
	kind    watch.EventType
	object  client.Object
	version uint64
}

const lastPod = "end-of-the-story"

func watchHistory(t *testing.T, namespace string) *history {
	t.Helper()
	c, err := watching()
	require.NoError(t, err)
	h := &history{taken: map[types.UID]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	for _, list := range []client.ObjectList{&corev1.PodList{}, &v1alpha1.ModelDeploymentList{}} {
		watched, err := c.Watch(ctx, list, client.InNamespace(namespace))
		require.NoError(t, err)
		readers.Go(func() {
			defer watched.Stop()
			for event := range watched.ResultChan() {
				h.add(event)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		readers.Wait()
	})
	t.Cleanup(func() {
		if !t.Failed() {
			h.audit(t, namespace)
		}
	})
	return h
}

func (h *history) add(event watch.Event) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, change{event.Type, object, version})
}

func (h *history) take(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[uid] = true
}

// until are the changes up to now, in their order.
func (h *history) until(t *testing.T, namespace string) []change {
	t.Helper()
	marker := enginePod(namespace, lastPod, nil)
	require.NoError(t, api.Create(context.Background(), marker))
	require.NoError(t, api.Delete(context.Background(), marker, client.GracePeriodSeconds(0)))
	md := modelDeployment(namespace, lastPod)
	require.NoError(t, api.Create(context.Background(), md))
	require.NoError(t, api.Delete(context.Background(), md))
	var all []change
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		all = slices.Clone(h.changes)
		h.mu.Unlock()
		seen := map[types.UID]bool{}
		for _, c := range all {
			seen[c.object.GetUID()] = seen[c.object.GetUID()] || c.kind == watch.Deleted
		}
		if seen[marker.UID] && seen[md.UID] {
			break
		}
		require.True(t, time.Now().Before(deadline), "the watches have ended")
	}
	all = slices.DeleteFunc(all, func(c change) bool { return c.object.GetName() == lastPod })
	slices.SortFunc(all, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	return all
}

func (h *history) audit(t *testing.T, namespace string) {
	t.Helper()
	a := &auditor{taken: h.taken, pods: map[string]*corev1.Pod{}}
	for _, c := range h.until(t, namespace) {
		switch object := c.object.(type) {
		case *corev1.Pod:
			a.pod(c.kind, object)
		case *v1alpha1.ModelDeployment:
			a.deployment(c.kind, object)
		}
	}
	require.Empty(t, a.wrong, "%s", strings.Join(a.story, "\n"))
}

// uids are those of all Pods that ever were, by name.
func (h *history) uids(t *testing.T, namespace string) map[string][]types.UID {
	t.Helper()
	byName := map[string][]types.UID{}
	for _, c := range h.until(t, namespace) {
		if _, ok := c.object.(*corev1.Pod); ok && c.kind == watch.Added {
			byName[c.object.GetName()] = append(byName[c.object.GetName()], c.object.GetUID())
		}
	}
	return byName
}

// auditor checks what must hold of every write, whatever goes wrong meanwhile.
type auditor struct {
	taken map[types.UID]bool
	md    *v1alpha1.ModelDeployment
	pods  map[string]*corev1.Pod
	story []string
	wrong []string
}

func (a *auditor) mustNot(format string, args ...any) {
	a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
	a.story = append(a.story, "WRONG: "+a.wrong[len(a.wrong)-1])
}

func (a *auditor) deployment(kind watch.EventType, md *v1alpha1.ModelDeployment) {
	if kind == watch.Deleted {
		a.md = nil
		return
	}
	status := md.Status
	a.story = append(a.story, fmt.Sprintf("%d of generation %d: %s %s %v", status.ObservedGeneration, md.Generation, status.Phase, status.RoleSummary, md.Spec.Engine.Image))
	for _, c := range status.Conditions {
		if !conditionReasons()[c.Reason] {
			a.mustNot("the condition %s has the reason %s, which api/names does not have", c.Type, c.Reason)
		}
	}
	if a.md != nil && a.md.UID == md.UID && status.ObservedGeneration < a.md.Status.ObservedGeneration {
		a.mustNot("the observed generation falls from %d to %d", a.md.Status.ObservedGeneration, status.ObservedGeneration)
	}
	a.md = md
}

func (a *auditor) pod(kind watch.EventType, pod *corev1.Pod) {
	before := a.pods[pod.Name]
	ours := pod.Labels[names.LabelManagedBy] == names.Operator
	switch {
	case kind == watch.Added && ours:
		a.story = append(a.story, fmt.Sprintf("create %s %s %s", pod.Name, pod.Annotations[names.AnnotationSpecHash], pod.UID))
		a.added(pod)
	case kind == watch.Added:
	case before == nil || before.UID != pod.UID:
		a.mustNot("%s is changed and was never created", pod.Name)
	case ours && before.DeletionTimestamp == nil && (kind == watch.Deleted || pod.DeletionTimestamp != nil):
		a.story = append(a.story, fmt.Sprintf("delete %s %s", pod.Name, pod.UID))
		a.removed(before)
	}
	if kind == watch.Deleted {
		a.story = append(a.story, "gone "+pod.Name)
		delete(a.pods, pod.Name)
		return
	}
	a.pods[pod.Name] = pod
}

// role is that of a Pod, nil where the spec no longer asks for the Pod.
func (a *auditor) role(pod *corev1.Pod) *v1alpha1.Role {
	if a.md == nil {
		return nil
	}
	i := slices.IndexFunc(a.md.Spec.Roles, func(r v1alpha1.Role) bool { return r.Name == pod.Labels[names.LabelComponent] })
	if i < 0 || number(pod, names.LabelOrdinal) >= render.Replicas(&a.md.Spec.Roles[i]) {
		return nil
	}
	return &a.md.Spec.Roles[i]
}

func number(pod *corev1.Pod, label string) int32 {
	n, err := strconv.ParseInt(pod.Labels[label], 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}

// replicas are the Pods of a role by ordinal and member.
func (a *auditor) replicas(role string) map[int32]map[int32]*corev1.Pod {
	all := map[int32]map[int32]*corev1.Pod{}
	for _, pod := range a.pods {
		if pod.Labels[names.LabelManagedBy] != names.Operator || pod.Labels[names.LabelComponent] != role {
			continue
		}
		ordinal := number(pod, names.LabelOrdinal)
		if all[ordinal] == nil {
			all[ordinal] = map[int32]*corev1.Pod{}
		}
		all[ordinal][number(pod, names.LabelMember)] = pod
	}
	return all
}

// added checks that a slot is filled only once nothing is left in it.
func (a *auditor) added(pod *corev1.Pod) {
	role := a.role(pod)
	if role == nil {
		a.mustNot("%s is created, which the spec does not ask for", pod.Name)
		return
	}
	for _, other := range a.replicas(role.Name)[number(pod, names.LabelOrdinal)] {
		if other.DeletionTimestamp != nil || other.Annotations[names.AnnotationSpecHash] != pod.Annotations[names.AnnotationSpecHash] {
			a.mustNot("%s is created while %s of an earlier replica is still there", pod.Name, other.Name)
		}
	}
}

// removed checks the operator's delete of a Pod.
func (a *auditor) removed(pod *corev1.Pod) {
	if a.taken[pod.UID] {
		return
	}
	role := a.role(pod)
	if role == nil || !metav1.IsControlledBy(pod, a.md) {
		a.mustNot("%s is deleted, which is not the operator's to take", pod.Name)
		return
	}
	all := a.replicas(role.Name)
	ordinal := number(pod, names.LabelOrdinal)
	// While the leader drains, its requests need the other members; see
	// https://github.com/kubernetes-sigs/lws/issues/508
	leader := all[ordinal][0]
	if leader != nil && leader != pod && leader.Status.Phase != corev1.PodFailed {
		a.mustNot("%s is deleted before its leader is gone", pod.Name)
	}
	if !sound(all[ordinal], role) {
		return
	}
	if pod.Annotations[names.AnnotationSpecHash] == render.Hash(a.md, role) {
		a.mustNot("%s is deleted, which is Ready and of the present spec", pod.Name)
	}
	for other := range render.Replicas(role) {
		if other != ordinal && !sound(all[other], role) {
			a.mustNot("%s is deleted while replica %d is not Ready", pod.Name, other)
		}
	}
}

// sound reports whether a replica is whole, Ready and serving.
func sound(pods map[int32]*corev1.Pod, role *v1alpha1.Role) bool {
	if int32(len(pods)) != render.Size(role) {
		return false
	}
	for pod := range maps.Values(pods) {
		ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		restarted := len(pods) > 1 && slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.RestartCount > 0 })
		ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if !ready || ended || restarted || pod.DeletionTimestamp != nil || pod.Labels[names.LabelServing] != names.Serving {
			return false
		}
	}
	return true
}
