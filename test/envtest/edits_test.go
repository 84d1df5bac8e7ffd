package envtest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// A rollout is overtaken by another edit at each of its steps: back to where it
// came from, and on to something new.
func TestAnEditInTheMiddleOfARollout(t *testing.T) {
	t.Parallel()
	const first, second, third = "vllm/vllm-openai:v0.29.0", "vllm/vllm-openai:v0.30.0", "vllm/vllm-openai:v0.31.0"
	for last, moments := range map[string][]int{first: {0, 1, 2, 3, 4, 5, 6, 7}, third: {2, 5}} {
		for _, steps := range moments {
			t.Run(fmt.Sprintf("to %s after %d steps", last, steps), func(t *testing.T) {
				t.Parallel()
				s := newRunningStage(t, role("server", 3, 1))
				s.roll(second)
				for range steps {
					require.True(t, s.step(), "the rollout is over")
				}
				s.roll(last)
				s.read()
				// Those that are of the last spec already stay.
				stay := map[string]types.UID{}
				for name, pod := range s.built() {
					if pod.DeletionTimestamp == nil && s.isPresent(pod) {
						stay[name] = pod.UID
					}
				}
				made := s.history.uids(t, s.Namespace)
				s.settle()
				s.mustBe(v1alpha1.PhaseReady)
				for name, uids := range s.history.uids(t, s.Namespace) {
					pod := s.pod(name)
					assert.Equal(t, last, pod.Spec.Containers[0].Image, name)
					if uid, ok := stay[name]; ok {
						assert.Equal(t, uid, pod.UID, "%s needed no replacement", name)
						assert.Len(t, uids, len(made[name]), name)
					} else {
						assert.Len(t, uids, len(made[name])+1, "%s is made once more", name)
					}
				}
			})
		}
	}
}

// What is replaced first is what does not run: a bad image must not hold up the
// edit that corrects it. Nothing is made beside the old Pods, which would need
// accelerators that those still hold; see
// https://github.com/kubernetes/kubernetes/issues/107920
func TestARolloutThatCannotStartIsCorrected(t *testing.T) {
	t.Parallel()
	s := newRunningStage(t, role("server", 3, 1))
	before := s.uidsNow()
	s.roll("vllm/vllm-openai:none")
	for s.pod("chat-server-0").Status.Phase != corev1.PodRunning || len(s.built()) != 3 || s.pod("chat-server-2").UID == before["chat-server-2"] {
		s.operator.reconcile()
		if pod := s.built()["chat-server-2"]; pod != nil && pod.DeletionTimestamp != nil {
			require.True(t, s.kubelet())
		}
	}
	s.setStatus(s.pod("chat-server-2"), func(status *corev1.PodStatus) {
		status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		}}
	})
	for range 5 {
		s.operator.reconcile()
	}
	assert.Equal(t, v1alpha1.PhaseDegraded, s.read().Status.Phase)
	after := s.uidsNow()
	for _, name := range []string{"chat-server-0", "chat-server-1"} {
		assert.Equal(t, before[name], after[name], "%s serves on", name)
	}
	s.roll("vllm/vllm-openai:v0.29.0")
	s.settle()
	s.mustBe(v1alpha1.PhaseReady)
	for _, name := range []string{"chat-server-0", "chat-server-1"} {
		assert.Equal(t, before[name], s.pod(name).UID, "%s was never rolled", name)
	}
}
