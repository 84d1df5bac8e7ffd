package retire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// Somebody takes the mark away more often than the time of withdrawing, as a policy does
// that puts labels right.
func TestADeletionEndsThoughItsMarkIsTakenAway(t *testing.T) {
	spec, status, seen := in(v1alpha1.StateAdmitted)
	spec.Plan, spec.Deleting = PlanRouter, true
	m := &seen.Replicas[0].Members[0]
	process := withdraw.Process{Pod: "r", UID: "r1", Run: "1", StartedAt: beginning.Add(-time.Hour)}
	for now := beginning; now.Before(beginning.Add(2*DefaultWithdraw + DefaultDrain + time.Minute)); now = now.Add(time.Second) {
		m.Withdrawn = m.Withdrawn && now.Sub(beginning)%(15*time.Second) != 0
		fleet := withdraw.Fleet{ListedAt: now, Processes: []withdraw.Process{process}, Bypassed: withdraw.No}
		seen.Routed = map[types.UID]withdraw.Routed{"u1": {Fleet: fleet}}
		var actions []Action
		status, actions = Step(now, spec, status, seen)
		for _, a := range actions {
			switch a.(type) {
			case Disqualify:
				m.Withdrawn = true
			case DeleteMember:
				return
			}
		}
	}
	require.Fail(t, "nothing was deleted", "%+v", status.Retirement.Targets[0])
}

// An engine begins to crash in a loop when it is waited for.
func TestAWaitForIdleEndsWhereNothingRuns(t *testing.T) {
	spec, status, seen := in(v1alpha1.StateDraining)
	spec.Deleting, spec.WaitForIdle = true, true
	status.Retirement.Cause = v1alpha1.CauseDeletion
	seen.Replicas[0].Members[0].Running, seen.Replicas[0].Members[0].ResourceVersion = false, "7"
	status, _ = Step(beginning, spec, status, seen)
	_, actions := Step(beginning.Add(time.Second), spec, status, seen)
	require.Contains(t, actions, Action(DeleteMember{Pod: PodRef{Name: "a-0", UID: "u1"}, ResourceVersion: "7"}))
}

// What comes to an idle leader that nobody was kept away from needs the others.
func TestADeletionLeavesTheOthersToAnIdleLeader(t *testing.T) {
	spec, status, seen := in(v1alpha1.StateDeleting)
	spec.Plan, spec.Deleting = PlanHold, true
	status.Retirement.Cause = v1alpha1.CauseDeletion
	target := &status.Retirement.Targets[0]
	target.Reason = names.RetireIdle
	leader := seen.Replicas[0].Members[0]
	leader.Size, leader.LeavingBy = 2, beginning.Add(30*time.Second) // its delete was accepted
	worker := leader
	worker.Name, worker.UID, worker.ContainerID, worker.Index, worker.LeavingBy = "a-0-1", "u2", "c2", 1, time.Time{}
	seen.Replicas[0].Members = []Member{leader, worker}
	target.Members = append(target.Members, v1alpha1.RetirementMember{Name: worker.Name, UID: worker.UID, ContainerID: worker.ContainerID})
	gone := DeleteMember{Pod: PodRef{Name: "a-0-1", UID: "u2"}}
	status, actions := Step(beginning.Add(time.Second), spec, status, seen)
	require.NotContains(t, actions, Action(gone))
	seen.Replicas[0].Members = []Member{worker}
	_, actions = Step(beginning.Add(40*time.Second), spec, status, seen)
	require.Contains(t, actions, Action(gone))
}

func TestAStatusHoldsNoMoreMembersThanItMay(t *testing.T) {
	spec := Spec{Generation: 2, Plan: PlanHold, Wanted: map[string]int32{}, Deleting: true, Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal}}
	var seen Observations
	for ordinal := range MaxTargets {
		r := Replica{Role: "server", Ordinal: int32(ordinal)}
		for i := range 64 {
			name := fmt.Sprintf("server-%d-%d", ordinal, i)
			r.Members = append(r.Members, Member{Name: name, UID: types.UID(name), Index: int32(i), Size: 64, ContainerID: name, Running: true, Engine: "vllm", Refresh: 6 * time.Second})
		}
		seen.Replicas = append(seen.Replicas, r)
	}
	status := Status{}
	for n := range 5 {
		status, _ = Step(beginning.Add(time.Duration(n)*time.Second), spec, status, seen)
		members := 0
		for _, target := range status.Retirement.Targets {
			members += len(target.Members)
		}
		require.LessOrEqual(t, members, MaxMembers)
	}
}

// many are replicas of a role, as many as a list holds, and more.
func many(role string, n int, of func(m *Member)) (all []Replica) {
	for i := range n {
		m := Member{
			Name: fmt.Sprintf("%s-%d", role, i), Size: 1, Running: true, Engine: "vllm", Refresh: 6 * time.Second, Grace: 30 * time.Second,
		}
		m.UID, m.ContainerID = types.UID(m.Name), m.Name
		of(&m)
		all = append(all, Replica{Role: role, Ordinal: int32(i), Members: []Member{m}})
	}
	return all
}

func TestARefusedReplicaTakesNobodysRoom(t *testing.T) {
	spec := Spec{Generation: 2, Plan: PlanHold, Wanted: map[string]int32{"prefill": 0, "server": 0}, Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal}}
	seen := Observations{Replicas: append(
		many("prefill", maxListed+1, func(m *Member) { m.Split = true }),
		many("server", MaxTargets-1, func(m *Member) { m.Running, m.ContainerID = false, "" })..., // goes at once
	)}
	status, deleted := Status{}, 0
	for n := range 3 {
		var actions []Action
		status, actions = Step(beginning.Add(time.Duration(n)*time.Second), spec, status, seen)
		for _, a := range actions {
			if d, is := a.(DeleteMember); is {
				require.Contains(t, d.Pod.Name, "server")
				deleted++
			}
		}
	}
	require.Positive(t, deleted)
}

func TestARetryTriesFirstWhatWasNotTried(t *testing.T) {
	spec := Spec{Generation: 2, Plan: PlanHold, Wanted: map[string]int32{"server": 0}, Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal}}
	seen := Observations{Replicas: many("server", maxListed+1, func(*Member) {})}
	status := Status{}
	admitted := func(span time.Duration, from time.Time) string {
		var names []string
		for now := from; now.Before(from.Add(span)); now = now.Add(time.Second) {
			status, _ = Step(now, spec, status, seen)
			for _, r := range status.Retirement.Targets {
				names = append(names, r.Members[0].Name)
			}
		}
		return " " + strings.Join(names, " ") + " "
	}
	require.NotContains(t, admitted(10*time.Minute, beginning), " server-0 ", "the list has no room for the last one")
	spec.RetryToken = "again"
	require.Contains(t, admitted(5*time.Second, beginning.Add(time.Hour)), " server-0 ")
}
