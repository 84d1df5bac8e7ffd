package retire

import (
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// begin admits replicas, in a new operation unless one is under way.
func (s *step) begin(replicas []*Replica) {
	underWay := 0
	for i := range s.targets() {
		if active(&s.operation.Targets[i]) {
			underWay++
		}
	}
	if s.operation != nil {
		s.forget(completed) // said already
	}
	if room := max(min(MaxTargets-underWay, maxListed-len(s.targets())), 0); len(replicas) > room {
		replicas = s.refusedLast(replicas)[:room]
	}
	members := 0
	for i := range s.targets() {
		members += len(s.operation.Targets[i].Members)
	}
	for i, r := range replicas { // a status of all of them has to fit into an object
		if members += len(r.Members); members > MaxMembers && i+underWay > 0 {
			replicas = replicas[:i]
			break
		}
	}
	if len(replicas) == 0 {
		return
	}
	if s.operation == nil {
		s.operation = &v1alpha1.RetirementStatus{}
	}
	if underWay == 0 {
		s.operation.Cause = s.cause(replicas)
		s.operation.Generation = s.spec.Generation
		s.operation.StartedAt, s.operation.Deadline = s.at(), s.deadline()
	}
	if s.fresh == nil {
		s.fresh = map[key]bool{}
	}
	s.wakeNow()
	for _, r := range replicas {
		s.fresh[key{r.Role, r.Ordinal}] = true
		s.operation.Targets = append(s.operation.Targets, s.admit(r))
	}
}

// refusedLast moves those back that are given up as soon as they are admitted: they must
// not take the room of one that can go. A Deletion refuses nobody.
func (s *step) refusedLast(replicas []*Replica) []*Replica {
	if s.spec.Deleting {
		return replicas
	}
	var first, refused []*Replica
	for _, r := range replicas {
		t := s.admit(r)
		if members := s.bound(&t); nothingRuns(members) == "" && cannotProve(members) != "" {
			refused = append(refused, r)
		} else {
			first = append(first, r)
		}
	}
	return append(first, refused...)
}

func (s *step) cause(replicas []*Replica) v1alpha1.RetirementCause {
	if s.spec.Deleting {
		return v1alpha1.CauseDeletion
	}
	for _, r := range replicas {
		if _, there := s.spec.Wanted[r.Role]; there {
			// What was never edited was never lowered, and what this edit lowered is gone.
			again := s.last != nil && s.last.Generation == s.spec.Generation
			switch {
			case again && s.now.Sub(s.last.EndedAt.Time) < RecordInterval:
				return s.last.Cause // the rest of a large batch
			case again, s.spec.Generation <= 1:
				return v1alpha1.CauseSurplus
			}
			return v1alpha1.CauseScaleDown
		}
	}
	return v1alpha1.CauseRoleDropped
}

// admit binds a replica's members, their containers and its Workload.
func (s *step) admit(r *Replica) v1alpha1.RetirementTarget {
	t := v1alpha1.RetirementTarget{Role: r.Role, Ordinal: r.Ordinal, State: v1alpha1.StateAdmitted, PhaseStartedAt: s.at()}
	if r.Workload != nil {
		t.Workload = &v1alpha1.RetirementWorkload{Name: r.Workload.Name, UID: r.Workload.UID}
	}
	answering := answers(r.Members)
	for i := range r.Members {
		m := &r.Members[i]
		t.Members = append(t.Members, v1alpha1.RetirementMember{Name: m.Name, UID: m.UID, ContainerID: m.ContainerID, Answering: i == answering})
		if i == 0 {
			t.Routers = s.told[m.UID] // or nobody would tell them that it is kept in the end
		}
	}
	return t
}

// answers is which member answers for all, -1 where that cannot be said: one Pod
// answers for itself; of several the one with index 0, if they are as many as
// they were created to be and run one engine at one place.
func answers(members []Member) int {
	at := -1
	for i := range members {
		m := &members[i]
		if int(m.Size) != len(members) && m.Size != 0 || m.Size == 0 && len(members) > 1 {
			return -1
		}
		if disagree(m.Engine, members[0].Engine) || disagree(m.Endpoint, members[0].Endpoint) {
			return -1
		}
		if m.Index == 0 || len(members) == 1 {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
	return at
}

// disagree reports whether two members say different things. A worker may say
// nothing: it serves no gauges.
func disagree(a, b string) bool { return a != b && a != "" && b != "" }
