package retire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// in is an operation with one target in a state, whose Pod is there and marked.
func in(state v1alpha1.RetirementState) (Spec, Status, Observations) {
	at := metav1.NewMicroTime(beginning)
	spec := Spec{Generation: 2, Plan: PlanConnections, Wanted: map[string]int32{"a": 0}, Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal}}
	status := Status{Retirement: &v1alpha1.RetirementStatus{
		Cause: v1alpha1.CauseScaleDown, State: state, Generation: 2,
		StartedAt: at, PhaseStartedAt: at, Deadline: metav1.NewMicroTime(beginning.Add(DefaultTotal)),
		Targets: []v1alpha1.RetirementTarget{{
			Role: "a", State: state, PhaseStartedAt: at,
			Members: []v1alpha1.RetirementMember{{Name: "a-0", UID: "u1", ContainerID: "c1", Answering: true}},
		}},
	}}
	seen := Observations{Replicas: []Replica{{Role: "a", Members: []Member{{
		Name: "a-0", UID: "u1", Size: 1, ContainerID: "c1", Running: true, Withdrawn: true, Grace: 30 * time.Second,
		Engine: "vllm", Refresh: 6 * time.Second,
	}}}}}
	return spec, status, seen
}

func TestAStateOfAnotherVersion(t *testing.T) {
	spec, status, seen := in("Pondering")
	after, actions := Step(beginning, spec, status, seen)
	require.Equal(t, v1alpha1.StateAborted, after.Retirement.Targets[0].State, "what cannot be told is kept")
	assert.Equal(t, names.RetireStateUnknown, after.Retirement.Targets[0].Reason)
	assert.Contains(t, actions, Requalify{PodRef{Name: "a-0", UID: "u1"}})

	spec.Deleting = true
	after, _ = Step(beginning, spec, status, seen)
	assert.Equal(t, v1alpha1.StateDeleting, after.Retirement.Targets[0].State, "a deletion is not held by it")
}

// A token asks for what is to go. What is wanted again and still has its mark is
// not forgotten for it.
func TestRetryWhileOneIsBeingReleased(t *testing.T) {
	spec, status, seen := in(v1alpha1.StateAborted)
	spec.Wanted["a"], spec.RetryToken = 1, "now"
	after, actions := Step(beginning, spec, status, seen)
	require.NotNil(t, after.Retirement)
	assert.Len(t, after.Retirement.Targets, 1)
	assert.Contains(t, actions, Requalify{PodRef{Name: "a-0", UID: "u1"}})

	seen.Replicas[0].Members[0].Withdrawn = false
	after, _ = Step(beginning.Add(time.Second), spec, after, seen)
	assert.Nil(t, after.Retirement)
	assert.Equal(t, v1alpha1.EndCancelled, after.Last.End)
}

// What is kept of the reads is the status's own: the host may reuse its memory.
func TestStatusSharesNothingWithReads(t *testing.T) {
	spec, status, seen := in(v1alpha1.StateDraining)
	reads := []Read{{SentAt: beginning.Add(time.Second), ContainerID: "c1", Verdict: ReadBusy, InFlight: 3}}
	seen.Reads = map[types.UID][]Read{"u1": reads}
	after, _ := Step(beginning.Add(2*time.Second), spec, status, seen)
	reads[0].InFlight = 7
	require.NotNil(t, after.Retirement.Targets[0].InFlight)
	assert.Equal(t, int64(3), *after.Retirement.Targets[0].InFlight)
	assert.Equal(t, "a-0: 3 in flight", after.Retirement.Message)
}
