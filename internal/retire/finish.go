package retire

import (
	"fmt"
	"slices"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// letGo ends everything: the Pods were asked to be left behind, or all around goes.
func (s *step) letGo() {
	if s.operation == nil {
		return
	}
	reason := names.RetireOrphaned
	if s.seen.NamespaceTerminating {
		reason = names.RetireNamespaceTerminating
	}
	s.conclude(v1alpha1.EndCancelled, reason)
	s.operation = nil
}

// release lets a deleted ModelDeployment go when nothing of it is left to wait
// for. Pods that are left behind serve again first, and nobody would delete a Workload
// after it.
func (s *step) release() {
	if !s.spec.Deleting {
		return
	}
	left, staying, marked, overdue := 0, false, false, true
	for _, r := range s.seen.Replicas {
		for _, m := range r.Members {
			left++
			staying = staying || !m.leaving()
			marked = marked || m.Withdrawn && !m.leaving()
			end := m.LeavingBy.Add(SettleSlack)
			overdue = overdue && m.leaving() && !s.now.Before(end)
			if m.leaving() {
				s.wakeAt(end)
			}
		}
	}
	switch {
	case s.seen.Orphaned && marked && !s.seen.NamespaceTerminating:
	case left == 0, s.seen.Orphaned, s.seen.NamespaceTerminating, s.seen.Foreground && !staying && !s.pending(), overdue:
		s.do(ReleaseFinalizer{})
	}
}

// finish ends an operation when no target of it is under way. What was given up
// stays listed, until somebody asks for it again; what is wanted again is let go
// once it serves.
func (s *step) finish() {
	if s.operation == nil {
		return
	}
	cancelled, done := 0, 0
	reason := ""
	underWay := s.anyActive()
	s.forget(func(t *v1alpha1.RetirementTarget) bool {
		switch {
		case s.given(t):
			return s.emptied(t)
		case aborted(t):
			if !s.serves(t) {
				return false
			}
			cancelled++
			return true
		case completed(t) && !underWay:
			done++
			reason = t.Reason
			return true
		}
		return false
	})
	if underWay {
		return
	}
	given := slices.IndexFunc(s.operation.Targets, func(t v1alpha1.RetirementTarget) bool { return s.given(&t) })
	switch {
	case given < 0 && len(s.operation.Targets) > 0:
		return // what is wanted again is let go once its mark was seen undone
	case given >= 0:
		if s.operation.State != v1alpha1.StateAborted {
			s.conclude(v1alpha1.EndAborted, s.operation.Targets[given].Reason)
		}
		asked := s.spec.RetryToken != "" && s.spec.RetryToken != s.operation.LastConsumedRetryToken
		if asked || s.waiting() > 0 && len(s.operation.Targets) < maxListed {
			s.wakeNow()
		}
		return
	case done > 0:
		s.conclude(v1alpha1.EndCompleted, reason)
	case cancelled > 0:
		s.conclude(v1alpha1.EndCancelled, names.RetireCancelled)
	}
	s.operation = nil
	if len(s.candidates()) > 0 || s.spec.RetryToken != "" {
		s.wakeNow() // what was asked for meanwhile begins now
	}
}

// emptied reports whether nothing is in the slot of a target that was given up,
// and nothing came there for a while. It holds nothing, so a rollout may replace
// its Pods: the new ones are as little to be touched as the old ones were, until
// somebody asks.
func (s *step) emptied(t *v1alpha1.RetirementTarget) bool {
	for i := range s.seen.Replicas {
		r := &s.seen.Replicas[i]
		if r.Role != t.Role || r.Ordinal != t.Ordinal {
			continue
		}
		if !slices.ContainsFunc(s.bound(t), func(b bound) bool { return b.pod != nil }) {
			s.rolled(t, s.admit(r).Members)
		}
		return false
	}
	if len(t.Members) > 0 {
		s.rolled(t, nil)
	}
	until := t.PhaseStartedAt.Add(SettleSlack)
	s.wakeAt(until)
	return !s.now.Before(until)
}

// rolled notes the Pods that a target which was given up has by now.
func (s *step) rolled(t *v1alpha1.RetirementTarget, members []v1alpha1.RetirementMember) {
	*t = v1alpha1.RetirementTarget{
		Role: t.Role, Ordinal: t.Ordinal, State: t.State, PhaseStartedAt: s.at(), Reason: names.RetireMemberReplaced, Members: members,
	}
}

func (s *step) conclude(end v1alpha1.RetirementEnd, reason string) {
	s.last = &v1alpha1.LastRetirement{
		Cause: s.operation.Cause, End: end, Reason: reason, Generation: s.operation.Generation,
		StartedAt: s.operation.StartedAt, EndedAt: s.at(),
	}
}

// order is how far a state is.
var order = []v1alpha1.RetirementState{
	v1alpha1.StateAdmitted, v1alpha1.StateDisqualified, v1alpha1.StateWithdrawing, v1alpha1.StateDraining,
	v1alpha1.StateDeleting, v1alpha1.StateSettling, v1alpha1.StateCompleted, v1alpha1.StateAborted,
}

// summarize gives the operation the state and reason of its least advanced target
// that is under way; without one, of what was given up.
func (s *step) summarize() {
	if s.operation == nil {
		return
	}
	var least *v1alpha1.RetirementTarget
	for i := range s.operation.Targets {
		t := &s.operation.Targets[i]
		if least == nil || slices.Index(order, t.State) < slices.Index(order, least.State) {
			least = t
		}
	}
	if least == nil {
		return
	}
	if s.operation.State != least.State {
		s.operation.State, s.operation.PhaseStartedAt = least.State, s.at()
	}
	s.operation.Reason = least.Reason
	s.operation.Message = s.message(least)
}

// message says what the target does and how much there is.
func (s *step) message(t *v1alpha1.RetirementTarget) string {
	text := fmt.Sprintf("%s-%d", t.Role, t.Ordinal)
	if len(t.Members) > 0 {
		text = t.Members[0].Name
	}
	switch {
	case t.Reason == names.HeldServingRequests && t.InFlight != nil:
		text += ": " + inFlight(*t.InFlight)
	case t.Message != "":
		text += ": " + t.Message
	}
	if n := len(s.operation.Targets); n > 1 {
		text += fmt.Sprintf(" (%d replicas)", n)
	}
	if later := s.waiting(); later > 0 {
		text += fmt.Sprintf("; %d more to be taken away after this", later)
	}
	return text
}

// waiting is how many replicas the next operation will take.
func (s *step) waiting() int {
	n := 0
	for _, r := range s.candidates() {
		if !slices.ContainsFunc(s.operation.Targets, func(t v1alpha1.RetirementTarget) bool { return t.Role == r.Role && t.Ordinal == r.Ordinal }) {
			n++
		}
	}
	return n
}
