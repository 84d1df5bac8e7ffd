package envtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// An operator that has nothing to do costs the API server nothing, however often
// it is asked, and its status stays as it is.
func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	t.Parallel()
	for what, happen := range map[string]func(*stage){
		"all is well": func(*stage) {},
		"a rollout waits for its first replica to leave": func(s *stage) {
			s.roll("vllm/vllm-openai:v0.30.0")
			for range 3 {
				s.operator.reconcile()
			}
			require.NotNil(s, s.pod("chat-server-1").DeletionTimestamp)
		},
		"a Pod is not Ready for a while": func(s *stage) {
			s.setStatus(s.pod("chat-server-0"), func(status *corev1.PodStatus) { status.Conditions[0].Status = corev1.ConditionFalse })
			s.operator.reconcile()
		},
		"the members of a replica wait for their leader to leave": func(s *stage) {
			s.roll("vllm/vllm-openai:v0.30.0")
			for range 3 {
				s.operator.reconcile()
			}
			require.NotNil(s, s.pod("chat-pair-0-0").DeletionTimestamp)
			require.Nil(s, s.pod("chat-pair-0-1").DeletionTimestamp)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newRunningStage(t, role("server", 2, 1), role("pair", 1, 2))
			happen(s)
			before := s.read().DeepCopy()
			writes, reads := len(s.operator.writes), s.operator.liveReads
			for range 20 {
				s.clock.Step(time.Second)
				require.NoError(t, s.operator.reconcile().err)
			}
			assert.Empty(t, s.operator.writes[writes:])
			assert.Zero(t, s.operator.liveReads-reads, "reads past the cache")
			assert.Equal(t, before.ResourceVersion, s.read().ResourceVersion)
			assert.Equal(t, before.Status, s.Status)

			// The next one, which remembers nothing, sees it the same way.
			s.operator = s.start()
			s.operator.reconcile()
			assert.Empty(t, s.operator.writes)
		})
	}
}

// The time of a transition is when the condition's status changed, and of nothing
// else.
func TestTransitionTimesDoNotFlicker(t *testing.T) {
	t.Parallel()
	s := newRunningStage(t, role("server", 3, 1))
	transitions := map[string]map[metav1.ConditionStatus]int{}
	last := map[string]metav1.Condition{}
	look := func() {
		for _, c := range s.read().Status.Conditions {
			was, known := last[c.Type]
			switch {
			case !known:
				transitions[c.Type] = map[metav1.ConditionStatus]int{}
			case was.Status != c.Status:
				transitions[c.Type][c.Status]++
				assert.True(t, was.LastTransitionTime.Before(&c.LastTransitionTime), "%s %s", c.Type, c.Status)
			default:
				assert.Equal(t, was.LastTransitionTime, c.LastTransitionTime, "%s stays %s", c.Type, c.Status)
			}
			last[c.Type] = c
		}
	}
	look()
	s.clock.Step(time.Minute)
	s.roll("vllm/vllm-openai:v0.30.0")
	for s.step() {
		s.clock.Step(time.Second)
		look()
	}
	s.mustBe(v1alpha1.PhaseReady)
	assert.Equal(t, map[metav1.ConditionStatus]int{metav1.ConditionTrue: 1, metav1.ConditionFalse: 1}, transitions[names.ConditionProgressing], "one rollout is one time of progress")
	assert.Equal(t, map[metav1.ConditionStatus]int{metav1.ConditionTrue: 3, metav1.ConditionFalse: 3}, transitions[names.ConditionReady], "each replica is missed once")
}
