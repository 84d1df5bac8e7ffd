package retire

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
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
		if state == v1alpha1.StateDisqualified {
			t.DroppedAt = nil // it was marked before, and is not any more
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
	case s.spec.Deleting:
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

// disqualified marks the members, and goes on when every mark was seen.
func (s *step) disqualified(t *v1alpha1.RetirementTarget, members []bound) {
	if s.spec.Deleting { // the operation was another one when the target came here
		s.to(t, v1alpha1.StateDraining, "")
		s.draining(t, members)
		return
	}
	if s.outOfTime(t, s.looked(members, s.operation.Deadline.Time)) {
		s.end(t, cmp.Or(t.Reason, names.RetireNotMarked))
		return
	}
	marked := true
	for _, b := range members {
		if s.spec.Plan != PlanHold && staying(b) && !b.pod.Withdrawn {
			marked = false
			s.do(Disqualify{PodRef{Name: b.Name, UID: b.UID}})
		}
	}
	if marked {
		s.to(t, v1alpha1.StateWithdrawing, "")
		s.withdrawing(t, members)
		return
	}
	s.wakeAt(s.now.Add(MarkInterval))
}

// withdrawing waits for the proof that nothing can choose the members any more.
func (s *step) withdrawing(t *v1alpha1.RetirementTarget, members []bound) {
	if s.markLost(t, members) {
		return
	}
	reason, quietAt := names.RetireWithdrawalUnobservable, time.Time{}
	if s.spec.Plan == PlanConnections {
		reason, quietAt = s.connectedSince(t, members, t.PhaseStartedAt.Time)
	}
	until := s.withdrawBy(t, members, quietAt)
	switch {
	case reason == "":
		s.to(t, v1alpha1.StateDraining, "")
		s.draining(t, members)
		return
	case s.spec.Deleting: // the operation was another one when the target came here
		s.to(t, v1alpha1.StateDraining, reason)
		s.draining(t, members)
		return
	case s.outOfTime(t, until):
		s.end(t, reason)
		return
	}
	t.Reason = reason
	s.wakeAt(until)
	s.wakeAt(s.now.Add(ReadInterval))
}

// withdrawBy is when a target is given up that is being withdrawn: when nothing was
// seen to become better for the time of withdrawal. A request that is under way keeps
// its connection: as long as the engine is busy, what goes on is draining, and has the
// time of it. So has a proof that comes closer, however slowly a busy node reads.
func (s *step) withdrawBy(t *v1alpha1.RetirementTarget, members []bound, quietAt time.Time) time.Time {
	from := t.PhaseStartedAt.Time
	if quietAt.After(from) {
		from = quietAt
	}
	if t.ReadAt != nil && t.InFlight != nil && *t.InFlight > 0 && t.ReadAt.After(from) {
		from = t.ReadAt.Time
	}
	for _, b := range members {
		for _, r := range slices.Backward(s.seen.Reads[b.UID]) {
			if r.Verdict == ReadBusy && r.ContainerID == b.ContainerID && r.SentAt.After(from) {
				from = r.SentAt
				break
			}
		}
	}
	draining := t.PhaseStartedAt.Add(max(s.spec.Budgets.Drain, s.spec.Budgets.Withdraw))
	return s.looked(members, earlier(earlier(from.Add(s.spec.Budgets.Withdraw), draining), s.operation.Deadline.Time))
}

// looked puts off when a target is given up, for a process that came in the middle
// and has not looked for long enough: time that passed while nobody looked says
// nothing, and what is given up stays so until somebody asks. The times of a deletion
// stand.
func (s *step) looked(members []bound, until time.Time) time.Time {
	if s.spec.Deleting || s.seen.Since.IsZero() {
		return until
	}
	lag := time.Duration(0)
	for _, b := range members {
		if b.pod != nil {
			lag = max(lag, b.pod.Refresh)
		}
	}
	if by := s.seen.Since.Add(s.spec.Budgets.Withdraw + lag); by.After(until) {
		return by
	}
	return until
}

// connectedSince is why clients may still reach a target, empty where evidence from
// after a moment says that none can; and when that was last seen to come closer.
func (s *step) connectedSince(t *v1alpha1.RetirementTarget, members []bound, after time.Time) (reason string, quietAt time.Time) {
	at := slices.IndexFunc(members, func(b bound) bool { return b.Answering })
	if at < 0 {
		return names.HeldAnsweringMemberUnknown, quietAt
	}
	b := members[at]
	switch {
	case b.pod == nil && s.refilled(t, b):
		return names.HeldAnsweringMemberUnknown, quietAt
	case !staying(b) || b.pod.Ended:
		return "", quietAt // there is nobody to connect to
	case b.pod.TakenOver:
		return names.HeldCommandTakenOver, quietAt
	case b.pod.NodeUnreachable:
		return names.HeldNodeUnreachable, quietAt
	case b.pod.ContainerID != b.ContainerID:
		return names.HeldContainerRestarted, quietAt
	}
	s.probe(b, true)
	verdict := s.dropped(t, s.seen.Direct[b.UID]).Prove(after)
	v := idleRun(s.seen.Reads[b.UID], b.ContainerID, after, b.pod.Refresh)
	if s.record(t, v) || verdict.Missing != t.Reason {
		t.Message = cmp.Or(verdict.Message, t.Message)
	}
	open := verdict.Missing == names.HeldConnectionsOpen || verdict.Missing == names.HeldConnectionsUnread
	switch {
	case open && v.last != nil && v.last.Verdict == ReadBusy:
		return v.reason, verdict.QuietAt // whose connections they are
	case verdict.Missing == names.HeldConnectionsUnread && v.last != nil && v.last.Verdict == ReadFailed:
		return v.reason, verdict.QuietAt // why it could not be read says more than that it was not
	}
	return verdict.Missing, verdict.QuietAt
}

// dropped notes when a target has left its Services, so that another process need
// not wait anew for what follows from that.
func (s *step) dropped(t *v1alpha1.RetirementTarget, seen withdraw.Direct) withdraw.Direct {
	switch {
	case len(seen.In) > 0:
		t.DroppedAt = nil
	case seen.DroppedAt.IsZero() && t.DroppedAt == nil: // nobody has looked yet
	case t.DroppedAt == nil || !seen.DroppedAt.IsZero() && t.DroppedAt.After(seen.DroppedAt):
		at := metav1.NewMicroTime(seen.DroppedAt.Truncate(time.Microsecond))
		t.DroppedAt = &at
	default:
		seen.DroppedAt = t.DroppedAt.Time
	}
	return seen
}

// markLost sends a target back whose mark somebody removed. What came to Draining
// was marked, also where the plan is another one by now.
func (s *step) markLost(t *v1alpha1.RetirementTarget, members []bound) bool {
	hold := s.spec.Plan == PlanHold && (s.spec.Deleting || t.State == v1alpha1.StateWithdrawing)
	lost := !hold && slices.ContainsFunc(members, func(b bound) bool { return staying(b) && !b.pod.Withdrawn })
	if lost && s.spec.Deleting && t.State != v1alpha1.StateWithdrawing {
		for _, b := range members { // it goes all the same, with nobody sent to it if that can be helped
			if staying(b) && !b.pod.Withdrawn {
				s.do(Disqualify{PodRef{Name: b.Name, UID: b.UID}})
			}
		}
		return false
	}
	if lost {
		reason := names.RetireMarkLost
		if t.Reason == names.RetireWithdrawalUnobservable {
			reason = "" // there was none under the plan as it was
		}
		s.to(t, v1alpha1.StateDisqualified, reason)
		s.disqualified(t, members)
		return true
	}
	return false
}

// draining reads the answering member until it is proven idle.
func (s *step) draining(t *v1alpha1.RetirementTarget, members []bound) {
	if s.markLost(t, members) {
		return
	}
	if s.spec.Deleting && s.spec.WaitForIdle {
		rebind(members) // or a restart would be waited for without bound
	}
	verdict := s.judge(t, members, t.PhaseStartedAt.Time)
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
