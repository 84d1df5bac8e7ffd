package withdraw

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tri is a fact that may not be known.
type Tri uint8

// What a Tri can be. The zero value is unknown.
const (
	Unknown Tri = iota
	Yes
	No
)

// Process is one process of a router: whoever can choose the replica, and hold
// requests for it.
type Process struct {
	Pod string
	UID types.UID
	// Run tells one run of the process from the next; empty where that is not known.
	Run string
	// StartedAt is when the run began; zero where that is not known.
	StartedAt time.Time
	// LeavingBy is when it ends at the latest; zero while it stays.
	LeavingBy time.Time
	// Told is whether it has to be told to leave a replica alone, and told again that it
	// need not. Others follow the replica's labels.
	Told bool
	// Drains is whether what it was told begins a drain, which being told again ends.
	Drains bool
	// Refused is what it answered when it was told last and did not take that; empty where
	// it did. People read it, and it is told again sooner.
	Refused string
}

// Fleet is every process that can send requests to a replica, as it was listed.
type Fleet struct {
	// ListedAt is when the list was asked for; zero where it could not be read, or was not
	// yet.
	ListedAt time.Time
	// Processes are all that have not exited: also those that terminate, are not Ready,
	// or are of an older ReplicaSet.
	Processes []Process
	// Bypassed is whether anything else may choose the replica, as a gateway does that
	// need not ask its router. By says what, or why all this is not known.
	Bypassed Tri
	By       string
}

// Membership is whether a process of a router can choose a replica.
type Membership uint8

const (
	// MembershipUnknown is no answer, or one that may not be whole.
	MembershipUnknown Membership = iota
	// Selectable may be chosen; also where it is unhealthy at the moment, since that
	// ends by itself.
	Selectable
	// Unselectable is registered, and not chosen until somebody acts.
	Unselectable
	// Absent is not in a list that is known to be whole.
	Absent
	// Emptied is in a list that says that it has nobody: Absent where this run has listed it before, and else
	// unknown, since it may not have looked yet.
	Emptied
)

// Count is how many requests are bound to a replica, and what the number means. What
// is unknown of its meaning proves nothing.
type Count struct {
	Known bool
	Value int64
	// BeforeChoice is whether a request counts before a replica is chosen for it; else it
	// does from Sighting.Window after that at most.
	BeforeChoice Tri
	// HeldToEnd is whether it counts until the whole answer was sent on.
	HeldToEnd Tri
	// NeverReset is whether nothing else sets it back while requests are open.
	NeverReset Tri
	// AllPaths is whether every request that can reach the replica is counted.
	AllPaths Tri
	// SurvivesRemoval is whether it is right when the replica is Absent.
	SurvivesRemoval Tri
	// UniqueIDs is whether two live requests never share the id it counts by.
	UniqueIDs Tri
}

// sound reports whether a count of 0 means that no request is bound.
func (c Count) sound(m Membership) bool {
	return c.Known && c.Value >= 0 && c.HeldToEnd == Yes && c.NeverReset == Yes && c.AllPaths == Yes && c.UniqueIDs == Yes &&
		(m != Absent || c.SurvivesRemoval == Yes)
}

// Counter is how often a process has chosen a replica since it began to run.
type Counter struct {
	Known bool
	Value float64
	// AtSelection is whether it counts when the replica is chosen, and not later.
	AtSelection Tri
}

// Sighting is what one process of a router said of a replica at a moment.
type Sighting struct {
	SentAt, ReceivedAt time.Time
	// Run is that of the process that was asked. Answered is whether it said anything: a
	// question without an answer says nothing, and takes nothing back.
	Run        string
	Answered   bool
	Membership Membership
	// InFlight are the requests bound to the replica, Whole all of the process, and
	// Dispatches how often the replica was chosen.
	InFlight, Whole Count
	Dispatches      Counter
	// Window is the longest time from looking for replicas to sending the request to the
	// one that was chosen and to counting it, where nothing holds it longer; zero where
	// that is not known.
	Window time.Duration
	// Holds is whether a request that has chosen the replica can wait for longer than
	// Window before it is sent there, and MostHeld for how long at most; zero where that
	// has no bound.
	Holds    Tri
	MostHeld time.Duration
	// HeldOutside is whether it is not the process that holds one, so that its end does
	// not end that.
	HeldOutside bool
	// Returns is whether the replica would become Selectable again by itself as things
	// are: when the process looks around next, or restarts.
	Returns Tri
	// Why says of each fact that is unknown why, for people.
	Why string
}

// out reports whether the process cannot choose the replica.
func (s *Sighting) out() bool { return s.Membership == Unselectable || s.Membership == Absent }

// lists reports whether the process has the replica on its list.
func (s *Sighting) lists() bool { return s.Membership == Selectable || s.Membership == Unselectable }

// String is all that was said, for people.
func (s *Sighting) String() string {
	says := []string{map[Membership]string{
		MembershipUnknown: "whether it can choose the replica is not known", Selectable: "it can choose the replica",
		Unselectable: "it lists the replica and does not choose it", Absent: "it does not list the replica",
		Emptied: "it lists nobody",
	}[s.Membership]}
	if s.InFlight.Known {
		says = append(says, fmt.Sprintf("it counts %d requests for it", s.InFlight.Value))
	}
	if s.Dispatches.Known {
		says = append(says, fmt.Sprintf("it has chosen it %.0f times", s.Dispatches.Value))
	}
	if s.Why != "" {
		says = append(says, s.Why)
	}
	return strings.Join(says, "; ")
}

// Prefills are the workers that could hand a request on to the replica, where prefill
// and decode are apart and follow each other.
type Prefills struct {
	// All is whether every one of them is meant that a router could pair with it.
	All Tri
	// IdleAt are when all of them were read idle, in the order the reads were sent.
	IdleAt []time.Time
	// Apart is the longest time for which all can look idle between two tries of the
	// same request: the longest wait before another try, and how long gauges lag.
	Apart time.Duration
}

// Routed is what is known of a replica that clients reach through a router.
type Routed struct {
	Fleet Fleet
	// Sightings are what each process said, by the UID of its Pod, in the order they
	// were asked.
	Sightings map[types.UID][]Sighting
	Prefills  Prefills
}
