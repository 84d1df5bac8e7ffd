package retire

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

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
		if s.marks() && staying(b) && !b.pod.Withdrawn {
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
	reason, closer := s.reachable(t, members, t.PhaseStartedAt.Time)
	until := s.withdrawBy(t, members, closer)
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
func (s *step) withdrawBy(t *v1alpha1.RetirementTarget, members []bound, closer time.Time) time.Time {
	from := t.PhaseStartedAt.Time
	if closer.After(from) {
		from = closer
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

// marks reports whether the plan takes members out of their Services.
func (s *step) marks() bool { return s.spec.Plan != PlanHold }

// reachable is why a new request may still reach a target, empty where evidence from
// after a moment says that none can; and when that was last seen to come closer. Each
// plan has its own evidence, and nothing else here knows of it.
func (s *step) reachable(t *v1alpha1.RetirementTarget, members []bound, after time.Time) (reason string, closer time.Time) {
	switch s.spec.Plan {
	case PlanConnections:
		return s.connectedSince(t, members, after)
	case PlanHold:
	}
	return names.RetireWithdrawalUnobservable, closer
}

// connectedSince is reachable by the connections that are open inside the answering
// member.
func (s *step) connectedSince(t *v1alpha1.RetirementTarget, members []bound, after time.Time) (reason string, closer time.Time) {
	at := slices.IndexFunc(members, func(b bound) bool { return b.Answering })
	if at < 0 {
		return names.HeldAnsweringMemberUnknown, closer
	}
	b := members[at]
	switch {
	case b.pod == nil && s.refilled(t, b):
		return names.HeldAnsweringMemberUnknown, closer
	case !staying(b) || b.pod.Ended:
		return "", closer // there is nobody to connect to
	case b.pod.TakenOver:
		return names.HeldCommandTakenOver, closer
	case b.pod.NodeUnreachable:
		return names.HeldNodeUnreachable, closer
	case b.pod.ContainerID != b.ContainerID:
		return names.HeldContainerRestarted, closer
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
	hold := !s.marks() && (s.spec.Deleting || t.State == v1alpha1.StateWithdrawing)
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
