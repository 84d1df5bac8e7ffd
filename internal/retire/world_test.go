package retire

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// world is what the protocol works in, as it really is: an API server with Pods,
// engines that do requests, clients that send them, and Services between the two.
// It goes on second by second, and all chance in it comes from one seed.
type world struct {
	random *rand.Rand
	tick   int
	// spec is what people ask for, status what the retirer wrote, and version how
	// often.
	spec                          Spec
	orphan, foreground, namespace bool
	status                        Status
	version                       int
	pods                          []*pod
	workloads                     []*workload
	routers                       []*process
	// routed is whether clients come through routers, if there is one at the moment, and
	// ignores whether these do not ask for the mark.
	routed, ignores                 bool
	made                            int
	released                        bool
	apiAway, marksRefused           int // until when the API server refuses writes, or those of marks
	faulty                          bool
	unqueued                        bool // Kueue is not installed
	traffic                         int  // one in so many seconds a client connects
	quiet                           bool
	waitedUntil                     int  // when people had enough of waiting for idle
	changed                         bool // what the host watches changed in this second
	log                             func(format string, args ...any)
	reached                         map[string]int
	everBound, everMarked, everDone map[types.UID]bool
}

// pod is a Pod as the API server has it, and the engine in it as it is.
type pod struct {
	Member
	slot key
	// queued is whether Kueue admits it.
	queued bool
	// run counts the starts of the engine, 0 while it does not run; since is when the
	// last one was.
	run, runs, since int
	// knownAt is when the API server learns of the engine's state.
	knownAt int
	conns   []connection
	// gauge is what the engine serves: the truth of a while ago.
	gauge, gaugeAt int
	noGauges       bool
	// busySince is when the present run of seconds with work began, -1 while there is
	// none.
	busySince int
	// in is whether an EndpointSlice has it, seconds back in its bits, and droppedAt
	// when one had it last.
	in        uint8
	droppedAt int
	slow      uint8 // how many seconds the host hears late of EndpointSlices
	version   int
}

// connection is a client's. Those of declared peers are not counted by whoever
// looks; they end with their request.
type connection struct {
	busyUntil, closesAt int
	peer                bool
	by                  string // the process of a router that sent it
}

func (w *world) chance(one int) bool { return w.random.IntN(one) == 0 }

func (w *world) now() time.Time { return beginning.Add(time.Duration(w.tick) * time.Second) }

var beginning = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func (p *pod) touch(w *world) {
	p.version++
	p.ResourceVersion = strconv.Itoa(p.version)
	w.changed = true
}

func (p *pod) work(tick int) (n int) {
	for _, c := range p.conns {
		if c.busyUntil > tick {
			n++
		}
	}
	return n
}

// established is how many connections a look into the member counts.
func (p *pod) established() (n int) {
	for _, c := range p.conns {
		if !c.peer {
			n++
		}
	}
	return n
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 7)), log: func(string, ...any) {}, reached: map[string]int{}, faulty: true,
		everBound: map[types.UID]bool{}, everMarked: map[types.UID]bool{}, everDone: map[types.UID]bool{},
	}
	w.traffic = 4 + w.random.IntN(40)
	w.spec = Spec{Generation: 1, Plan: []Plan{PlanConnections, PlanConnections, PlanConnections, PlanHold}[w.random.IntN(4)]}
	w.spec.Budgets = Budgets{20 * time.Second, 60 * time.Second, 90 * time.Second}
	if w.chance(4) {
		w.spec.Budgets = Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal}
	}
	w.spec.Wanted = map[string]int32{"a": int32(1 + w.random.IntN(3)), "b": int32(w.random.IntN(3))}
	w.unqueued = w.chance(4)
	w.route()
	w.fill(1)
	w.kueue()
	return w
}

// roles are those that a spec can have, in order: what comes from a map's order
// would not come from the seed.
var roles = []string{"a", "b"}

// fill makes the Pods of slots that should have some, as the operator would.
func (w *world) fill(one int) {
	for _, role := range roles {
		for ordinal := range w.spec.Wanted[role] {
			if !w.spec.Deleting && w.chance(one) {
				w.create(key{role, ordinal})
			}
		}
	}
}

// create makes the Pods of a slot that are not there.
func (w *world) create(slot key) {
	size := int32(1)
	if slot.role == "b" {
		size = 2
	}
	refresh, engine := 6*time.Second, "vllm"
	if slot.role == "a" && slot.ordinal == 1 {
		refresh, engine = 31*time.Second, "sglang"
	}
	for index := range size {
		name := slot.role + "-" + strconv.Itoa(int(slot.ordinal)) + "-" + strconv.Itoa(int(index))
		if slices.ContainsFunc(w.pods, func(p *pod) bool { return p.Name == name }) {
			continue
		}
		w.made++
		p := &pod{slot: slot, busySince: -1, droppedAt: -100, slow: uint8(w.random.IntN(3))}
		p.Member = Member{
			Name: name, UID: types.UID("u" + strconv.Itoa(w.made)), Index: index, Size: size,
			Grace: 30 * time.Second, Refresh: refresh, Engine: engine, Endpoint: "e",
		}
		switch w.random.IntN(120) {
		case 0, 1, 2:
			p.Split = true
		case 3:
			p.TakenOver = true
		case 4:
			p.Refresh = 0
		case 5:
			p.Index = 1 - index // one too many, or none
		case 6:
			p.Endpoint = "elsewhere"
		}
		p.queued = slot.role == "b" && !w.unqueued
		p.touch(w)
		if !w.chance(10) {
			w.startEngine(p, 0)
		}
		w.pods = append(w.pods, p)
	}
	slices.SortFunc(w.pods, func(a, b *pod) int {
		return cmp.Or(cmp.Compare(a.slot.role, b.slot.role), cmp.Compare(a.slot.ordinal, b.slot.ordinal), cmp.Compare(a.Name, b.Name))
	})
}

// startEngine starts an engine; the API server learns of it a while later.
func (w *world) startEngine(p *pod, late int) {
	p.runs++
	p.run, p.since, p.conns, p.knownAt = p.runs, w.tick, nil, w.tick+late
	p.gauge, p.gaugeAt, p.noGauges = 0, 0, w.faulty && w.chance(12)
	if late == 0 {
		w.learn(p)
	}
}

// learn brings the API server up to date with an engine.
func (w *world) learn(p *pod) {
	p.knownAt = -1
	p.Running = p.run > 0
	if p.run > 0 {
		p.ContainerID = string(p.UID) + "/" + strconv.Itoa(p.run)
	}
	p.touch(w)
}

// pass is one second.
func (w *world) pass() {
	w.tick++
	kept := w.pods[:0]
	for _, p := range w.pods {
		if w.live(p) {
			kept = append(kept, p)
		}
	}
	clear(w.pods[len(kept):])
	w.pods = kept
	w.dispatch()
	w.fill(10)
	w.kueue()
}

// live is one second of a Pod. It reports whether the Pod is still there.
func (w *world) live(p *pod) bool {
	if p.knownAt >= 0 && w.tick >= p.knownAt {
		w.learn(p)
	}
	if p.run == 0 && !p.Ended && !p.leaving() && w.chance(15) {
		w.startEngine(p, w.random.IntN(3))
	}
	served := p.in&1 == 1
	should := !p.Withdrawn && p.Running && !p.leaving() && p.Index == 0
	p.in <<= 1
	if served && (should || w.chance(2)) || !served && should && w.chance(2) {
		p.in |= 1
		p.droppedAt = w.tick
	}
	w.clients(p)
	busy := p.work(w.tick)
	switch {
	case busy == 0:
		p.busySince = -1
	case p.busySince < 0:
		p.busySince = w.tick
	}
	if w.tick >= p.gaugeAt && p.Refresh > 0 {
		p.gauge, p.gaugeAt = busy, w.tick+1+w.random.IntN(int(p.Refresh/time.Second)-1)
	}
	if !p.leaving() {
		return true
	}
	ended := p.Ended || busy == 0 && w.chance(6) && !p.NodeUnreachable || !w.faulty && w.now().After(p.LeavingBy)
	if ended && w.holds(p) {
		if !p.Ended {
			p.run, p.conns, p.Ended = 0, nil, true
			w.learn(p)
		}
		return true
	}
	w.changed = w.changed || ended
	return !ended
}

// clients connect while they can, send over what is open, and go in the end. A
// node sends to what the EndpointSlices had 4 s ago, at the latest. An engine loads
// its model for longer than the API server needs to learn that it runs.
func (w *world) clients(p *pod) {
	reachable := !w.routed && p.run > 0 && !p.leaving() && w.tick >= p.since+5 && w.tick < p.droppedAt+4
	if reachable && !w.quiet && w.chance(w.traffic) {
		length := 8
		if w.chance(5) {
			length = 80
		}
		until := w.tick + 1 + w.random.IntN(length)
		p.conns = append(p.conns, connection{busyUntil: until, closesAt: until + w.random.IntN(15), peer: w.chance(3)})
	}
	open := p.conns[:0]
	for _, c := range p.conns {
		idle := c.busyUntil <= w.tick
		if idle && !c.peer && !w.quiet && w.chance(12) {
			c.busyUntil = w.tick + 1 + w.random.IntN(10)
			c.closesAt = c.busyUntil + w.random.IntN(10)
		} else if idle && (c.peer || w.tick >= c.closesAt) {
			continue
		}
		open = append(open, c)
	}
	p.conns = open
}

// replicas are the Pods as the API server has them now.
func (w *world) replicas() []Replica {
	all := make([]Replica, 0, len(w.pods))
	members := make([]Member, 0, len(w.pods))
	for i, p := range w.pods {
		members = append(members, p.Member)
		if i == 0 || w.pods[i-1].slot != p.slot {
			all = append(all, Replica{Role: p.slot.role, Ordinal: p.slot.ordinal})
		}
		r := &all[len(all)-1]
		r.Members = members[len(members)-len(r.Members)-1:]
	}
	return all
}

func (w *world) byUID(uid types.UID) *pod {
	for _, p := range w.pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

func (w *world) byName(name string) *pod {
	for _, p := range w.pods {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// remove takes a Pod away without asking anybody.
func (w *world) remove(p *pod) {
	w.pods = slices.DeleteFunc(w.pods, func(other *pod) bool { return other == p })
	w.kueue()
	w.changed = true
}

// ask changes what people ask for.
func (w *world) ask(format string, args ...any) {
	w.spec.Generation++
	w.changed = true
	w.log("people: "+format, args...)
}

func (k key) String() string { return fmt.Sprintf("%s-%d", k.role, k.ordinal) }
