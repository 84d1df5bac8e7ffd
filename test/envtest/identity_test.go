package envtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
)

// progressing is the condition after some tries of an operator that does not get
// on, each when it asked for it.
func (s *stage) progressing() *metav1.Condition {
	for range 4 {
		if done := s.operator.reconcile(); done.result.RequeueAfter > 0 {
			s.clock.Step(done.result.RequeueAfter)
		}
		for s.kubelet() {
		}
	}
	return meta.FindStatusCondition(s.read().Status.Conditions, names.ConditionProgressing)
}

// untouched are the objects, told by UID and version.
func (s *stage) untouched(objects ...client.Object) func() {
	type identity struct{ uid, version string }
	look := func(object client.Object) identity {
		require.NoError(s, api.Get(s.Context(), client.ObjectKeyFromObject(object), object), object.GetName())
		return identity{string(object.GetUID()), object.GetResourceVersion()}
	}
	var before []identity
	for _, object := range objects {
		before = append(before, look(object))
	}
	return func() {
		s.Helper()
		for i, object := range objects {
			assert.Equal(s, before[i], look(object), object.GetName())
			assert.Nil(s, object.GetDeletionTimestamp(), object.GetName())
		}
	}
}

// The ModelDeployment was deleted and made anew while no operator ran; see
// https://github.com/k8ssandra/cass-operator/issues/118 and
// https://github.com/instaclustr/cassandra-operator/issues/407
func TestPodsOfAnEarlierModelDeploymentAreNotTouched(t *testing.T) {
	t.Parallel()
	s := newRunningStage(t, role("server", 2, 1))
	spec, earlier := s.Spec.DeepCopy(), s.DeepCopy()
	earlier.DeletionTimestamp = new(metav1.Now())
	before := s.view()
	require.NoError(t, api.Delete(t.Context(), s.ModelDeployment))
	require.NoError(t, finalizer.Remove(t.Context(), api, s.ModelDeployment, "somebody"))
	s.ModelDeployment = modelDeployment(s.Namespace, "chat")
	s.Spec = *spec
	s.create()
	require.NotEqual(t, earlier.UID, s.UID)
	left := s.built()
	untouched := s.untouched(left["chat-server-0"], left["chat-server-1"])

	late := s.start()
	for what, view := range map[string]*view{
		"an operator that still sees the earlier one":               before,
		"an operator that still sees the earlier one being deleted": {deployment: *earlier, pods: before.pods},
	} {
		late.cached, late.live = view, nil
		late.reconcile()
		untouched()
		late.live = view
		view.deployment.Status = v1alpha1.ModelDeploymentStatus{} // a reason to write it
		done := late.reconcile()
		assert.NoError(t, done.err, what)
		last := strings.Join(late.last(1), "")
		assert.Contains(t, last, "apply status: ", what)
		assert.Contains(t, last, "the object has been modified", what)
		assert.NotEqual(t, v1alpha1.PhaseDeleting, s.read().Status.Phase, what)
		untouched()
	}

	s.operator = s.start()
	c := s.progressing()
	assert.Equal(t, names.ReasonNameTaken, c.Reason)
	assert.Contains(t, c.Message, "Pod/chat-server-0")
	untouched()

	for _, list := range []client.Object{&corev1.Pod{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		for _, pod := range left {
			s.history.take(pod.UID)
		}
		require.NoError(t, api.DeleteAllOf(t.Context(), list, client.InNamespace(s.Namespace), client.GracePeriodSeconds(0)))
	}
	s.settle()
	s.mustBe(v1alpha1.PhaseReady)
	for _, pod := range s.built() {
		assert.True(t, metav1.IsControlledBy(pod, s.ModelDeployment), pod.Name)
	}
}

func TestNamesThatOthersHave(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "somebody-elses"}
	others := map[string]func(metav1.ObjectMeta) client.Object{
		"Service/chat-server": func(m metav1.ObjectMeta) client.Object {
			return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}
		},
		"PodDisruptionBudget/chat-server": func(m metav1.ObjectMeta) client.Object {
			return &policyv1.PodDisruptionBudget{ObjectMeta: m, Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			}}
		},
		"Pod/chat-server-0": func(m metav1.ObjectMeta) client.Object {
			return enginePod(m.Namespace, m.Name, labels)
		},
	}
	for what, make := range others {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, role("server", 2, 1))
			_, name, _ := strings.Cut(what, "/")
			other := make(metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: labels})
			require.NoError(t, api.Create(t.Context(), other))
			untouched := s.untouched(other)
			s.create()
			c := s.progressing()
			assert.Equal(t, metav1.ConditionFalse, c.Status)
			assert.Equal(t, names.ReasonNameTaken, c.Reason)
			assert.Contains(t, c.Message, what+" ")
			assert.Contains(t, s.built(), "chat-server-1", "the rest goes on")
			untouched()

			require.NoError(t, api.Delete(t.Context(), other, client.GracePeriodSeconds(0)))
			s.settle()
			s.mustBe(v1alpha1.PhaseReady)
		})
	}
}

func TestAPodThatLostItsLabels(t *testing.T) {
	t.Parallel()
	s := newRunningStage(t, role("server", 2, 1))
	pod := s.pod("chat-server-0")
	instance := pod.Labels[names.LabelInstance]
	delete(pod.Labels, names.LabelInstance)
	require.NoError(t, api.Update(t.Context(), pod))
	untouched := s.untouched(pod)
	c := s.progressing()
	assert.Equal(t, names.ReasonNameTaken, c.Reason)
	for _, word := range []string{"Pod/chat-server-0", names.LabelManagedBy, names.LabelInstance, "put them back"} {
		assert.Contains(t, c.Message, word)
	}
	untouched()

	pod.Labels[names.LabelInstance] = instance
	require.NoError(t, api.Update(t.Context(), pod))
	uid := pod.UID
	s.settle()
	s.mustBe(v1alpha1.PhaseReady)
	assert.Equal(t, uid, s.pod("chat-server-0").UID, "it was never made again")
}
