package retire

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// process is one of a router in front of the world's engines, as it really is.
type process struct {
	name string
	// run counts its starts, and since is when the last one was.
	run, since int
	// told is one that learns of Pods and never of their labels again; another one
	// follows the labels, slow seconds late.
	told bool
	slow int
	// window is how many seconds a request can wait for at most before it is sent on,
	// and holds whether it can wait for much longer. counts is whether it can be asked how
	// many requests are bound to a Pod.
	window        int
	holds, counts bool
	// drains is for how many seconds it keeps on its list what it was told to leave alone,
	// if it was not told twice, and counts for that only meanwhile; 0 where it does not.
	// resets is whether its count is 0 whatever is bound, as it may say itself.
	drains int
	resets bool
	// draining is until when Pods are on its list for that.
	draining map[types.UID]int
	// lists are the Pods that it may choose, and known those that it has learned of.
	lists, known map[types.UID]bool
	// eligible is whether it would list a Pod, seconds back in its bits.
	eligible    map[types.UID]uint8
	held        []held
	picks       map[types.UID]int
	silentUntil int
}

// held is a request that has chosen a Pod and is not sent yet.
type held struct {
	uid    types.UID
	sendAt int
}

// route puts a router in front of the engines, in one of three worlds.
func (w *world) route() {
	if !w.chance(3) {
		return
	}
	w.spec.Plan, w.routed, w.ignores = PlanRouter, true, w.chance(6)
	for range 1 + w.random.IntN(2) {
		w.addProcess()
	}
}

func (w *world) addProcess() {
	w.made++
	p := &process{
		name: "router-" + strconv.Itoa(w.made), told: w.chance(2), slow: w.random.IntN(3), window: 1 + w.random.IntN(15),
		holds: w.chance(4), counts: w.chance(2), resets: w.chance(3),
	}
	if p.told && w.chance(2) {
		p.drains = 8 + w.random.IntN(20)
	}
	w.routers = append(w.routers, p)
	w.start(p)
}

// start is a new run: nothing is left of the one before, its requests neither.
func (w *world) start(p *process) {
	p.run, p.since, p.held = p.run+1, w.tick, nil
	p.eligible, p.draining = map[types.UID]uint8{}, map[types.UID]int{}
	p.lists, p.known, p.picks = map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]int{}
	w.discover(p)
}

// discover is what a process sees of the Pods.
func (w *world) discover(p *process) {
	there := map[types.UID]bool{}
	for _, pod := range w.pods {
		there[pod.UID] = !pod.leaving()
		eligible := pod.Running && !pod.leaving() && (!pod.Withdrawn || w.ignores) && pod.Index == 0
		p.eligible[pod.UID] = p.eligible[pod.UID]<<1 | map[bool]uint8{true: 1}[eligible]
		switch {
		case !p.told:
			p.lists[pod.UID] = p.eligible[pod.UID]>>p.slow&1 == 1
		case eligible && !p.known[pod.UID], eligible && !p.lists[pod.UID] && w.faulty && w.chance(20): // it looks around
			p.known[pod.UID], p.lists[pod.UID] = true, true
		}
	}
	for _, pod := range w.pods {
		if !there[pod.UID] {
			delete(p.lists, pod.UID)
		}
	}
}

// dispatch is one second of the routers: they learn, choose, hold and send.
func (w *world) dispatch() {
	for _, p := range w.routers {
		w.discover(p)
		var listed []*pod
		for _, pod := range w.pods {
			if p.lists[pod.UID] {
				listed = append(listed, pod)
			}
		}
		if len(listed) > 0 && !w.quiet && w.chance(w.traffic) {
			chosen := listed[w.random.IntN(len(listed))]
			wait := w.random.IntN(p.window)
			if p.holds {
				wait = w.random.IntN(40)
			}
			p.picks[chosen.UID]++
			p.held = append(p.held, held{chosen.UID, w.tick + wait})
		}
		open := p.held[:0]
		for _, h := range p.held {
			if h.sendAt > w.tick {
				open = append(open, h)
				continue
			}
			if pod := w.byUID(h.uid); pod != nil && pod.run > 0 && !pod.leaving() && w.tick >= pod.since+5 { // or it is loading
				until := w.tick + 1 + w.random.IntN(20)
				pod.conns = append(pod.conns, connection{busyUntil: until, closesAt: until, peer: true, by: p.name})
			}
		}
		p.held = open
	}
}

// holding is how many requests have chosen a Pod and are not sent yet.
func (w *world) holding(uid types.UID) (n int) {
	for _, p := range w.routers {
		for _, h := range p.held {
			if h.uid == uid {
				n++
			}
		}
	}
	return n
}

// bound is how many requests of a process are bound to a Pod: held, or being answered.
func (w *world) bound(p *process, pod *pod) (n int64) {
	for _, h := range p.held {
		if h.uid == pod.UID {
			n++
		}
	}
	for _, c := range pod.conns {
		if c.by == p.name && c.busyUntil > w.tick {
			n++
		}
	}
	return n
}

func (w *world) processByName(name string) *process {
	for _, p := range w.routers {
		if p.name == name {
			return p
		}
	}
	return nil
}

// unsettle is what routers do of their own.
func (w *world) unsettle() {
	if !w.routed {
		return
	}
	if len(w.routers) == 0 {
		w.addProcess()
		return
	}
	p := w.routers[w.random.IntN(len(w.routers))]
	switch w.random.IntN(8) {
	case 0:
		w.log("%s restarts", p.name)
		w.reached["fault router restarts"]++
		w.start(p)
	case 1, 2:
		p.silentUntil = w.tick + 2 + w.random.IntN(20)
		w.log("%s is silent", p.name)
		w.reached["fault router silent"]++
	case 3:
		if len(w.routers) < 3 {
			w.addProcess()
			w.reached["fault router added"]++
		}
	case 4:
		w.log("%s ends", p.name)
		w.routers = slices.DeleteFunc(w.routers, func(other *process) bool { return other == p })
		w.reached["fault router ends"]++
	}
}

// asking is a question to every process about a Pod: asked a second later, and answered
// a while after that.
type asking struct {
	PodRef
	sentAt    time.Time
	at, until int
	fleet     withdraw.Fleet
	said      map[types.UID]withdraw.Sighting
}

func (h *host) askRouter(a AskRouter) {
	last, ok := h.askedAt[a.Pod.UID]
	if ok && h.tick < last+int(ReadInterval/time.Second) || slices.ContainsFunc(h.asked, func(q asking) bool { return q.UID == a.Pod.UID }) {
		return
	}
	h.askedAt[a.Pod.UID] = h.tick
	q := asking{PodRef: a.Pod, sentAt: h.clock(), at: h.tick + 1, until: h.tick + 1, said: map[types.UID]withdraw.Sighting{}}
	q.fleet = withdraw.Fleet{ListedAt: q.sentAt, Bypassed: withdraw.No}
	for _, p := range h.routers {
		q.fleet.Processes = append(q.fleet.Processes, h.processOf(p))
	}
	if h.faulty && h.chance(4) {
		q.until += h.random.IntN(3)
	}
	h.asked = append(h.asked, q)
}

func (h *host) processOf(p *process) withdraw.Process {
	return withdraw.Process{
		Pod: p.name, UID: types.UID(p.name), Run: strconv.Itoa(p.run), Told: p.told, Drains: p.drains > 0,
		StartedAt: h.clock().Add(time.Duration(p.since-h.tick) * time.Second),
	}
}

// hear goes on with the questions under way.
func (h *host) hear() {
	open := h.asked[:0]
	for _, q := range h.asked {
		if q.at == h.tick {
			for _, of := range q.fleet.Processes {
				q.said[of.UID] = h.sighting(of, q)
			}
		}
		if h.tick < q.until {
			open = append(open, q)
			continue
		}
		h.due = true
		seen := h.seen.Routed[q.UID]
		sightings := map[types.UID][]withdraw.Sighting{}
		for uid, all := range seen.Sightings {
			sightings[uid] = all
		}
		for uid, s := range q.said {
			s.ReceivedAt = h.clock()
			all := sightings[uid]
			if len(all) >= 48 {
				all = all[24:]
			}
			sightings[uid] = append(slices.Clone(all), s)
		}
		if h.bug == "forgets a process of the router" && len(q.fleet.Processes) > 1 {
			q.fleet.Processes = q.fleet.Processes[:1]
		}
		h.seen.Routed[q.UID] = withdraw.Routed{Fleet: q.fleet, Sightings: sightings}
	}
	h.asked = open
}

// sighting is what a process says in this second.
func (h *host) sighting(of withdraw.Process, q asking) withdraw.Sighting {
	p, pod := h.processByName(of.Pod), h.byUID(q.UID)
	s := withdraw.Sighting{SentAt: q.sentAt, Run: of.Run, Why: "no answer"}
	if p == nil || pod == nil || h.tick < p.silentUntil {
		if h.bug == "takes silence for absence" {
			s.Answered, s.Membership, s.Returns, s.Window, s.Holds = true, withdraw.Absent, withdraw.No, time.Second, withdraw.No
		}
		return s
	}
	s = withdraw.Sighting{
		SentAt: q.sentAt, Run: strconv.Itoa(p.run), Answered: true, Membership: withdraw.Absent,
		Window: time.Duration(p.window+1) * time.Second, Holds: withdraw.No, Returns: withdraw.No,
		Dispatches: withdraw.Counter{Known: true, Value: float64(p.picks[pod.UID]), AtSelection: withdraw.Yes},
	}
	switch {
	case p.lists[pod.UID]:
		s.Membership = withdraw.Selectable
	case h.tick < p.draining[pod.UID]:
		s.Membership = withdraw.Unselectable
		h.reached["said to drain"]++
	}
	if (h.ignores || !pod.Withdrawn) && h.bug != "believes that nothing comes back" {
		s.Returns = withdraw.Yes
	}
	if p.holds && h.bug != "does not wait for what a router holds" {
		s.Holds = withdraw.Yes
	}
	if p.counts {
		s.InFlight = withdraw.Count{
			Known: true, Value: h.world.bound(p, pod), HeldToEnd: withdraw.Yes, NeverReset: withdraw.Yes, AllPaths: withdraw.Yes,
			SurvivesRemoval: withdraw.Yes, UniqueIDs: withdraw.Yes,
		}
		if p.drains > 0 {
			s.InFlight.SurvivesRemoval = withdraw.No
			if s.Membership == withdraw.Absent {
				s.InFlight.Value = 0
			}
		}
		if p.resets {
			s.InFlight.Value, s.InFlight.NeverReset = 0, withdraw.Unknown
		}
	}
	return s
}

// tell does what one run of a process is told.
func (h *host) tell(of withdraw.Process, pod PodRef, leave bool) {
	p := h.processByName(of.Pod)
	if p == nil || strconv.Itoa(p.run) != of.Run || h.tick < p.silentUntil {
		return
	}
	if leave {
		h.must(h.everBound[pod.UID], "%s is told to leave %s alone, which no written operation is about", p.name, pod.Name)
		if _, again := p.draining[pod.UID]; p.lists[pod.UID] && !again {
			p.draining[pod.UID] = h.tick + p.drains
		} else {
			delete(p.draining, pod.UID)
		}
		delete(p.lists, pod.UID)
		h.reached["told"]++
		h.log("%s is told to leave %s alone", p.name, pod.Name)
		return
	}
	if h.bug == "tells no router that a replica is kept" {
		return
	}
	if there := h.byUID(pod.UID); there != nil && !there.leaving() && h.tick >= p.draining[pod.UID] {
		p.lists[pod.UID] = true
		delete(p.draining, pod.UID)
		h.reached["told otherwise"]++
		h.log("%s is told to choose %s again", p.name, pod.Name)
	}
}
