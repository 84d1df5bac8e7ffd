package cli

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// timeLeft is when the target's state is over at the latest, zero where that has no
// bound, and what happens then.
func (e *explainer) timeLeft(t *v1alpha1.RetirementTarget) (time.Time, string) {
	operation := e.md.Status.Retirement
	deadline := operation.Deadline.Time
	drain, byDefault := budgetOfDrain(e.md)
	then := "then it is given up: it is kept, and serves again"
	if e.md.DeletionTimestamp != nil {
		then = "then it is deleted all the same, through its drain window"
	}
	if e.md.DeletionTimestamp != nil && (t.State == v1alpha1.StateDisqualified || t.State == v1alpha1.StateWithdrawing) {
		then = "then it drains all the same"
	}
	bound := func(phase time.Duration, of string, byDefault bool) (time.Time, string) {
		at := t.PhaseStartedAt.Add(phase)
		// A default that is long over is not this retirer's: its flags say more.
		if deadline.Before(at) || byDefault && e.now.Sub(at) > attention {
			at, of = deadline, "the deadline of the whole retirement"
		} else {
			of = fmt.Sprintf("%s of %s", seconds(phase), of)
		}
		return at, fmt.Sprintf("until %s, %s; %s", e.when(at), of, then)
	}
	switch t.State {
	case v1alpha1.StateAdmitted, v1alpha1.StateDisqualified:
		switch {
		case t.State != v1alpha1.StateDisqualified || !ofRouter(t.Reason):
		case t.Reason == names.HeldRouterReturns && e.md.DeletionTimestamp == nil:
			return bound(max(drain, retire.DefaultWithdraw), "draining, for as long as no process that was told chooses it", byDefault)
		default:
			return bound(retire.DefaultWithdraw, "withdrawal by default, and longer while its engine is busy", true)
		}
		return deadline, fmt.Sprintf("until %s, the deadline of the whole retirement; %s", e.when(deadline), then)
	case v1alpha1.StateWithdrawing:
		return e.withdrawalLeft(t, bound)
	case v1alpha1.StateDraining:
		switch {
		case e.waitsForIdle():
			return time.Time{}, "without bound: it waits until it is idle"
		case byDefault:
			return bound(drain, "draining by default", true)
		}
		return bound(drain, "draining, as spec.retirement.drainSeconds says", false)
	case v1alpha1.StateDeleting:
		if e.md.DeletionTimestamp == nil && t.Reason == names.RetireIdle {
			return bound(drain, "draining, in which a delete has to be accepted", byDefault)
		}
		return time.Time{}, "without bound: what was decided is tried until it succeeds"
	case v1alpha1.StateSettling:
		var grace time.Duration
		for _, p := range e.podsOf(t) {
			grace = max(grace, graceOf(p))
		}
		at := t.PhaseStartedAt.Add(grace + retire.SettleSlack)
		return at, fmt.Sprintf("until %s, its drain window of %s and %s; then it counts as done, whatever is left", e.when(at), seconds(grace), seconds(retire.SettleSlack))
	}
	return time.Time{}, ""
}

// withdrawalLeft is timeLeft of a target that is being withdrawn. A proof that comes
// closer, and an engine that is busy, have the time of draining for that.
func (e *explainer) withdrawalLeft(t *v1alpha1.RetirementTarget, bound func(time.Duration, string, bool) (time.Time, string)) (time.Time, string) {
	drain, byDefault := budgetOfDrain(e.md)
	drain = max(drain, retire.DefaultWithdraw)
	deleted := e.md.DeletionTimestamp != nil
	switch {
	case deleted:
	case t.Reason == names.HeldServingRequests:
		return bound(drain, "draining, which goes on here while it is busy", byDefault)
	case t.Reason == names.HeldRouterHolds, t.Reason == names.HeldRecentDispatches:
		return bound(drain, "draining, for as long as no process can choose it", byDefault)
	case t.Reason == names.HeldConnectionsUnread:
		return bound(retire.DefaultWithdraw, "withdrawal by default, and longer while nobody is seen connected", true)
	case ofRouter(t.Reason):
		return bound(retire.DefaultWithdraw, "withdrawal by default, and longer while its engine is busy", true)
	}
	return bound(retire.DefaultWithdraw, "withdrawal by default", true)
}
