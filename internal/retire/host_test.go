package retire

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// host calls Step in a world as doc.go says, through caches that lag and
// connections that fail.
type host struct {
	*world
	bug  string
	skew time.Duration
	seen Observations
	// before is the status as it was before the last write, and cached are Pods as they
	// were a while ago: what a cache may still have.
	before  Status
	cached  []Replica
	wake    time.Time
	due     bool
	reading []reading
	round   *round
	// late is a round of a process that has ended: its write may still arrive.
	late    *round
	acting  []pending
	started map[types.UID]int
	asked   []asking
	askedAt map[types.UID]int
	hurried int
	rounds  int
}

// reading is a read under way: at is when the engine is asked, until when the
// answer is there.
type reading struct {
	Probe
	sent, at, until int
	read            Read
	sample          withdraw.Sample
	dropped         bool
}

// round is one whose status is not written yet.
type round struct {
	spec    Spec
	now     time.Time
	since   time.Time
	version int
	before  Status
	after   Status
	actions []Action
	at      int
}

// pending is an action that was sent and has not arrived yet.
type pending struct {
	Action
	reason   string
	deleting bool
	at       int
}

func newHost(w *world, bug string) *host {
	h := &host{world: w, bug: bug, due: true, started: map[types.UID]int{}, askedAt: map[types.UID]int{}}
	h.cached = w.replicas()
	h.forget()
	return h
}

func (h *host) forget() {
	h.seen = Observations{
		Reads: map[types.UID][]Read{}, Direct: map[types.UID]withdraw.Direct{}, Refused: map[types.UID]Refusal{},
		Routed: map[types.UID]withdraw.Routed{},
	}
	h.reading, h.asked, h.round = nil, nil, nil
	h.seen.Since = h.clock()
	h.wake, h.due, h.hurried = time.Time{}, true, 0
}

// crash is the end of the process. What it has sent may still arrive, and the next
// one has another clock.
func (h *host) crash() {
	h.reached["fault crash"]++
	h.log("the process ends, or believes to lead while another does")
	if h.chance(2) {
		if h.round == nil {
			h.step()
		}
		h.late = h.round
		h.late.at = h.tick + h.random.IntN(4)
	}
	h.skew = time.Duration(h.random.IntN(7)-3) * time.Second
	h.forget()
	if h.chance(2) {
		h.acting = nil
	}
}

// clock is the host's.
func (h *host) clock() time.Time { return h.now().Add(h.skew) }

func (h *host) pass() {
	h.receive()
	h.hear()
	for uid, d := range h.seen.Direct {
		if p := h.byUID(uid); p != nil && p.in>>p.slow&1 == 1 && !d.DroppedAt.IsZero() {
			h.seen.Direct[uid] = withdraw.Direct{In: []string{"all"}}
		}
	}
	h.due = h.due || h.changed
	h.changed = false
	for i := 0; i < len(h.acting); i++ {
		if p := h.acting[i]; p.at <= h.tick {
			h.acting = slices.Delete(h.acting, i, i+1)
			i--
			h.act(p)
		}
	}
	if h.late != nil && h.tick >= h.late.at {
		h.write(h.late)
		h.late = nil
	}
	if h.round != nil && h.tick >= h.round.at {
		h.write(h.round)
		h.round = nil
	}
	woken := !h.wake.IsZero() && !h.clock().Before(h.wake)
	if h.round == nil && (h.due || woken) && (!h.faulty || !h.chance(4)) {
		h.step()
		if h.tick >= h.round.at {
			h.write(h.round)
			h.round = nil
		}
	}
	if h.faulty && h.chance(3) {
		h.cached = h.replicas()
	}
}

// step is a round up to its decision.
func (h *host) step() {
	h.rounds++
	r := &round{spec: h.spec, now: h.clock(), since: h.seen.Since, version: h.version, before: h.status, at: h.tick}
	pods := h.queue(h.replicas())
	if h.faulty && h.chance(3) {
		// A cache shows when there is nothing to do. Where it shows more, or something
		// may be under way, the API server is asked.
		if idle(r.spec, h.before, h.cached) && h.version > 0 {
			r.before, r.version, pods = h.before, h.version-1, h.cached
		}
	}
	if h.bug == "trusts a cached Pod" {
		pods = h.queue(h.cached)
	}
	h.seen.Replicas = pods
	h.seen.Orphaned, h.seen.Foreground, h.seen.NamespaceTerminating = h.orphan, h.foreground, h.namespace
	if h.rounds%32 == 0 {
		h.mustBeFunction(r)
	}
	r.after, r.actions = h.decide(r)
	h.checkRound(r)
	h.wake, h.due = time.Time{}, false
	for _, a := range r.actions {
		if w, ok := a.(WakeAt); ok {
			h.wake = w.Time
		}
	}
	if h.faulty && h.chance(4) {
		r.at += 1 + h.random.IntN(2)
	}
	if h.bug == "acts before it has written" {
		h.send(r)
	}
	h.round = r
}

// read marks a sample of connections that were really read, for checkWithdrawn.
var read = []string{"read"}

// idle reports whether nothing is to be done about what a cache shows.
func idle(spec Spec, status Status, pods []Replica) bool {
	if status.Retirement != nil || spec.Deleting {
		return false
	}
	for _, r := range pods {
		n, there := spec.Wanted[r.Role]
		if !there || r.Ordinal >= n || slices.ContainsFunc(r.Members, func(m Member) bool { return m.Withdrawn }) {
			return false
		}
	}
	return true
}

// write persists the decision of a round, and then acts.
func (h *host) write(r *round) {
	if !reflect.DeepEqual(r.before, r.after) {
		switch {
		case h.tick < h.apiAway:
			h.due = true
			return
		case r.version != h.version && h.bug != "writes in spite of a conflict":
			h.reached["conflict"]++
			h.due = true
			return
		}
		h.checkWrite(r)
		h.before, h.status = h.status, r.after
		h.version++
		h.changed = true
		if h.faulty && h.chance(30) {
			h.round = nil
			h.crash()
			return
		}
	}
	if h.bug != "acts before it has written" {
		h.send(r)
	}
}

// send sends the actions of a round: some are lost, some arrive twice, some late.
func (h *host) send(r *round) {
	for _, a := range r.actions {
		p := pending{Action: a, deleting: r.spec.Deleting, at: h.tick}
		if d, ok := a.(DeleteMember); ok {
			if t := target(r.after, d.Pod.UID); t != nil {
				p.reason = t.Reason
			}
		}
		if !h.faulty {
			h.act(p)
			continue
		}
		switch h.random.IntN(24) {
		case 0:
			continue
		case 1:
			h.act(p)
			p.at++
			h.acting = append(h.acting, p)
		case 2, 3:
			p.at += 1 + h.random.IntN(2)
			h.acting = append(h.acting, p)
		default:
			h.act(p)
		}
	}
}

func (h *host) act(p pending) {
	switch a := p.Action.(type) {
	case Disqualify:
		h.mark(a.Pod, true)
	case Requalify:
		t := target(h.status, a.Pod.UID)
		cancelled := t == nil || t.Reason == names.RetireCancelled
		if h.bug == "leaves the mark after a cancel" && cancelled || h.bug == "leaves the mark on Aborted" && !cancelled {
			return
		}
		h.mark(a.Pod, false)
	case Probe:
		h.probe(a)
	case AskRouter:
		h.askRouter(a)
	case WithdrawFromRouter:
		h.tell(a.Process, a.Pod, true)
	case RestoreToRouter:
		h.tell(a.Process, a.Pod, false)
	case DeleteMember:
		h.delete(a, p)
	case DeleteWorkload:
		h.deleteWorkload(a)
	case ClearRetry:
		if h.spec.RetryToken == a.Token && h.tick >= h.apiAway {
			h.spec.RetryToken = ""
			h.changed = true
		}
	case ReleaseFinalizer:
		h.checkRelease()
		h.released = true
	}
}

// find is the Pod that an action is about.
func (h *host) find(ref PodRef) *pod {
	if h.bug == "acts by name" {
		return h.byName(ref.Name)
	}
	return h.byUID(ref.UID)
}

func (h *host) mark(ref PodRef, withdrawn bool) {
	p := h.find(ref)
	if p == nil || h.tick < max(h.apiAway, h.marksRefused) || p.Withdrawn == withdrawn {
		return
	}
	h.must(!withdrawn || h.everMarked[p.UID], "%s (%s) is marked, which no written operation is about", p.Name, p.UID)
	p.Withdrawn = withdrawn
	p.touch(h.world)
	h.log("%s is marked %t", p.Name, withdrawn)
}

func (h *host) delete(a DeleteMember, sent pending) {
	p := h.find(a.Pod)
	if h.bug == "deletes without a UID" {
		p = h.byName(a.Pod.Name)
	}
	leader := p != nil && p.Index == 0
	switch {
	case p == nil, h.bug == "deletes the leader only" && !leader:
		return
	case a.ResourceVersion != "" && a.ResourceVersion != p.ResourceVersion && h.bug != "deletes what has changed" && h.bug != "deletes without a UID":
		h.refuse(p, "conflict")
	case h.tick < h.apiAway || h.faulty && h.chance(8):
		h.refuse(p, "away")
	case !p.leaving():
		h.checkDelete(p, sent)
		h.log("%s is deleted: %s", p.Name, sent.reason)
		h.leave(p)
	}
}

func (h *host) refuse(p *pod, why string) {
	h.seen.Refused[p.UID] = Refusal{At: h.clock(), Message: why}
	h.reached["refused: "+why]++
	h.log("the delete of %s is refused: %s", p.Name, why)
	h.due = true
	h.flap(p)
}
