package retire

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Step is one round of the protocol. It is total: there is no input for which it
// fails, and it changes nothing that it is given.
func Step(now time.Time, spec Spec, status Status, seen Observations) (Status, []Action) {
	s := &step{now: now.Truncate(time.Microsecond), spec: spec, seen: &seen, last: status.Last, operation: status.Retirement.DeepCopy()}
	if seen.Orphaned || seen.NamespaceTerminating {
		s.letGo()
	} else {
		s.takeOver()
		s.retry()
		s.start()
		s.advance()
		s.restoreAll()
		s.finish()
		s.summarize()
	}
	s.unmark()
	s.workloads()
	s.release()
	if !s.wake.IsZero() {
		s.do(WakeAt{s.wake})
	}
	return Status{Retirement: s.operation, Last: s.last}, s.actions
}

// step is a round under way.
type step struct {
	now       time.Time
	spec      Spec
	seen      *Observations
	operation *v1alpha1.RetirementStatus
	last      *v1alpha1.LastRetirement
	actions   []Action
	wake      time.Time
	// fresh are the targets that were admitted in this round: nothing is done for
	// them before that is persisted.
	fresh map[key]bool
	// told are the processes that were told to leave a member alone, and not yet that
	// they need not, of targets that are off the list and may be on it again.
	told map[types.UID][]v1alpha1.RetirementRouter
}

// key is a slot.
type key struct {
	role    string
	ordinal int32
}

func (s *step) do(a Action) { s.actions = append(s.actions, a) }

// probe asks for the next read of a member, and is one action however many ask.
func (s *step) probe(t *v1alpha1.RetirementTarget, b bound, clients bool) {
	p := Probe{Pod: PodRef{Name: b.Name, UID: b.UID, ContainerID: b.ContainerID}, Clients: clients}
	if clients && t.DroppedAt != nil {
		p.DroppedAt = t.DroppedAt.Time
	}
	s.wakeAt(s.now.Add(ReadInterval))
	for i, a := range s.actions {
		if other, ok := a.(Probe); ok && other.Pod == p.Pod {
			if clients {
				s.actions[i] = p
			}
			return
		}
	}
	s.do(p)
}

// wakeAt asks for a round at a time to come.
func (s *step) wakeAt(at time.Time) {
	if at.After(s.now) && (s.wake.IsZero() || at.Before(s.wake)) {
		s.wake = at
	}
}

func (s *step) at() metav1.MicroTime { return metav1.NewMicroTime(s.now) }

func (s *step) targets() []v1alpha1.RetirementTarget {
	if s.operation == nil {
		return nil
	}
	return s.operation.Targets
}

// active reports whether a target is still on its way.
func active(t *v1alpha1.RetirementTarget) bool {
	return t.State != v1alpha1.StateAborted && t.State != v1alpha1.StateCompleted
}

func aborted(t *v1alpha1.RetirementTarget) bool { return t.State == v1alpha1.StateAborted }

func completed(t *v1alpha1.RetirementTarget) bool { return t.State == v1alpha1.StateCompleted }

// decided reports whether the decision to delete a target stands.
func decided(t *v1alpha1.RetirementTarget) bool {
	return t.State == v1alpha1.StateDeleting || t.State == v1alpha1.StateSettling || t.State == v1alpha1.StateCompleted
}

func (s *step) anyActive() bool {
	for i := range s.targets() {
		if active(&s.operation.Targets[i]) {
			return true
		}
	}
	return false
}

// unwanted reports whether the spec asks for the slot to be empty.
func (s *step) unwanted(k key) bool { return s.spec.Unwanted(k.role, k.ordinal) }

// candidates are the slots to be emptied that have a Pod which stays, the highest
// ordinals first.
func (s *step) candidates() []*Replica {
	var all []*Replica
	for i := range s.seen.Replicas {
		r := &s.seen.Replicas[i]
		stays := slices.ContainsFunc(r.Members, func(m Member) bool { return !m.leaving() })
		if stays && s.unwanted(key{r.Role, r.Ordinal}) {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b *Replica) int {
		return cmp.Or(cmp.Compare(b.Ordinal, a.Ordinal), cmp.Compare(a.Role, b.Role))
	})
	return all
}

// untried are the candidates that are not listed, and those that are: what is asked for
// anew goes before what was tried already, or a list full of those would keep it waiting.
func (s *step) untried() (untried, tried []*Replica) {
	listed := map[key]bool{}
	for _, t := range s.targets() {
		listed[key{t.Role, t.Ordinal}] = true
	}
	for _, r := range s.candidates() {
		if listed[key{r.Role, r.Ordinal}] {
			tried = append(tried, r)
		} else {
			untried = append(untried, r)
		}
	}
	return untried, tried
}

// takeOver makes a running or parked operation a Deletion. What it has decided
// stands; what it has given up begins anew.
func (s *step) takeOver() {
	if !s.spec.Deleting || s.operation == nil {
		return
	}
	s.forget(aborted) // candidates again, see start
	if s.operation.Cause == v1alpha1.CauseDeletion {
		return
	}
	s.operation.Cause = v1alpha1.CauseDeletion
	s.operation.Generation = s.spec.Generation
	s.operation.StartedAt, s.operation.Deadline = s.at(), s.deadline()
	for i := range s.operation.Targets {
		if t := &s.operation.Targets[i]; !decided(t) {
			t.PhaseStartedAt = s.at()
		}
	}
}

// forget takes targets off the list.
func (s *step) forget(which func(t *v1alpha1.RetirementTarget) bool) {
	kept := s.operation.Targets[:0]
	for i := range s.operation.Targets {
		t := &s.operation.Targets[i]
		if !which(t) {
			kept = append(kept, *t)
			continue
		}
		if told := toldOf(t); len(told) > 0 && len(t.Members) > 0 {
			if s.told == nil {
				s.told = map[types.UID][]v1alpha1.RetirementRouter{}
			}
			s.told[t.Members[0].UID] = told
		}
	}
	s.operation.Targets = kept
}

func (s *step) deadline() metav1.MicroTime {
	return metav1.NewMicroTime(s.now.Add(s.spec.Budgets.Total))
}

// retry restarts what was given up, once for each token. The token is recorded
// before its annotation is cleared, so that a crash between the two restarts
// nothing twice.
func (s *step) retry() {
	token := s.spec.RetryToken
	switch {
	case token == "":
	case s.operation == nil || s.operation.LastConsumedRetryToken == token:
		s.do(ClearRetry{token})
	case !s.anyActive():
		s.operation.LastConsumedRetryToken = token
		cause := s.operation.Cause
		untried, tried := s.untried()
		s.forget(s.given)
		s.begin(append(untried, tried...))
		s.operation.Cause = cause // what is asked for again was asked for by then
	}
}

// start begins an operation where replicas are to go and none is under way. A
// removal that is asked for meanwhile waits for its end. What was given up stays
// given up until somebody asks for it again or changes what is to go; it delays
// nobody else.
func (s *step) start() {
	if s.anyActive() && !s.spec.Deleting {
		return
	}
	fresh, tried := s.untried()
	if s.operation != nil && !s.spec.Deleting && s.operation.Generation != s.spec.Generation {
		s.operation.Generation = s.spec.Generation
		back := slices.ContainsFunc(s.operation.Targets, func(t v1alpha1.RetirementTarget) bool { return !s.given(&t) })
		if len(fresh) > 0 || back {
			s.forget(s.given)
			fresh = append(fresh, tried...)
		}
	}
	if len(fresh) > 0 {
		s.begin(fresh)
	}
}

// given reports whether a target was given up and is still to go.
func (s *step) given(t *v1alpha1.RetirementTarget) bool {
	return aborted(t) && s.unwanted(key{t.Role, t.Ordinal})
}

// bound is a member of a target, and its Pod where that is still there.
type bound struct {
	*v1alpha1.RetirementMember
	pod *Member
}

func (s *step) bound(t *v1alpha1.RetirementTarget) (all []bound) {
	for i := range t.Members {
		all = append(all, bound{&t.Members[i], s.pod(t.Members[i].UID)})
	}
	return all
}

func (s *step) pod(uid types.UID) *Member {
	for i := range s.seen.Replicas {
		for j := range s.seen.Replicas[i].Members {
			if m := &s.seen.Replicas[i].Members[j]; m.UID == uid {
				return m
			}
		}
	}
	return nil
}

// unmark gives traffic back to every replica that no target withdraws: what was
// given up or is wanted again, and marks that nobody asks for.
func (s *step) unmark() {
	withdrawn := map[types.UID]bool{}
	for _, t := range s.targets() {
		if t.State == v1alpha1.StateAborted {
			continue
		}
		for _, m := range t.Members {
			withdrawn[m.UID] = true
		}
	}
	for _, r := range s.seen.Replicas {
		for _, m := range r.Members {
			if m.Withdrawn && !m.leaving() && !withdrawn[m.UID] {
				s.do(Requalify{PodRef{Name: m.Name, UID: m.UID}})
				s.wakeAt(s.now.Add(MarkInterval))
			}
		}
	}
}

// serves reports whether no mark is left on a target, and no process that was told to
// leave it alone.
func (s *step) serves(t *v1alpha1.RetirementTarget) bool {
	return len(toldOf(t)) == 0 && !slices.ContainsFunc(s.bound(t), func(b bound) bool { return b.pod != nil && b.pod.Withdrawn && !b.pod.leaving() })
}
