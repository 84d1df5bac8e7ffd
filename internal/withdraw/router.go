package withdraw

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
)

const (
	// evidenceAge is how old the last word of a process may be, and the list of them.
	evidenceAge = 10 * time.Second
	// recent is how far back dispatches are counted, for people.
	recent = 10 * time.Second
	// clockSkew is how much the clock of a router's node may be ahead of this one.
	clockSkew = 5 * time.Second
)

// Testimony is what the evidence of one process comes to.
type Testimony struct {
	Process Process
	// Missing is what its part of the proof lacks, one of names.Held*; empty where it is
	// whole. Message is what was seen of it.
	Missing, Message string
	// CloserAt is when its part last came closer: it said that it cannot choose the replica
	// and would not by itself, or began to run. Silence does not take that back. Zero where
	// its last word was another one.
	CloserAt time.Time
	// AskedAt is when it was asked last; zero where it never was.
	AskedAt time.Time
	// Dispatches are those of the last seconds.
	Dispatches int64
}

// Prove says whether no process of the router can send the replica another request:
// none can choose it any more, and none holds one that has chosen it. It also returns
// what each of them contributes, in the order of the fleet.
//
// The proof is that of the four facts E0 to E2: the processes are all there are; each
// of them has said itself, after the replica was marked, that it cannot choose it; and
// each is shown to hold nothing in one of six ways. What is in the engine after that is
// the engine's to say.
func (r *Routed) Prove(marked, now time.Time) (Verdict, []Testimony) {
	fleet := &r.Fleet
	switch {
	case fleet.ListedAt.IsZero() && fleet.By == "":
		return Verdict{Missing: names.HeldRouterNotAsked}, nil
	case !fleet.ListedAt.IsZero() && len(fleet.Processes) == 0 && !fleet.ListedAt.Before(marked) && now.Sub(fleet.ListedAt) <= evidenceAge:
		return Verdict{Missing: names.HeldRouterNotFound}, nil
	}
	all := make([]Testimony, 0, len(fleet.Processes))
	for _, p := range fleet.Processes {
		all = append(all, r.testimony(p, marked, now))
	}
	v := conclude(all, now)
	switch {
	case fleet.ListedAt.Before(marked) && now.Sub(fleet.ListedAt) <= evidenceAge:
		return Verdict{Missing: names.HeldRouterNotAsked, QuietAt: v.QuietAt}, nil
	case fleet.ListedAt.IsZero() || now.Sub(fleet.ListedAt) > evidenceAge:
		return Verdict{Missing: names.HeldRouterUnread, Message: cmp.Or(fleet.By, "its Pods were not listed for a while"), QuietAt: v.QuietAt}, nil
	case v.Missing == "" && fleet.Bypassed != No:
		v = Verdict{Missing: names.HeldRouterBypassed, Message: fleet.By}
	}
	v.Proven = v.Missing == ""
	return v, all
}

// conclude is what the testimonies come to together: the first one that lacks
// something, those that can choose the replica before those that only may hold a
// request. The proof came closer when the last of them did.
func conclude(all []Testimony, now time.Time) (v Verdict) {
	order := []string{
		names.HeldRouterSelects, names.HeldRouterUnread, names.HeldRouterNotAsked, names.HeldRouterReturns,
		names.HeldRecentDispatches, names.HeldRouterHolds,
	}
	worst := -1
	if len(all) > 0 {
		v.QuietAt = now
	}
	for i := range all {
		t := &all[i]
		if v.At.IsZero() || t.AskedAt.Before(v.At) {
			v.At = t.AskedAt
		}
		if at := slices.Index(order, t.Missing); at >= 0 && (worst < 0 || at < worst) {
			worst = at
			v.Missing, v.Message = t.Missing, t.Process.Pod+": "+cmp.Or(t.Message, "nothing more is known")
		}
		// One on its way out need not say anything: its end is its part of the proof.
		if t.CloserAt.Before(v.QuietAt) && !now.Before(t.Process.LeavingBy) {
			v.QuietAt = t.CloserAt
		}
	}
	if v.Missing != "" {
		v.At = time.Time{}
	}
	return v
}

// testimony is what one process contributes.
func (r *Routed) testimony(p Process, marked, now time.Time) (t Testimony) {
	t.Process = p
	said := r.said(p, marked)
	if len(said) == 0 {
		t.CloserAt = p.StartedAt
		t.Missing = names.HeldRouterNotAsked
		if p.Run == "" {
			t.Missing, t.Message = names.HeldRouterUnread, "its runs cannot be told from each other"
		}
		return t
	}
	// One answer that does not come takes nothing back: what cannot come back by itself
	// has not. Only an old word is none.
	unknown := said[len(said)-1]
	for len(said) > 1 && !said[len(said)-1].Answered {
		said = said[:len(said)-1]
	}
	last := &said[len(said)-1]
	t.AskedAt, t.Dispatches = last.SentAt, lately(said)
	switch {
	case last.out() && last.Returns == No:
		t.CloserAt = last.SentAt
	case !last.Answered:
		t.CloserAt = p.StartedAt
	}
	switch {
	case now.Sub(last.SentAt) > evidenceAge, last.Membership == MembershipUnknown:
		t.Missing, t.Message = names.HeldRouterUnread, unknown.Why
		return t
	case last.Membership == Selectable:
		t.Missing, t.Message = names.HeldRouterSelects, cmp.Or(p.Refused, dispatched(t.Dispatches))
		return t
	}
	out := trailing(said)
	switch {
	case last.Returns != No:
		t.Missing, t.Message = names.HeldRouterReturns, last.Why
	case r.holdsNothing(p, marked, out):
	case t.Dispatches > 0:
		t.Missing, t.Message = names.HeldRecentDispatches, dispatched(t.Dispatches)
	default:
		t.Missing, t.Message = names.HeldRouterHolds, cmp.Or(bound(last.InFlight), last.Why)
	}
	return t
}

// said is what this run of a process has said since the replica was marked. What it
// said before may still count for the sandwich, and for nothing else.
func (r *Routed) said(p Process, marked time.Time) []Sighting {
	all := r.run(p)
	from := slices.IndexFunc(all, func(s Sighting) bool { return !s.SentAt.Before(marked) })
	if from < 0 {
		return nil
	}
	return all[from:]
}

// Last is what the present run of a process said last, at or after a moment; nil where
// it has said nothing since.
func (r *Routed) Last(p Process, since time.Time) *Sighting {
	all := r.run(p)
	if len(all) == 0 || all[len(all)-1].SentAt.Before(since) {
		return nil
	}
	return &all[len(all)-1]
}

// run is what the present run of a process has said: a counter of another one says
// nothing, and nor does what it could choose.
func (r *Routed) run(p Process) (all []Sighting) {
	var listed *Sighting
	for _, s := range r.Sightings[p.UID] {
		if p.Run == "" || s.Run != p.Run {
			continue
		}
		if s.Membership == Emptied {
			s.Membership = MembershipUnknown
			if listed != nil {
				s.Membership = Absent
			}
		}
		if s.lists() {
			listed = &s
		} else if listed != nil && listed.Window > 0 { // how it sends to the replica it knew while it listed it
			s.Window = min(s.Window, listed.Window)
		}
		all = append(all, s)
	}
	return all
}

// trailing is the end of what a process said in which it could never choose the
// replica, and has not, without answers that did not come. Where it was dispatched to
// again, what was said before is void: the process did not know, or did not tell.
func trailing(said []Sighting) (out []Sighting) {
	last := &said[len(said)-1]
	for i := len(said) - 1; i >= 0; i-- {
		switch s := &said[i]; {
		case !s.Answered:
		case s.out() && sameDispatches(s, last):
			out = append(out, *s)
		default:
			slices.Reverse(out)
			return out
		}
	}
	slices.Reverse(out)
	return out
}

func sameDispatches(a, b *Sighting) bool {
	return a.Dispatches.Known == b.Dispatches.Known && (!a.Dispatches.Known || a.Dispatches.Value == b.Dispatches.Value)
}

// holdsNothing reports whether a process is shown to hold no request for the replica,
// in any of the six ways. out is the end of what it has said, in which it cannot choose
// the replica.
func (r *Routed) holdsNothing(p Process, marked time.Time, out []Sighting) bool {
	return counted(out) || wholeIdle(out) || r.newcomer(p, marked) || waited(out) || r.prefillsIdle(out) || sandwiched(r.run(p))
}

// counted is way (a): a count of the requests that are bound to the replica is 0, when
// whatever had chosen it must be counted.
func counted(out []Sighting) bool {
	return slices.ContainsFunc(out, func(s Sighting) bool {
		return s.InFlight.sound(s.Membership) && s.InFlight.Value == 0 && s.Window > 0 && !s.SentAt.Before(out[0].ReceivedAt.Add(s.Window))
	})
}

// wholeIdle is way (b): the process had no request at all, once, after it could not
// choose the replica any more.
func wholeIdle(out []Sighting) bool {
	return slices.ContainsFunc(out, func(s Sighting) bool {
		late := s.Window
		if s.Whole.BeforeChoice == Yes {
			late = 0
		} else if late <= 0 {
			return false
		}
		return s.Whole.sound(Selectable) && s.Whole.Value == 0 && !s.SentAt.Before(out[0].ReceivedAt.Add(late))
	})
}

// newcomer is way (c): the process began to run after the replica was marked, and never
// could choose it, nor does anybody else hold what another process has chosen. That it did
// not answer yet, or listed nobody yet, is how a process begins.
func (r *Routed) newcomer(p Process, marked time.Time) bool {
	return p.StartedAt.After(marked.Add(clockSkew)) && !slices.ContainsFunc(r.Sightings[p.UID], func(s Sighting) bool {
		begins := !s.Answered || s.Membership == Emptied || s.Membership == Absent
		return s.Run == p.Run && (!begins || s.HeldOutside)
	})
}

// waited is way (d): longer has passed than a request can take from choosing the
// replica to being sent there.
func waited(out []Sighting) bool {
	last := &out[len(out)-1]
	limit := last.Window
	if last.Holds != No {
		limit = last.MostHeld + last.Window
		if last.MostHeld <= 0 {
			return false
		}
	}
	return last.Window > 0 && !last.SentAt.Before(out[0].ReceivedAt.Add(limit))
}

// prefillsIdle is way (e), where a request waits for its prefill: every prefill worker
// was idle twice, further apart than two tries of a request, and then there was time to
// hand on what they had answered.
func (r *Routed) prefillsIdle(out []Sighting) bool {
	last := &out[len(out)-1]
	p := &r.Prefills
	if p.All != Yes || p.Apart <= 0 || last.Window <= 0 {
		return false
	}
	from := out[0].ReceivedAt.Add(last.Window)
	first := slices.IndexFunc(p.IdleAt, func(at time.Time) bool { return !at.Before(from) })
	if first < 0 {
		return false
	}
	until := p.IdleAt[len(p.IdleAt)-1]
	return until.Sub(p.IdleAt[first]) > p.Apart && !last.SentAt.Before(until.Add(last.Window))
}

// sandwiched is way (f), for a count that ends with the membership: 0 twice, with the
// same number of dispatches, which stays the same until the replica is Absent and a
// while after. What had chosen it before the first would be counted at the second or be
// over, and what chose it after would have raised the number. A replica that was Absent
// and came back has lost the count of what was open then.
func sandwiched(said []Sighting) bool {
	last := &said[len(said)-1]
	if last.Membership != Absent || !last.Dispatches.Known || last.Dispatches.AtSelection != Yes || last.Window <= 0 {
		return false
	}
	var first, second, absent *Sighting
	left := false
	for i := range said {
		s := &said[i]
		none := s.InFlight.sound(s.Membership) && s.InFlight.Value == 0 && (!left || s.InFlight.SurvivesRemoval == Yes)
		left = left || s.Membership == Absent
		switch {
		case s.Membership == MembershipUnknown || s.Window <= 0 || !sameDispatches(s, last):
			first, second, absent = nil, nil, nil
		case s.Membership == Absent:
			if second == nil {
				first = nil
			} else if absent == nil {
				absent = s
			}
		case !none:
			first, second, absent = nil, nil, nil
		case first == nil:
			first = s
		case !s.SentAt.Before(first.ReceivedAt.Add(s.Window)):
			second, absent = s, nil
		}
	}
	return absent != nil && !last.SentAt.Before(absent.ReceivedAt.Add(last.Window))
}

// lately is how many dispatches were counted in the last seconds.
func lately(said []Sighting) int64 {
	last := &said[len(said)-1]
	if !last.Dispatches.Known {
		return 0
	}
	for i := range said {
		if s := &said[i]; s.Dispatches.Known && last.SentAt.Sub(s.SentAt) <= recent {
			return int64(max(0, last.Dispatches.Value-s.Dispatches.Value))
		}
	}
	return 0
}

func dispatched(n int64) string {
	if n == 0 {
		return "it can choose the replica"
	}
	return fmt.Sprintf("%d sent to it in the last %s", n, recent)
}

func bound(c Count) string {
	if !c.Known || c.Value == 0 {
		return ""
	}
	return fmt.Sprintf("%d bound to it", c.Value)
}
