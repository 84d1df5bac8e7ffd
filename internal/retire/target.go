package retire

import (
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// advance takes every target as far as it goes now.
func (s *step) advance() {
	for i := range s.targets() {
		t := &s.operation.Targets[i]
		if active(t) && !s.fresh[key{t.Role, t.Ordinal}] {
			s.target(t)
		}
	}
}

func (s *step) target(t *v1alpha1.RetirementTarget) {
	members := s.bound(t)
	if !slices.ContainsFunc(members, func(b bound) bool { return b.pod != nil }) {
		s.to(t, v1alpha1.StateCompleted, gone(t))
		return
	}
	// A decision that came to nothing so far, because deletes are refused, is void too.
	undone := t.State == v1alpha1.StateDeleting && !slices.ContainsFunc(members, func(b bound) bool { return !staying(b) })
	if (!decided(t) || undone) && !s.unwanted(key{t.Role, t.Ordinal}) {
		s.to(t, v1alpha1.StateAborted, names.RetireCancelled)
		return
	}
	if !slices.ContainsFunc(members, staying) && t.State != v1alpha1.StateSettling {
		s.to(t, v1alpha1.StateSettling, settlingReason(t))
	}
	switch t.State {
	case v1alpha1.StateAdmitted:
		s.admitted(t, members)
	case v1alpha1.StateDisqualified:
		s.disqualified(t, members)
	case v1alpha1.StateWithdrawing:
		s.withdrawing(t, members)
	case v1alpha1.StateDraining:
		s.draining(t, members)
	case v1alpha1.StateDeleting:
		s.deleting(t, members)
	case v1alpha1.StateSettling:
		s.settling(t, members)
	default: // a state of another version: what cannot be told is kept, if anything is
		s.end(t, names.RetireStateUnknown)
	}
}

func staying(b bound) bool { return b.pod != nil && !b.pod.leaving() }

// gone is why a target without Pods has ended: its own delete, or somebody else's.
func gone(t *v1alpha1.RetirementTarget) string {
	if decided(t) {
		return t.Reason
	}
	return names.RetireMemberReplaced
}

// settlingReason keeps why the members were deleted, if it was us who did it.
func settlingReason(t *v1alpha1.RetirementTarget) string {
	if t.State == v1alpha1.StateDeleting {
		return t.Reason
	}
	return names.RetireMemberReplaced
}

// to moves a target into a state. The reason changes alone within one.
func (s *step) to(t *v1alpha1.RetirementTarget, state v1alpha1.RetirementState, reason string) {
	if t.State != state {
		t.State, t.PhaseStartedAt = state, s.at()
		if state != v1alpha1.StateAborted { // what held it back is what people look for
			t.Message = ""
		}
		if state == v1alpha1.StateDisqualified { // it was marked before, and is not any more
			t.DroppedAt, t.MarkedAt, t.WithdrawnAt = nil, nil, nil
		}
	}
	t.Reason = reason
}

// admitted is persisted: nothing was done yet. What can never be proven is not
// even begun, and what does not run has nothing to drain.
func (s *step) admitted(t *v1alpha1.RetirementTarget, members []bound) {
	idle := nothingRuns(members)
	refused := cannotProve(members)
	switch {
	case idle != "":
		s.to(t, v1alpha1.StateDeleting, idle)
		s.wakeNow()
	case s.spec.Deleting && slices.ContainsFunc(members, takenOver):
		s.to(t, v1alpha1.StateDeleting, names.HeldCommandTakenOver)
		s.wakeNow()
	case !s.spec.Deleting && refused != "":
		s.to(t, v1alpha1.StateAborted, refused)
	case s.spec.Deleting && !s.asks():
		// All the capacity goes, so where clients come from need not be known.
		s.to(t, v1alpha1.StateDraining, "")
		s.draining(t, members)
	default:
		s.to(t, v1alpha1.StateDisqualified, "")
		s.disqualified(t, members)
	}
}

func takenOver(b bound) bool { return b.pod != nil && b.pod.TakenOver }

// nothingRuns is why a target has nothing to drain; empty where an engine runs. A
// container that is between two starts counts, and one that is loading its model: its
// delete goes with the Pod's resourceVersion, and so only while that is still true.
func nothingRuns(members []bound) string {
	reason := names.RetireNeverStarted
	for _, b := range members {
		switch {
		case b.pod == nil || b.pod.ContainerID == "":
		case b.pod.Running && !b.pod.Ended && !b.pod.Starting || b.pod.NodeUnreachable:
			return ""
		default:
			reason = names.RetireNotRunning
		}
	}
	return reason
}

// ranNothing reports whether a target is deleted because nothing of it ran.
func ranNothing(t *v1alpha1.RetirementTarget) bool {
	return t.Reason == names.RetireNeverStarted || t.Reason == names.RetireNotRunning
}

// cannotProve is why no read of a target could ever prove it idle; empty where
// one could.
func cannotProve(members []bound) string {
	for _, b := range members {
		switch {
		case b.pod == nil || b.pod.TakenOver:
		case b.pod.Split:
			return names.HeldPrefillDecode
		case b.Answering && b.pod.Engine != "" && b.pod.Refresh == 0:
			return names.HeldNoGaugeList
		}
	}
	return ""
}

// draining reads the answering member until it is proven idle.
func (s *step) draining(t *v1alpha1.RetirementTarget, members []bound) {
	if s.markLost(t, members) {
		return
	}
	if s.spec.Deleting && s.spec.WaitForIdle { // which has no bound
		if idle := nothingRuns(members); idle != "" { // a crash loop is never read idle
			s.to(t, v1alpha1.StateDeleting, idle)
			s.wakeNow()
			return
		}
		rebind(members)
	}
	after, reachable := s.stillWithdrawn(t, members)
	if t.State != v1alpha1.StateDraining {
		return
	}
	verdict := s.judge(t, members, after)
	if reachable != "" {
		verdict.idle, verdict.reason = false, reachable
	}
	s.record(t, verdict)
	if verdict.idle {
		s.to(t, v1alpha1.StateDeleting, names.RetireIdle)
		s.wakeNow()
		return
	}
	t.Reason = verdict.reason
	until := t.PhaseStartedAt.Add(s.spec.Budgets.Drain)
	if !s.spec.Deleting { // the deadline of a deletion is that of its first batch
		until = s.looked(members, earlier(until, s.operation.Deadline.Time))
	}
	if s.outOfTime(t, until) {
		s.end(t, verdict.reason)
		return
	}
	// Also where there is nothing to read: what holds the target may pass.
	s.wakeAt(s.now.Add(ReadInterval))
	if !s.spec.WaitForIdle || !s.spec.Deleting {
		s.wakeAt(until)
	}
}

// end gives a target up that ran out of time: it is kept and serves again, or in a
// Deletion it is deleted through its drain window.
func (s *step) end(t *v1alpha1.RetirementTarget, reason string) {
	if s.spec.Deleting {
		s.to(t, v1alpha1.StateDeleting, reason)
		s.wakeNow()
		return
	}
	s.to(t, v1alpha1.StateAborted, reason)
	s.actions = slices.DeleteFunc(s.actions, func(a Action) bool { // it is not read any more
		p, ok := a.(Probe)
		return ok && slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return m.UID == p.Pod.UID })
	})
}

// outOfTime reports whether a moment has passed, for a target that has one.
func (s *step) outOfTime(t *v1alpha1.RetirementTarget, at time.Time) bool {
	unbounded := s.spec.Deleting && s.spec.WaitForIdle && t.State == v1alpha1.StateDraining
	return !unbounded && !s.now.Before(at)
}

// wakeNow asks for the next round as soon as this one is persisted.
func (s *step) wakeNow() { s.wakeAt(s.now.Add(time.Millisecond)) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func inFlight(n int64) string { return fmt.Sprintf("%d in flight", n) }
