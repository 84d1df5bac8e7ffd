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

// disqualified has the router told, marks the members, and goes on when every mark was
// seen.
func (s *step) disqualified(t *v1alpha1.RetirementTarget, members []bound) {
	if s.spec.Deleting && !s.asks() { // the operation was another one when the target came here
		s.to(t, v1alpha1.StateDraining, "")
		s.draining(t, members)
		return
	}
	until := s.looked(members, s.operation.Deadline.Time)
	if s.asks() {
		reason, closer, told := s.routed(t, members)
		until = s.withdrawBy(t, members, closer)
		if !told && t.Reason != names.RetireMarkLost {
			t.Reason = reason
		}
		if !told && !s.outOfTime(t, until) {
			s.wakeAt(until)
			s.wakeAt(s.now.Add(ReadInterval))
			return
		}
	}
	if s.outOfTime(t, until) {
		s.unwithdrawn(t, members, cmp.Or(t.Reason, names.RetireNotMarked))
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
		if t.MarkedAt == nil {
			at := s.at()
			t.MarkedAt = &at
		}
		s.to(t, v1alpha1.StateWithdrawing, "")
		s.withdrawing(t, members)
		return
	}
	s.wakeAt(s.now.Add(MarkInterval))
}

// unwithdrawn ends the time in which a target had to be withdrawn. A deletion takes all
// the capacity, so there it drains all the same.
func (s *step) unwithdrawn(t *v1alpha1.RetirementTarget, members []bound, reason string) {
	if !s.spec.Deleting {
		s.end(t, reason)
		return
	}
	s.to(t, v1alpha1.StateDraining, reason)
	s.draining(t, members)
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
		at := s.at()
		t.WithdrawnAt = &at
		s.to(t, v1alpha1.StateDraining, "")
		s.draining(t, members)
		return
	case s.spec.Deleting && !s.asks(), s.outOfTime(t, until):
		s.unwithdrawn(t, members, reason)
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
	if s.spec.Deleting { // which has to end in its time, proven or not
		return from.Add(s.spec.Budgets.Withdraw)
	}
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

// stillWithdrawn is since when it is proven that no request can reach a target that
// drains, or why that is not proven any more. What a router says can change until the
// delete: when it chooses the replica again all is void, and what was read before a
// proof that was earned anew is too. Of connections and marks, markLost is enough.
func (s *step) stillWithdrawn(t *v1alpha1.RetirementTarget, members []bound) (since time.Time, reason string) {
	since = t.PhaseStartedAt.Time
	if !s.asks() || s.spec.Deleting {
		return since, ""
	}
	reason, _, _ = s.routed(t, members)
	switch {
	case reason == names.HeldRouterSelects:
		t.WithdrawnAt = nil
		s.to(t, v1alpha1.StateWithdrawing, reason)
		s.wakeAt(s.now.Add(ReadInterval))
	case reason != "":
		t.WithdrawnAt = nil
	case t.WithdrawnAt == nil:
		at := s.at()
		t.WithdrawnAt = &at
	}
	if t.WithdrawnAt != nil && t.WithdrawnAt.After(since) {
		since = t.WithdrawnAt.Time
	}
	return since, reason
}

// marks reports whether the plan takes members out of their Services, and asks whether
// it asks a router.
func (s *step) marks() bool { return s.spec.Plan != PlanHold }
func (s *step) asks() bool  { return s.spec.Plan == PlanRouter }

// reachable is why a new request may still reach a target, empty where evidence from
// after a moment says that none can; and when that was last seen to come closer. Each
// plan has its own evidence, and nothing else here knows of it.
func (s *step) reachable(t *v1alpha1.RetirementTarget, members []bound, after time.Time) (reason string, closer time.Time) {
	switch s.spec.Plan {
	case PlanConnections:
		return s.connectedSince(t, members, after)
	case PlanRouter:
		reason, closer, _ = s.routed(t, members)
		return reason, closer
	case PlanHold:
	}
	return names.RetireWithdrawalUnobservable, closer
}

// answering is the member that answers for a target. Nothing can be learned from it for
// a reason, or nobody is there to send anything to any more.
func (s *step) answering(t *v1alpha1.RetirementTarget, members []bound) (b bound, gone bool, reason string) {
	at := slices.IndexFunc(members, func(b bound) bool { return b.Answering })
	if at < 0 {
		return b, false, names.HeldAnsweringMemberUnknown
	}
	b = members[at]
	switch {
	case b.pod == nil && s.refilled(t, b):
		return b, false, names.HeldAnsweringMemberUnknown
	case !staying(b) || b.pod.Ended:
		return b, true, ""
	case b.pod.TakenOver:
		return b, false, names.HeldCommandTakenOver
	case b.pod.NodeUnreachable:
		return b, false, names.HeldNodeUnreachable
	case b.pod.ContainerID != b.ContainerID:
		return b, false, names.HeldContainerRestarted
	}
	return b, false, ""
}

// connectedSince is reachable by the connections that are open inside the answering
// member.
func (s *step) connectedSince(t *v1alpha1.RetirementTarget, members []bound, after time.Time) (reason string, closer time.Time) {
	b, gone, reason := s.answering(t, members)
	if gone || reason != "" {
		return reason, closer
	}
	s.probe(t, b, true)
	verdict := s.dropped(t, s.seen.Direct[b.UID]).Prove(after)
	v := idleRun(s.seen.Reads[b.UID], b.ContainerID, after, b.pod.Refresh)
	if s.record(t, v) || verdict.Missing != t.Reason {
		t.Message = cmp.Or(verdict.Message, t.Message)
	}
	closer = verdict.QuietAt
	if verdict.Pending {
		closer = s.now
	}
	open := verdict.Missing == names.HeldConnectionsOpen || verdict.Missing == names.HeldConnectionsUnread
	switch {
	case open && v.last != nil && v.last.Verdict == ReadBusy:
		return v.reason, closer // whose connections they are
	case verdict.Missing == names.HeldConnectionsUnread && v.last != nil && v.last.Verdict == ReadFailed:
		return v.reason, closer // why it could not be read says more than that it was not
	}
	return verdict.Missing, closer
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
// was marked, also where the plan is another one by now. In a Deletion it is marked again
// where it is: were it sent back each time, that would never end.
func (s *step) markLost(t *v1alpha1.RetirementTarget, members []bound) bool {
	hold := !s.marks() && (s.spec.Deleting || t.State == v1alpha1.StateWithdrawing)
	lost := !hold && slices.ContainsFunc(members, func(b bound) bool { return staying(b) && !b.pod.Withdrawn })
	if lost && s.spec.Deleting {
		for _, b := range members { // it goes all the same, with nobody sent to it if that can be helped
			if staying(b) && !b.pod.Withdrawn {
				s.do(Disqualify{PodRef{Name: b.Name, UID: b.UID}})
			}
		}
		if t.State == v1alpha1.StateWithdrawing { // what was said meanwhile is about a replica that could be chosen
			at := s.at()
			t.MarkedAt = &at
			s.wakeAt(s.now.Add(MarkInterval))
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
