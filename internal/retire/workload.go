package retire

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// workloads deletes the Kueue Workloads of replicas that leave. Kueue deletes the Pods
// of a Workload that is deleted, busy or not, so it goes only when nothing of its
// replica stays; and it holds the Pods of a group until their Workload is gone, so it
// does go, whoever deleted the Pods, and in a Deletion whichever was bound: there is
// nobody else. No target waits for it.
func (s *step) workloads() {
	for i := range s.seen.Replicas {
		r := &s.seen.Replicas[i]
		if slices.ContainsFunc(r.Members, func(m Member) bool { return !m.leaving() }) {
			continue
		}
		uid, bound := s.boundWorkload(r)
		switch at := s.usedUntil(r); {
		case r.WorkloadUnknown:
		case r.Workload == nil:
			continue
		case bound && r.Workload.UID != uid && !s.spec.Deleting: // another one, perhaps of Pods to come
			continue
		case !bound && s.now.Before(at):
			s.wakeAt(at)
			continue
		default:
			s.do(DeleteWorkload{*r.Workload})
		}
		s.wakeAt(s.now.Add(RefusedDelay)) // nobody tells of Workloads
	}
}

// boundWorkload is the Workload that was bound for a replica which is being retired.
func (s *step) boundWorkload(r *Replica) (uid types.UID, bound bool) {
	for i := range s.targets() {
		t := &s.operation.Targets[i]
		if t.Role == r.Role && t.Ordinal == r.Ordinal && active(t) && t.Workload != nil {
			return t.Workload.UID, true
		}
	}
	return "", false
}

// usedUntil is until when Pods that somebody else deleted, a rollout say, may use what
// Kueue has given them. Where all of a ModelDeployment goes, nothing is counted so
// closely: nobody would be left to delete the Workload.
func (s *step) usedUntil(r *Replica) (at time.Time) {
	for i := range r.Members {
		m := &r.Members[i]
		if used := m.ContainerID != "" && !m.Ended && !s.spec.Deleting; used && m.LeavingBy.After(at) {
			at = m.LeavingBy
		}
	}
	return at
}

// pending reports whether a Workload is to be deleted in this round.
func (s *step) pending() bool {
	return slices.ContainsFunc(s.actions, func(a Action) bool { _, is := a.(DeleteWorkload); return is })
}
