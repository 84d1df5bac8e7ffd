package retire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// telling plays a replica behind one process that has to be told and says the same all
// the time, and returns when it was told what.
func telling(t *testing.T, p withdraw.Process, says withdraw.Membership, rounds int, edit func(round int, spec *Spec)) (left, back []time.Duration) {
	t.Helper()
	spec := Spec{Generation: 2, Plan: PlanRouter, Wanted: map[string]int32{"server": 1}, Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal}}
	seen := Observations{Replicas: many("server", 2, func(*Member) {}), Routed: map[types.UID]withdraw.Routed{}}
	var status Status
	routed := withdraw.Routed{Sightings: map[types.UID][]withdraw.Sighting{}}
	for round := range rounds {
		now := beginning.Add(time.Duration(round) * ReadInterval)
		if edit != nil {
			edit(round, &spec)
		}
		var actions []Action
		status, actions = Step(now, spec, status, seen)
		for _, a := range actions {
			switch a.(type) {
			case WithdrawFromRouter:
				left = append(left, now.Sub(beginning))
			case RestoreToRouter:
				back = append(back, now.Sub(beginning))
			}
		}
		routed.Sightings[p.UID] = append(routed.Sightings[p.UID], withdraw.Sighting{
			SentAt: now, ReceivedAt: now, Run: p.Run, Answered: true, Membership: says, Window: time.Second, Holds: withdraw.No, Returns: withdraw.No,
		})
		routed.Fleet = withdraw.Fleet{ListedAt: now, Bypassed: withdraw.No, Processes: []withdraw.Process{p}}
		seen.Routed["server-1"] = routed
	}
	return left, back
}

// Its selector leaves the replica out, or it is somebody else's router.
func TestAProcessThatNeverListedAReplicaIsNotMadeTo(t *testing.T) {
	p := withdraw.Process{Pod: "r", UID: "r", Run: "1", Told: true, StartedAt: beginning.Add(-time.Hour)}
	left, back := telling(t, p, withdraw.Absent, 20, func(round int, spec *Spec) {
		if round == 4 {
			spec.Wanted, spec.Generation = map[string]int32{"server": 2}, 3
		}
	})
	assert.Empty(t, left)
	assert.Empty(t, back)
}

// One of two is told, and the other never listed the replica.
func TestOnlyWhoWasToldIsToldOtherwise(t *testing.T) {
	spec, status, seen := in(v1alpha1.StateAborted)
	spec.Plan = PlanRouter
	at := metav1.NewMicroTime(beginning.Add(-time.Minute))
	status.Retirement.Targets[0].Routers = []v1alpha1.RetirementRouter{{Pod: "r1", UID: "r1", ToldAt: &at}, {Pod: "r2", UID: "r2"}}
	routed := withdraw.Routed{Fleet: withdraw.Fleet{ListedAt: beginning, Bypassed: withdraw.No}, Sightings: map[types.UID][]withdraw.Sighting{}}
	for _, uid := range []types.UID{"r1", "r2"} {
		routed.Fleet.Processes = append(routed.Fleet.Processes, withdraw.Process{Pod: string(uid), UID: uid, Run: "1", Told: true})
		routed.Sightings[uid] = []withdraw.Sighting{{SentAt: beginning, ReceivedAt: beginning, Run: "1", Answered: true, Membership: withdraw.Absent}}
	}
	seen.Routed = map[types.UID]withdraw.Routed{"u1": routed}
	_, actions := Step(beginning.Add(time.Second), spec, status, seen)
	var back []types.UID
	for _, a := range actions {
		if restore, is := a.(RestoreToRouter); is {
			back = append(back, restore.Process.UID)
		}
	}
	assert.Equal(t, []types.UID{"r1"}, back)
}

func TestHowOftenAProcessIsTold(t *testing.T) {
	p := withdraw.Process{Pod: "r", UID: "r", Run: "1", Told: true, StartedAt: beginning.Add(-time.Hour)}
	drains, refuses := p, p
	drains.Drains, refuses.Drains, refuses.Refused = true, true, "it answers 503"
	for sentence, c := range map[string]struct {
		process withdraw.Process
		least   time.Duration
	}{
		"one that may be told twice":                 {p, TellInterval},
		"one whose drain a second removal would end": {drains, TellDrainInterval},
		"one of those that did not take the first":   {refuses, TellInterval},
	} {
		t.Run(sentence, func(t *testing.T) {
			left, _ := telling(t, c.process, withdraw.Selectable, 11, nil)
			if assert.GreaterOrEqual(t, len(left), 2) {
				assert.GreaterOrEqual(t, left[1]-left[0], c.least)
				assert.LessOrEqual(t, left[1]-left[0], c.least+2*ReadInterval)
			}
		})
	}
}
