package retirer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// routers asks the processes of routers about the members that rounds want to know of,
// tells them what rounds decide, in the background, and keeps what they said. However
// many members of however many ModelDeployments a router has, each of its processes is
// asked about all of them at once, and not again before lookInterval is over.
type routers struct {
	live    client.Reader
	clock   clock.WithDelayedExecution
	metrics *metrics
	// wake asks for a round of a ModelDeployment.
	wake func(types.NamespacedName)
	// slots bound how many processes are asked or told at a time, and patient how many of
	// those that did not answer last: they take all their time again, and it must not be
	// that of others.
	slots, patient slots
	*lead

	mu  sync.Mutex
	all map[routerRef]*asked
}

const (
	// lookInterval is the time between the starts of two looks. Four of them are a little
	// more than the 12 s that most proofs take from the end of a look to the start of
	// another: without that it would take a fifth.
	lookInterval = retire.ReadInterval + 100*time.Millisecond
	// processTimeout bounds what one process is asked or told.
	processTimeout = 5 * time.Second
	// processesAtOnce is how many are asked or told at a time.
	processesAtOnce = 32
)

// asked is what is remembered of one router.
type asked struct {
	busy      bool
	startedAt time.Time
	// wanted are the members to ask about next.
	wanted  map[types.UID]wanted
	members map[types.UID]*heard
	// processes are those that were listed last, by the UID of their Pod, each with the
	// run that has answered last.
	processes map[types.UID]router.Process
	// silent are those of them that did not answer.
	silent map[types.UID]bool
	// telling are the commands under way.
	telling map[command]bool
}

// wanted is a member that a round wants to know of.
type wanted struct {
	of      types.NamespacedName
	backend router.Backend
}

// heard is what the processes of a router said of a member.
type heard struct {
	wanted
	fleet withdraw.Fleet
	said  map[types.UID][]withdraw.Sighting
	// refused is what a process answered when it was told something last, and that was
	// not taken.
	refused map[types.UID]string
}

// command is what a process is told about a member.
type command struct{ process, member types.UID }

// router is what is remembered of one, from now on if nothing was. It needs mu.
func (r *routers) router(ref routerRef) *asked {
	a := r.all[ref]
	if a == nil {
		a = &asked{
			wanted: map[types.UID]wanted{}, members: map[types.UID]*heard{},
			processes: map[types.UID]router.Process{}, silent: map[types.UID]bool{}, telling: map[command]bool{},
		}
		r.all[ref] = a
	}
	return a
}

// ask asks every process of a router about a member, with all others that are wanted
// by then.
func (r *routers) ask(ref routerRef, w wanted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.router(ref)
	a.wanted[w.backend.UID] = w
	if a.members[w.backend.UID] == nil {
		a.members[w.backend.UID] = &heard{said: map[types.UID][]withdraw.Sighting{}, refused: map[types.UID]string{}}
	}
	a.members[w.backend.UID].wanted = w
	if a.busy {
		return
	}
	wait := a.startedAt.Add(lookInterval).Sub(r.clock.Now())
	a.busy = r.begin(func(ctx context.Context) {
		if !pause(ctx, r.clock, wait) {
			return
		}
		for key := range r.look(ctx, ref) {
			r.wake(key)
		}
	})
}

// look asks about all that is wanted, keeps what was said, and returns whose members
// these are.
func (r *routers) look(ctx context.Context, ref routerRef) map[types.NamespacedName]bool {
	r.mu.Lock()
	a := r.router(ref)
	a.startedAt = r.clock.Now()
	var about []router.Backend
	keys := map[types.NamespacedName]bool{}
	for _, w := range a.wanted {
		about = append(about, w.backend)
		keys[w.of] = true
	}
	clear(a.wanted)
	known := make(map[types.UID]string, len(a.processes))
	for uid, p := range a.processes {
		known[uid] = p.Run
	}
	silent := maps.Clone(a.silent)
	r.mu.Unlock()

	if len(about) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.busy = false
		return nil
	}
	listed := r.list(ctx, ref, known)
	said := r.askAll(ctx, &listed, silent, about)
	bypasses := r.bypasses(ctx, ref, about)

	r.mu.Lock()
	defer r.mu.Unlock()
	a.busy = false
	if listed.err == "" {
		clear(a.processes)
		clear(a.silent)
		for i := range listed.processes {
			a.processes[listed.processes[i].UID] = listed.processes[i]
			a.silent[listed.processes[i].UID] = !answers(said[i])
		}
	}
	for n, b := range about {
		if m := a.members[b.UID]; m != nil { // or nobody wants to know any more
			m.hear(&listed, bypasses[n], said, n)
		}
	}
	if len(a.members) == 0 {
		delete(r.all, ref)
	}
	return keys
}

// hear keeps what was said of a member, the nth that was asked about. A list that could
// not be read takes back nothing, until what is known is too old.
func (m *heard) hear(l *fleet, by bypass, said [][]withdraw.Sighting, n int) {
	if l.err != "" {
		m.fleet.By = l.err
		return
	}
	m.fleet = withdraw.Fleet{ListedAt: l.at, Bypassed: by.is, By: by.by}
	there := map[types.UID]bool{}
	for i := range l.processes {
		p := l.processes[i].Process
		there[p.UID] = true
		if said[i] != nil {
			s := said[i][n]
			if by.kept != "" && s.Answered {
				s.Returns, s.Why = withdraw.Yes, by.kept
			}
			m.said[p.UID] = withdraw.Remember(m.said[p.UID], s)
		}
		p.Refused = m.refused[p.UID]
		m.fleet.Processes = append(m.fleet.Processes, p)
	}
	for uid := range m.said {
		if !there[uid] {
			delete(m.said, uid)
			delete(m.refused, uid)
		}
	}
}

// askAll asks all processes side by side, and returns what each said of all members.
// The run of each is the one that has answered.
func (r *routers) askAll(ctx context.Context, l *fleet, silent map[types.UID]bool, about []router.Backend) [][]withdraw.Sighting {
	said := make([][]withdraw.Sighting, len(l.processes))
	var asking sync.WaitGroup
	for i := range l.processes {
		asking.Go(func() {
			p, slots := &l.processes[i], r.slots
			if silent[p.UID] {
				slots = r.patient
			}
			if !slots.await(ctx, r.clock, 0) {
				return
			}
			defer slots.done()
			ctx, cancel := context.WithTimeout(ctx, processTimeout)
			defer cancel()
			said[i] = l.family.Look(ctx, l.client, *p, about)
			answered := answers(said[i])
			if answered {
				p.Run = said[i][0].Run
			}
			r.metrics.question(l.name, answered)
		})
	}
	asking.Wait()
	return said
}

func answers(said []withdraw.Sighting) bool {
	return slices.ContainsFunc(said, func(s withdraw.Sighting) bool { return s.Answered })
}

// tell tells one run of a process to leave a member alone, or that it need not any
// more. The same is not told again before that has ended.
func (r *routers) tell(ctx context.Context, ref routerRef, run withdraw.Process, pod retire.PodRef, leave bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.all[ref]
	if a == nil {
		return
	}
	c := command{run.UID, pod.UID}
	p, member := a.processes[run.UID], a.members[pod.UID]
	if member == nil || p.Run != run.Run || a.telling[c] {
		return
	}
	backend, logger := member.backend, log.FromContext(ctx)
	a.telling[c] = r.begin(func(ctx context.Context) {
		err := r.send(ctx, ref, p, backend, leave)
		r.metrics.command(string(ref.name), leave, err)
		logger = logger.WithValues("router", p.Pod, "pod", pod.Name)
		switch {
		case err != nil:
			logger.Info("A process of the router does not take what it is told", "withdraw", leave, "error", err.Error())
		case leave:
			logger.Info("Told a process of the router to leave a replica alone")
		default:
			logger.Info("Told a process of the router that it may choose a replica again")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(a.telling, c)
		delete(member.refused, run.UID)
		if err != nil {
			member.refused[run.UID] = err.Error()
		}
	})
}

func (r *routers) send(ctx context.Context, ref routerRef, p router.Process, b router.Backend, leave bool) error {
	if !r.slots.await(ctx, r.clock, 0) {
		return ctx.Err()
	}
	defer r.slots.done()
	ctx, cancel := context.WithTimeout(ctx, 2*processTimeout)
	defer cancel()
	family, http, err := r.access(ctx, ref)
	if err != nil {
		return err
	}
	if leave {
		return family.Withdraw(ctx, http, p, b)
	}
	return family.Restore(ctx, http, p, b)
}

// of is what is known of the members of one ModelDeployment.
func (r *routers) of(key types.NamespacedName, ref routerRef) map[types.UID]withdraw.Routed {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.all[ref]
	if a == nil {
		return nil
	}
	all := map[types.UID]withdraw.Routed{}
	for uid, m := range a.members {
		if m.of != key {
			continue
		}
		said := make(map[types.UID][]withdraw.Sighting, len(m.said))
		for process, sightings := range m.said {
			said[process] = sightings
		}
		all[uid] = withdraw.Routed{Fleet: m.fleet, Sightings: said}
	}
	return all
}

// keep forgets the members of a ModelDeployment that nothing is decided about any more,
// and those that another router was asked about.
func (r *routers) keep(key types.NamespacedName, ref routerRef, bound map[types.UID]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for of, a := range r.all {
		for uid, m := range a.members {
			if m.of == key && (of != ref || !bound[uid]) {
				delete(a.members, uid)
				delete(a.wanted, uid)
			}
		}
		if len(a.members) == 0 && !a.busy {
			delete(r.all, of)
		}
	}
}
