package envtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// uninstall takes a webhook configuration away until the returned function or the
// end of the test puts it back. inForce tells whether the API server asks it. A
// test that does so runs alone.
func uninstall(t *testing.T, list client.ObjectList, inForce func() bool) (restore func()) {
	t.Helper()
	require.NoError(t, api.List(context.Background(), list))
	objects, err := meta.ExtractList(list)
	require.NoError(t, err)
	var removed []client.Object
	for _, object := range objects {
		if o := object.(client.Object); strings.HasPrefix(o.GetName(), "lastcall") {
			removed = append(removed, o)
			require.NoError(t, api.Delete(context.Background(), o))
		}
	}
	require.NotEmpty(t, removed)
	await := func(want bool) {
		eventually(t, func() error {
			if inForce() != want {
				return errors.New("the API server has not seen the change yet")
			}
			return nil
		})
	}
	await(false)
	restored := false
	restore = func() {
		if restored {
			return
		}
		restored = true
		for _, o := range removed {
			o.SetResourceVersion("")
			o.SetUID("")
			require.NoError(t, api.Create(context.Background(), o))
		}
		await(true)
	}
	t.Cleanup(restore)
	return restore
}

func withoutMutatingWebhook(t *testing.T) (restore func()) {
	return uninstall(t, &admissionregistrationv1.MutatingWebhookConfigurationList{}, func() bool {
		pod := enginePod(releaseNamespace, "probe", map[string]string{names.LabelManagedBy: names.Operator})
		pod.Annotations = map[string]string{names.AnnotationGraceSeconds: "30"}
		require.NoError(t, api.Create(context.Background(), pod, client.DryRunAll))
		return injected(pod)
	})
}

func withoutValidatingWebhook(t *testing.T) (restore func()) {
	return uninstall(t, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, func() bool {
		return api.Create(context.Background(), withBadAnnotation(modelDeployment(releaseNamespace, "probe")), client.DryRunAll) != nil
	})
}

// withBadAnnotation is invalid in a way that the schema cannot tell.
func withBadAnnotation(md *v1alpha1.ModelDeployment) *v1alpha1.ModelDeployment {
	md.Spec.Roles[0].Annotations = map[string]string{names.AnnotationMetricsPort: "abc"}
	return md
}

// No Pod of the operator's runs without its drain hook, however the webhook came
// to be missing.
func TestWithoutTheMutatingWebhookNoPodIsLeftRunning(t *testing.T) {
	s := newStage(t, role("server", 1, 1), role("pair", 1, 2))
	restore := withoutMutatingWebhook(t)
	s.create()
	var delays []time.Duration
	for range 8 {
		done := s.operator.reconcile()
		require.NoError(t, done.err)
		assert.Empty(t, s.built(), "deleted at once")
		delays = append(delays, done.result.RequeueAfter.Truncate(time.Second))
		s.clock.Step(done.result.RequeueAfter)
	}
	assert.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}, inSeconds(delays), "it is tried again less and less often")
	for _, name := range []string{"chat-server-0", "chat-pair-0-0"} {
		assert.Len(t, s.history.uids(t, s.Namespace)[name], len(delays), "%s is tried each time", name)
	}
	assert.NotContains(t, s.history.uids(t, s.Namespace), "chat-pair-0-1", "of no use without its leader")
	c := meta.FindStatusCondition(s.read().Status.Conditions, names.ConditionProgressing)
	assert.Equal(t, names.ReasonCreateFailed, c.Reason)
	assert.Contains(t, c.Message, "helm upgrade", "the way out")
	told := 0
	for _, event := range s.operator.events {
		if strings.HasPrefix(event, corev1.EventTypeWarning+" "+names.ReasonCreateFailed) {
			told++
		}
	}
	assert.Equal(t, 2, told, "once for each Pod: %q", s.operator.events)

	t.Run("nor one whose operator ended before it could delete it", func(t *testing.T) {
		s.clock.Step(time.Hour)
		s.operator.fault = func(int) error {
			if len(s.built()) == 0 {
				return nil
			}
			return errCrash
		}
		require.True(t, s.operator.reconcile().crashed)
		require.Len(t, s.built(), 1)
		s.operator = s.start()
		for range 2 {
			s.operator.reconcile()
		}
		assert.Empty(t, s.built())
	})

	t.Run("when the webhook is back everything comes up", func(t *testing.T) {
		restore()
		s.settle()
		s.mustBe(v1alpha1.PhaseReady)
		for name, pod := range s.built() {
			assert.NotEmpty(t, pod.Annotations[names.AnnotationStatus], name)
		}
	})
}

func inSeconds(delays []time.Duration) (all []time.Duration) {
	for _, d := range delays {
		all = append(all, d/time.Second)
	}
	return all
}

// An invalid spec that got in is reported, and costs no replica.
func TestAnInvalidSpecLeavesRunningReplicasAlone(t *testing.T) {
	s := newRunningStage(t, role("server", 2, 1))
	before := s.uidsNow()
	restore := withoutValidatingWebhook(t)
	s.change(t, func(spec *v1alpha1.ModelDeploymentSpec) {
		spec.Engine.Image = "vllm/vllm-openai:v0.30.0"
		spec.Roles[0].Annotations = map[string]string{names.AnnotationMetricsPort: "abc"}
	})
	s.take(s.pod("chat-server-1"), client.GracePeriodSeconds(0))
	s.settle()
	c := meta.FindStatusCondition(s.read().Status.Conditions, names.ConditionProgressing)
	assert.Equal(t, metav1.ConditionFalse, c.Status)
	assert.Equal(t, names.ReasonRenderFailed, c.Reason)
	assert.Contains(t, c.Message, "spec.roles[0].annotations")
	assert.Contains(t, c.Message, "abc")
	assert.Equal(t, v1alpha1.PhaseDegraded, s.Status.Phase)
	assert.Equal(t, s.Generation, s.Status.ObservedGeneration)
	after := s.uidsNow()
	assert.Equal(t, before["chat-server-0"], after["chat-server-0"])
	assert.Len(t, after, 1, "nothing is made of an invalid spec")

	restore()
	t.Run("its finalizer and status can be written with the webhook back", func(t *testing.T) {
		s.Finalizers = []string{names.Finalizer}
		assert.NoError(t, api.Update(t.Context(), s.ModelDeployment))
		s.Finalizers = nil
		assert.NoError(t, api.Update(t.Context(), s.ModelDeployment))
	})
	s.change(t, func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[0].Annotations = nil })
	s.settle()
	s.mustBe(v1alpha1.PhaseReady)
}
