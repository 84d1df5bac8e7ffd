package retire

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// verdict is what is known of a target's work.
type verdict struct {
	idle bool
	// reason is why it is not idle, in one of names.Held*.
	reason string
	// last is the last read of the answering member; nil where there is none.
	last *Read
	// idleSince is when the present run of idle reads began; zero where the last read
	// was not idle.
	idleSince time.Time
}

// judge says whether a target is proven idle by reads that were started after a
// moment, and asks for the next read. What can be said without one is said first.
func (s *step) judge(t *v1alpha1.RetirementTarget, members []bound, after time.Time) verdict {
	at := slices.IndexFunc(members, func(b bound) bool { return b.Answering })
	if at < 0 {
		return verdict{reason: names.HeldAnsweringMemberUnknown}
	}
	b := members[at]
	switch {
	case b.pod == nil && s.refilled(t, b):
		return verdict{reason: names.HeldAnsweringMemberUnknown}
	case b.pod == nil || b.pod.Ended:
		// Its engine runs no more, so there is nothing in flight.
		return verdict{idle: true}
	case b.pod.TakenOver:
		return verdict{reason: names.HeldCommandTakenOver}
	case b.pod.NodeUnreachable:
		return verdict{reason: names.HeldNodeUnreachable}
	case b.pod.ContainerID != b.ContainerID:
		return verdict{reason: names.HeldContainerRestarted}
	case b.pod.leaving(), !b.pod.Running:
		return verdict{reason: names.HeldReadFailed}
	case b.pod.Refresh == 0:
		return verdict{reason: names.HeldNoGaugeList}
	}
	s.probe(t, b, false)
	v := idleRun(s.seen.Reads[b.UID], b.ContainerID, after, b.pod.Refresh)
	if v.idle {
		// A proof is of what was bound: a member that could hide work ends it.
		if why := cannotProve(members); why != "" {
			return verdict{reason: why, last: v.last, idleSince: v.idleSince}
		}
	}
	return v
}

// refilled reports whether a new Pod is in the slot of a target whose answering
// member is gone: it may be working with what is left of the old ones.
func (s *step) refilled(t *v1alpha1.RetirementTarget, b bound) bool {
	for _, r := range s.seen.Replicas {
		if r.Role == t.Role && r.Ordinal == t.Ordinal {
			return slices.ContainsFunc(r.Members, func(m Member) bool { return m.Name == b.Name && m.UID != b.UID })
		}
	}
	return false
}

// idleRun looks at the reads from the last one backwards. Idle are at least two
// in a row, over at least the time by which the gauges can lag, all of the bound
// container.
func idleRun(reads []Read, containerID string, after time.Time, refresh time.Duration) verdict {
	v := verdict{reason: names.HeldNotReadYet}
	run := 0
	for i := len(reads) - 1; i >= 0; i-- {
		r := &reads[i]
		if r.SentAt.Before(after) || r.ContainerID != containerID {
			break
		}
		if v.last == nil {
			v.last = r
		}
		if r.Started != v.last.Started {
			break // another run of the engine, of which the API server did not know yet
		}
		if r.Verdict != ReadIdle {
			break
		}
		v.idleSince = r.SentAt
		run++
	}
	switch {
	case v.last == nil:
	case v.last.Verdict == ReadBusy:
		v.reason = names.HeldServingRequests
	case v.last.Verdict != ReadIdle:
		v.reason = v.last.Reason
	case run >= IdleReads && v.last.SentAt.Sub(v.idleSince) >= refresh:
		v.idle, v.reason = true, names.RetireIdle
	default:
		v.reason = names.HeldProvingIdle
	}
	return v
}

// record keeps what the last read said, where that is another thing than before or
// a while ago, and reports whether it was.
func (s *step) record(t *v1alpha1.RetirementTarget, v verdict) bool {
	if v.last == nil {
		return false
	}
	if t.ReadAt != nil && v.last.SentAt.Sub(t.ReadAt.Time) < RecordInterval && recorded(t, v) {
		return false
	}
	at := metav1.NewMicroTime(v.last.SentAt)
	t.ReadAt, t.InFlight, t.IdleSince, t.Message = &at, nil, nil, v.last.Message
	if v.last.Verdict != ReadFailed {
		inFlight := v.last.InFlight
		t.InFlight = &inFlight
	}
	if !v.idleSince.IsZero() {
		since := metav1.NewMicroTime(v.idleSince)
		t.IdleSince = &since
	}
	return true
}

// recorded reports whether a target says already what a read said.
func recorded(t *v1alpha1.RetirementTarget, v verdict) bool {
	if t.State == v1alpha1.StateDraining {
		return t.Reason == v.reason
	}
	// The reason is another matter, and not that of the read.
	return (t.InFlight != nil) == (v.last.Verdict != ReadFailed) && (t.IdleSince != nil) == (v.last.Verdict == ReadIdle)
}
