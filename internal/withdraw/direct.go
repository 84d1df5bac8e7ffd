package withdraw

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
)

const (
	// endpointDelay is how long after the EndpointSlices dropped a member a node may
	// still send it new connections: kube-proxy writes its rules at least once a
	// second, and some clients resolve names on their own.
	endpointDelay = 5 * time.Second
	// quiet is how long no connection may be seen.
	quiet = 6 * time.Second
	// quietReads is how many reads that takes at least.
	quietReads = 2
)

// Verdict is what the evidence comes to.
type Verdict struct {
	// Proven is whether no new request can reach the replica any more, and At when
	// the last fact that proves it was asked for.
	Proven bool
	At     time.Time
	// QuietAt is when it was last looked and nobody was connected, since the member
	// was out of its Services for long enough; zero before. The proof comes closer as
	// long as that goes on.
	QuietAt time.Time
	// Pending is whether it lacks nothing but looks that were not made yet: how long that
	// takes says nothing of the replica.
	Pending bool
	// Missing is what the proof lacks, one of names.Held*; empty when proven. Message
	// is what was seen of it.
	Missing, Message string
}

// Sample is one read of the connections to a member's engine port, made inside
// the member. Those from loopback, the node and declared peers are not counted.
type Sample struct {
	SentAt, ReceivedAt time.Time
	// ContainerID is the container the read was made in.
	ContainerID string
	// Known is false where the read failed; Established is how many connections
	// there were, and From the addresses they came from.
	Known       bool
	Established int
	From        []string
}

// Direct is what is seen of a member that clients reach through its Services.
type Direct struct {
	// DroppedAt is when it was first seen that no EndpointSlice has the member, after
	// it was marked; zero while one has it. In are the Services that still do.
	DroppedAt time.Time
	In        []string
	// Samples are in the order they were sent.
	Samples []Sample
}

// Counts reports whether a look at the connections that is made at a moment can count:
// what is connected before can be sent there by a node that does not know better.
func (d Direct) Counts(at time.Time) bool {
	return !d.DroppedAt.IsZero() && !at.Before(d.DroppedAt.Add(endpointDelay))
}

// Prove says whether the member is out of reach: no EndpointSlice has it since it
// was marked, and from a while after that no connection was open in any read.
func (d Direct) Prove(marked time.Time) Verdict {
	if d.DroppedAt.IsZero() {
		return Verdict{
			Missing: names.HeldEndpointsRemain, Message: list("still behind the Service ", d.In),
			Pending: len(d.In) == 0 && len(d.Samples) == 0,
		}
	}
	dropped := d.DroppedAt
	if dropped.Before(marked) {
		dropped = marked
	}
	from := dropped.Add(endpointDelay)
	v := Verdict{Missing: names.HeldConnectionsUnread, QuietAt: d.quietAt(from)}
	newest := len(d.Samples) - 1
	v.Pending = newest < 0 || d.Samples[newest].SentAt.Before(from) || d.Samples[newest].SentAt.Equal(v.QuietAt)
	var first, last Sample
	reads := 0
	for _, s := range slices.Backward(d.Samples) {
		if s.SentAt.Before(from) {
			break
		}
		if s.Known && s.Established > 0 {
			if reads == 0 {
				v.Missing, v.Message = names.HeldConnectionsOpen, fmt.Sprintf("%d open", s.Established)+list(" from ", s.From)
			}
			break
		}
		if !s.Known || reads > 0 && s.ContainerID != last.ContainerID {
			break
		}
		if reads == 0 {
			last = s
		}
		first = s
		reads++
	}
	if reads >= quietReads && last.SentAt.Sub(first.SentAt) >= quiet {
		v.Proven, v.At, v.Missing, v.Pending = true, last.SentAt, "", false
	}
	return v
}

// quietAt is when nobody was connected, in the last look from a moment on that says so.
func (d Direct) quietAt(from time.Time) time.Time {
	for _, s := range slices.Backward(d.Samples) {
		if s.Known && s.Established == 0 && !s.SentAt.Before(from) {
			return s.SentAt
		}
	}
	return time.Time{}
}

// shown is how many names a message lists.
const shown = 5

// list is a few names after what they are; empty without any.
func list(what string, all []string) string {
	switch {
	case len(all) == 0:
		return ""
	case len(all) > shown:
		return fmt.Sprintf("%s%s and %d more", what, strings.Join(all[:shown], ", "), len(all)-shown)
	}
	return what + strings.Join(all, ", ")
}
