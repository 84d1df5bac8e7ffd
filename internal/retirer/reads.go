package retirer

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// Prober reads a member's engine; see probe.Reader.
type Prober interface {
	Read(ctx context.Context, target probe.Target) probe.Result
}

// reads makes the reads that rounds ask for, in the background, and keeps what they
// said. One member is read by one read at a time, and members do not wait for each
// other.
type reads struct {
	prober  Prober
	clients *clients
	clock   clock.WithDelayedExecution
	metrics *metrics
	// wake asks for a round of a ModelDeployment.
	wake func(types.NamespacedName)
	// slots bound how many reads are under way.
	slots slots
	*lead

	mu sync.Mutex
	// members are those of each ModelDeployment that are targets or were lately.
	members map[types.NamespacedName]map[types.UID]*history
}

// history is what is remembered of one member.
type history struct {
	// busy is whether a read is under way or waits for its time, and forgotten whether
	// nobody wants to know any more what it says.
	busy, forgotten bool
	startedAt       time.Time
	reads           []retire.Read
	direct          withdraw.Direct
	refused         *retire.Refusal
	// brief are the node's own connections at the last look; see clientsOf.sample.
	brief connections
	// unheard is closed when a round has taken up what was read last; nil once it has.
	unheard chan struct{}
}

// hear lets the next read begin in the place of the one that was taken up.
func (h *history) hear() {
	if h.unheard != nil {
		close(h.unheard)
		h.unheard = nil
	}
}

// kept is how many reads of a member are remembered: more than any proof needs.
const kept = 64

// atOnce is how many reads are under way or not taken up yet by a round. A proof is about
// a moment that passes: where the API server or the rounds are slow, it is better not to
// read yet than to have read long ago. What waits for its turn is not given up for that.
const atOnce = 16

// request is one read to be made.
type request struct {
	of     types.NamespacedName
	target probe.Target
	// clients is what to look for beside the engine's gauges; nil for nothing.
	clients *clientsOf
	// droppedAt is when the member was seen to have left its Services, perhaps by a
	// process before this one; zero where nobody has seen that.
	droppedAt time.Time
}

// ask makes a read unless one is under way, as soon as the last one is long enough
// ago.
func (r *reads) ask(q request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.member(q.of, q.target.UID)
	h.forgotten = false
	if h.busy {
		return
	}
	wait := h.startedAt.Add(retire.ReadInterval).Sub(r.clock.Now())
	h.busy = r.begin(func(ctx context.Context) {
		if !r.slots.await(ctx, r.clock, wait) {
			return
		}
		defer r.slots.done()
		if r.started(q) {
			unheard := r.read(ctx, q)
			r.wake(q.of)
			r.awaitHeard(ctx, unheard)
		}
	})
}

// awaitHeard waits until a round has taken up what was read, and not for longer than that
// could prove anything.
func (r *reads) awaitHeard(ctx context.Context, unheard chan struct{}) {
	if unheard == nil {
		return
	}
	timer := r.clock.NewTimer(retire.ProofAge)
	defer timer.Stop()
	select {
	case <-unheard:
	case <-timer.C():
	case <-ctx.Done():
	}
}

// started notes the start of a read, unless nobody wants it any more.
func (r *reads) started(q request) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.member(q.of, q.target.UID)
	if h.forgotten {
		r.drop(q.of, q.target.UID)
		return false
	}
	h.startedAt = r.clock.Now()
	return true
}

// read makes one read and keeps what it said, for a round to take up. It returns nil
// where there is nothing to take up.
func (r *reads) read(ctx context.Context, q request) (unheard chan struct{}) {
	var services sightings
	if q.clients != nil {
		services = r.clients.look(ctx, q.clients)
		if !r.looked(q, services) {
			return nil
		}
	}
	result := r.prober.Read(ctx, q.target)
	read := readOf(q.target, result)
	r.metrics.read(read)

	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.member(q.of, q.target.UID)
	if h.forgotten {
		r.drop(q.of, q.target.UID)
		return nil
	}
	h.busy = false
	h.reads = latest(append(h.reads, read))
	h.hear()
	h.unheard = make(chan struct{})
	if q.clients == nil {
		return h.unheard
	}
	var sample withdraw.Sample
	sample, h.brief = q.clients.sample(read, result, services.peers, h.brief)
	sample.Known = sample.Known && services.known
	h.direct.Samples = latest(append(h.direct.Samples, sample))
	return h.unheard
}

// looked keeps which Services have a member, and reports whether it is time to read who
// is connected: before that a read is an exec that counts for nothing.
func (r *reads) looked(q request, services sightings) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.member(q.of, q.target.UID)
	h.direct.In = services.services
	switch {
	case !services.known:
		return true // not to know is not to be dropped, and not to be back either
	case len(services.services) > 0:
		h.direct.DroppedAt = time.Time{}
	case h.direct.DroppedAt.IsZero():
		h.direct.DroppedAt = services.sentAt
	}
	d := h.direct
	if !d.DroppedAt.IsZero() && !q.droppedAt.IsZero() && q.droppedAt.Before(d.DroppedAt) {
		d.DroppedAt = q.droppedAt
	}
	if h.forgotten || d.Counts(r.clock.Now()) {
		return true
	}
	h.busy = false
	return false
}

// readOf is a read in the words of the protocol.
func readOf(target probe.Target, result probe.Result) retire.Read {
	read := retire.Read{
		SentAt: result.SentAt, ReceivedAt: result.ReceivedAt, ContainerID: target.ContainerID, Started: result.Started,
		Reason: result.Reason, Message: result.Message,
	}
	switch result.Verdict {
	case engine.Idle:
		read.Verdict = retire.ReadIdle
	case engine.Busy:
		read.Verdict, read.InFlight = retire.ReadBusy, result.InFlight
	}
	return read
}

// latest keeps what may still be needed, in memory of its own: rounds hold on to
// what they were given.
func latest[T any](all []T) []T { return slices.Clone(all[max(0, len(all)-kept):]) }

// member is what is remembered of one, from now on if nothing was. It needs mu.
func (r *reads) member(of types.NamespacedName, uid types.UID) *history {
	if r.members[of] == nil {
		r.members[of] = map[types.UID]*history{}
	}
	h := r.members[of][uid]
	if h == nil {
		h = &history{}
		r.members[of][uid] = h
	}
	return h
}

// drop removes what is remembered of a member. It needs mu.
func (r *reads) drop(of types.NamespacedName, uid types.UID) {
	if h := r.members[of][uid]; h != nil {
		h.hear()
	}
	delete(r.members[of], uid)
	if len(r.members[of]) == 0 {
		delete(r.members, of)
	}
}

// of is what is known of the members of one ModelDeployment, for a round.
func (r *reads) of(key types.NamespacedName) (map[types.UID][]retire.Read, map[types.UID]withdraw.Direct, map[types.UID]retire.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, direct, refused := map[types.UID][]retire.Read{}, map[types.UID]withdraw.Direct{}, map[types.UID]retire.Refusal{}
	for uid, h := range r.members[key] {
		h.hear()
		all[uid], direct[uid] = h.reads, h.direct
		if h.refused != nil {
			refused[uid] = *h.refused
		}
	}
	return all, direct, refused
}

// refuse remembers that the delete of a member was not accepted, and reports whether
// that is news.
func (r *reads) refuse(of types.NamespacedName, uid types.UID, refusal retire.Refusal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.member(of, uid)
	news := h.refused == nil || h.refused.Message != refusal.Message
	h.refused = &refusal
	return news
}

// keep forgets the members of a ModelDeployment that are no target any more. One
// that is being read is kept until the end of that, so that it is not read twice at
// a time.
func (r *reads) keep(key types.NamespacedName, bound map[types.UID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, h := range r.members[key] {
		switch {
		case bound[uid]:
		case h.busy:
			*h = history{busy: true, forgotten: true, startedAt: h.startedAt}
		default:
			r.drop(key, uid)
		}
	}
}

func (r *reads) forget(key types.NamespacedName) { r.keep(key, nil) }
