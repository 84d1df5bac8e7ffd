package retire

import (
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// deleting deletes the members. The decision stands, but a proof of idleness is
// about a moment that has passed: a delete that was refused is sent again only on
// a new one.
func (s *step) deleting(t *v1alpha1.RetirementTarget, members []bound) {
	if ranNothing(t) && nothingRuns(members) == "" {
		rebind(members)
		s.to(t, v1alpha1.StateAdmitted, "")
		s.wakeNow()
		return
	}
	if !s.mayDelete(t, members) {
		return
	}
	// In a Deletion a request can still come to one that was read idle: nothing keeps them
	// away, or no proof of that was waited for.
	whole := ranNothing(t) || t.Reason == names.RetireIdle && !s.spec.Deleting
	// The one that answers goes first: were its delete refused after another's was
	// accepted, it could not be proven idle again, and not be kept either.
	first := slices.ContainsFunc(members, func(b bound) bool { return b.Answering && staying(b) })
	if first && len(members) > 1 {
		s.wakeAt(s.now.Add(MarkInterval))
	}
	for _, b := range members {
		if !staying(b) || !b.Answering && (first || !whole && s.drains(members)) {
			continue
		}
		action := DeleteMember{Pod: PodRef{Name: b.Name, UID: b.UID}}
		if ranNothing(t) || first && t.Reason == names.RetireIdle && !s.spec.Deleting {
			// What was seen has to be true still: that nothing runs, that it is marked.
			action.ResourceVersion = b.pod.ResourceVersion
		}
		s.do(action)
	}
	s.wakeAt(s.now.Add(RefusedDelay))
}

// mayDelete reports whether the proof that the decision stands on is still one. It
// is about a moment that has passed: after a delete that was refused, and after a
// restart, it is earned again.
func (s *step) mayDelete(t *v1alpha1.RetirementTarget, members []bound) bool {
	refused := time.Time{}
	for _, b := range members {
		if r, ok := s.seen.Refused[b.UID]; ok && staying(b) && r.At.After(refused) {
			refused, t.Message = r.At, r.Message
		}
	}
	if at := refused.Add(RefusedDelay); !refused.IsZero() && s.now.Before(at) {
		s.wakeAt(at)
		return false
	}
	begun := slices.ContainsFunc(members, func(b bound) bool { return b.Answering && !staying(b) })
	if t.Reason != names.RetireIdle || begun || s.markLost(t, members) {
		return t.State == v1alpha1.StateDeleting
	}
	until := s.looked(members, t.PhaseStartedAt.Add(s.spec.Budgets.Drain))
	if s.spec.Deleting && !s.spec.WaitForIdle && !s.now.Before(until) {
		t.Reason = names.RetireNotProvenAgain
		return true
	}
	rebind(members)
	s.wakeAt(until)
	s.wakeAt(s.now.Add(ReadInterval))
	v := s.judge(t, members, refused)
	if v.idle && v.last == nil {
		return true
	}
	// The reads that the decision was made on go on to this moment, or all of it is
	// proven again.
	same := refused.IsZero() && v.idle && v.idleSince.Before(t.PhaseStartedAt.Time)
	missing := ""
	if !same && !s.spec.Deleting && s.marks() {
		missing, _ = s.reachable(t, members, refused)
	}
	if !v.idle {
		missing = v.reason
	} else if missing == "" && s.now.Sub(v.last.SentAt) > ProofAge {
		missing = names.HeldNotReadYet
	}
	if missing == "" {
		return true
	}
	s.record(t, v)
	t.Message = "not proven idle again: " + missing
	if !s.spec.Deleting && !s.now.Before(until) {
		s.end(t, names.RetireNotProvenAgain) // no delete was accepted, so it can be kept
	}
	return false
}

// rebind binds the engines that run now. A decision to delete is about the Pod:
// what it has started since is out of reach too, and has to prove itself.
func rebind(members []bound) {
	for _, b := range members {
		if b.pod != nil {
			b.ContainerID = b.pod.ContainerID
		}
	}
}

// drains reports whether the leader of several members is still there: what it
// has in flight needs the others, whose own hooks do not wait for it.
func (s *step) drains(members []bound) bool {
	return slices.ContainsFunc(members, func(b bound) bool {
		return b.Answering && b.pod != nil && !b.pod.Ended && (!b.pod.leaving() || s.now.Before(b.pod.LeavingBy.Add(SettleSlack)))
	})
}

// settling waits for the Pods to go, and not for ever: the deletes stand.
func (s *step) settling(t *v1alpha1.RetirementTarget, members []bound) {
	grace := time.Duration(0)
	for _, b := range members {
		if b.pod != nil {
			grace = max(grace, b.pod.Grace)
		}
	}
	until := t.PhaseStartedAt.Add(grace + SettleSlack)
	if !s.now.Before(until) {
		s.to(t, v1alpha1.StateCompleted, names.RetireSettlingOverran)
		return
	}
	s.wakeAt(until)
}
