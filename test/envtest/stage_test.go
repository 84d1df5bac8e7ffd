package envtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// stage is a namespace with a ModelDeployment, an operator that a test calls, and
// the kubelet and the retirer, which the test plays. Only time is not real: it
// passes when nothing else happens.
type stage struct {
	*testing.T
	running
	clock   *testingclock.FakeClock
	history *history
	// operator is the process that runs now.
	operator *process
}

// watching is a client for many goroutines, whose warnings nobody reads.
var watching = sync.OnceValues(func() (client.WithWatch, error) {
	quiet := rest.CopyConfig(config)
	quiet.WarningHandlerWithContext = rest.NoWarnings{}
	return client.NewWithWatch(quiet, client.Options{})
})

// newStage sets a stage for a ModelDeployment with these roles, which is not
// created yet.
func newStage(t *testing.T, roles ...v1alpha1.Role) *stage {
	t.Helper()
	md := modelDeployment(namespace(t, nil), "chat")
	md.Spec.Roles = roles
	s := &stage{T: t, running: running{md}, clock: testingclock.NewFakeClock(time.Now())}
	s.history = watchHistory(t, md.Namespace)
	s.operator = s.start()
	t.Cleanup(s.clear)
	return s
}

// newRunningStage is one whose replicas are all Ready.
func newRunningStage(t *testing.T, roles ...v1alpha1.Role) *stage {
	t.Helper()
	s := newStage(t, roles...)
	s.create()
	s.settle()
	s.mustBe(v1alpha1.PhaseReady)
	return s
}

// clear leaves nothing behind: there are 254 addresses for the Services of all
// tests.
func (s *stage) clear() {
	var pods corev1.PodList
	require.NoError(s, api.List(context.Background(), &pods, client.InNamespace(s.Namespace)))
	for i := range pods.Items {
		s.history.take(pods.Items[i].UID)
		require.NoError(s, client.IgnoreNotFound(api.Delete(context.Background(), &pods.Items[i], client.GracePeriodSeconds(0))))
	}
	var services corev1.ServiceList
	require.NoError(s, api.List(context.Background(), &services, client.InNamespace(s.Namespace)))
	for i := range services.Items {
		require.NoError(s, client.IgnoreNotFound(api.Delete(context.Background(), &services.Items[i])))
	}
	require.NoError(s, client.IgnoreNotFound(api.Delete(context.Background(), s.ModelDeployment)))
}

func role(name string, replicas, size int32) v1alpha1.Role {
	return v1alpha1.Role{Name: name, Replicas: &replicas, Size: &size}
}

func (s *stage) create() { require.NoError(s, api.Create(s.Context(), s.ModelDeployment)) }

// roll changes what is rendered for every role.
func (s *stage) roll(image string) {
	s.change(s.T, func(spec *v1alpha1.ModelDeploymentSpec) { spec.Engine.Image = image })
}

// read reads the ModelDeployment anew.
func (s *stage) read() *v1alpha1.ModelDeployment {
	require.NoError(s, api.Get(s.Context(), client.ObjectKeyFromObject(s.ModelDeployment), s.ModelDeployment))
	return s.ModelDeployment
}

func (s *stage) mustBe(phase v1alpha1.Phase) {
	s.Helper()
	require.Equal(s, phase, s.read().Status.Phase, "%v", s.Status.Conditions)
	require.Equal(s, s.Generation, s.Status.ObservedGeneration)
}

// built are the Pods in the namespace, whatever their labels, by name.
func (s *stage) built() map[string]*corev1.Pod {
	var list corev1.PodList
	require.NoError(s, api.List(s.Context(), &list, client.InNamespace(s.Namespace)))
	byName := map[string]*corev1.Pod{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

// pod is one that must be there.
func (s *stage) pod(name string) *corev1.Pod {
	s.Helper()
	pod := s.built()[name]
	require.NotNil(s, pod, name)
	return pod
}

// setStatus changes the status of a Pod as its kubelet does.
func (s *stage) setStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	before := pod.DeepCopy()
	change(&pod.Status)
	require.NoError(s, client.IgnoreNotFound(api.Status().Patch(s.Context(), pod, client.MergeFrom(before))))
}

// take deletes a Pod as anybody but the operator does, and waits for nothing.
func (s *stage) take(pod *corev1.Pod, options ...client.DeleteOption) {
	s.Helper()
	s.history.take(pod.UID)
	require.NoError(s, api.Delete(s.Context(), pod, append(options, client.Preconditions{UID: &pod.UID})...))
}

// kubelet does the next thing that is to be done for a Pod, and reports whether
// there was any: it ends one that leaves, or starts one. One thing at a time
// leaves the operator every state in between.
func (s *stage) kubelet() bool {
	var list corev1.PodList
	require.NoError(s, api.List(s.Context(), &list, client.InNamespace(s.Namespace), client.MatchingLabels{names.LabelManagedBy: names.Operator}))
	members := map[string]int{}
	for _, pod := range list.Items {
		members[pod.Labels[names.LabelComponent]+pod.Labels[names.LabelOrdinal]]++
	}
	for i := range list.Items {
		pod := &list.Items[i]
		isWhole := strconv.Itoa(members[pod.Labels[names.LabelComponent]+pod.Labels[names.LabelOrdinal]]) == pod.Labels[names.LabelSize]
		switch {
		case pod.DeletionTimestamp != nil:
			err := api.Delete(s.Context(), pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
			require.NoError(s, client.IgnoreNotFound(err))
			return true
		case pod.Status.Phase == corev1.PodPending && isWhole: // an engine waits for all its members
			s.bringUp(pod)
			return true
		}
	}
	return false
}

// bringUp binds a Pod to a node, without which its deletion would know no grace,
// and makes it Ready.
func (s *stage) bringUp(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}
		err := api.SubResource("binding").Create(s.Context(), pod.DeepCopy(), binding)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return // it is leaving
		}
		require.NoError(s, err)
	}
	s.setStatus(pod, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodRunning
		status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: names.MainContainer, Ready: true, Started: new(true)}}
	})
}

// settle lets the operator and the kubelet work until neither has anything to do.
// The operator is called only when a controller would be: at its start, after a
// change of an object it watches, after an error, and when it asked to be.
func (s *stage) settle() {
	s.Helper()
	for range 500 {
		if !s.step() {
			return
		}
	}
	s.Fatalf("it never comes to rest; the last writes:\n%s", strings.Join(s.operator.last(20), "\n"))
}

// step is one reconcile and one deed of the kubelet. It reports whether there is
// more to do.
func (s *stage) step() bool {
	done := s.operator.reconcile()
	if done.crashed {
		s.operator = s.start()
	}
	if s.kubelet() || done.crashed || done.err != nil || done.wrote {
		return true
	}
	if done.result.RequeueAfter > 0 {
		s.clock.Step(done.result.RequeueAfter)
		return true
	}
	return false
}

// isPresent reports whether the Pod is what the spec asks for now.
func (s *stage) isPresent(pod *corev1.Pod) bool {
	return slices.ContainsFunc(s.Spec.Roles, func(r v1alpha1.Role) bool {
		return pod.Annotations[names.AnnotationSpecHash] == render.Hash(s.ModelDeployment, &r)
	})
}

// outcome is what can be seen in the end, without what differs between two
// namespaces and two moments.
func (s *stage) outcome() (lines []string) {
	status := s.read().Status
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for name, pod := range s.built() {
		add("Pod %s: %s, leaving %t, of the present spec %t", name, pod.Status.Phase, pod.DeletionTimestamp != nil, s.isPresent(pod))
	}
	var services corev1.ServiceList
	require.NoError(s, api.List(s.Context(), &services, client.InNamespace(s.Namespace)))
	for _, service := range services.Items {
		add("Service %s: %v", service.Name, service.Spec.Selector)
	}
	var budgets policyv1.PodDisruptionBudgetList
	require.NoError(s, api.List(s.Context(), &budgets, client.InNamespace(s.Namespace)))
	for _, budget := range budgets.Items {
		add("PodDisruptionBudget %s: %s %s", budget.Name, budget.Spec.MinAvailable, metav1.FormatLabelSelector(budget.Spec.Selector))
	}
	for i := range status.Roles {
		status.Roles[i].SpecHash = "" // of a Pod, whose namespace it covers
	}
	add("status: %s %s at %d of %d, %+v", status.Phase, status.RoleSummary, status.ObservedGeneration, s.Generation, status.Roles)
	for _, c := range status.Conditions {
		add("condition: %s %s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	slices.Sort(lines)
	return lines
}
