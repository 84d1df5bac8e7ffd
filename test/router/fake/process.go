package fake

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
)

// process is one run of a router.
type process struct {
	options Options
	traits  traits
	clock   clock.WithTicker
	source  Source
	client  *http.Client
	log     *slog.Logger
	restart func()
	started time.Time

	// ctx ends the process, and what it has open.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	listed chan struct{} // closed when it has seen the Pods there are

	mu        sync.Mutex
	selection selection
	filter    filter
	discovery discovery
	lens      *lens
	pods      map[string]*corev1.Pod // by namespace/name, as the API server has them
	known     map[string]*corev1.Pod // by name, also those that are gone
	workers   []*worker              // in order of registration
	ids       map[string]string      // of workers, by URL
	books     books
	metrics   *exposition
	engines   map[string]engineGauges // by URL
	hosts     map[string]*host
	faults    faults
	changed   chan struct{} // closed when faults change
	turns     int
	cycles    int
	looking   bool // a Tick is on its way
	waiting   int  // requests between listing and choosing
}

func newProcess(ctx context.Context, r *Router) *process {
	p := &process{
		options: r.options, traits: r.traits, clock: r.clock, source: r.source, client: r.client, log: r.log, restart: r.restart,
		started: r.clock.Now(), selection: newSelection(r.options, r.traits), lens: newLens(),
		pods: map[string]*corev1.Pod{}, known: map[string]*corev1.Pod{}, ids: map[string]string{}, metrics: newExposition(),
		engines: map[string]engineGauges{}, hosts: map[string]*host{}, changed: make(chan struct{}), listed: make(chan struct{}),
		faults: faults{set: slices.Clone(r.options.Faults)},
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.filter.byRole = r.options.RoleFilter || r.options.PD != ""
	if r.options.EndpointFilter != "" {
		p.filter.endpoint, _ = labels.Parse(r.options.EndpointFilter) // complete has parsed it
	}
	p.discovery = newDiscovery(r.traits.follows, p.selection)
	p.books = newBooks(p)
	return p
}

// start begins to follow Pods and to look after workers.
func (p *process) start() {
	p.tasks.Go(func() {
		var first sync.Once
		p.source.Watch(p.ctx, func(e Event) {
			p.see(e)
			first.Do(func() { close(p.listed) })
		})
	})
	if p.options.Family != LLMD {
		p.every(p.options.HealthEvery, p.checkHealth)
	}
	if p.traits.lists > 0 {
		p.every(p.traits.lists, p.lookAround)
	}
	if p.options.Family == SMG || p.options.Family == LLMD {
		p.every(relayEvery, p.readEngines)
	}
}

// stop ends everything and waits for it.
func (p *process) stop() {
	p.mu.Lock() // later begins nothing any more
	p.cancel()
	p.mu.Unlock()
	p.tasks.Wait()
}

// every does something at intervals until the process ends.
func (p *process) every(interval time.Duration, do func()) {
	ticker := p.clock.NewTicker(interval)
	p.tasks.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-p.ctx.Done():
				return
			case <-ticker.C():
				do()
			}
		}
	})
}

// later does something once, unless the process ends before. Call it with the lock held.
func (p *process) later(after time.Duration, do func()) {
	if p.ctx.Err() != nil {
		return
	}
	timer := p.clock.NewTimer(after)
	p.tasks.Go(func() {
		defer timer.Stop()
		select {
		case <-p.ctx.Done():
		case <-timer.C():
			do()
		}
	})
}

// see is told of Pods.
func (p *process) see(e Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remember(e)
	var takes func(map[string]string) bool
	if p.traits.follows == followsLevel {
		takes = p.selection.takes
	}
	e, told := p.lens.see(e, &p.faults, takes)
	if !told {
		return
	}
	p.apply(p.discovery.see(e, p.registered()))
	if p.traits.coalesces > 0 && e.Kind != Tick && !p.looking {
		p.looking = true
		p.later(p.traits.coalesces, func() {
			p.mu.Lock()
			p.looking = false
			p.mu.Unlock()
			p.see(Event{Kind: Tick})
		})
	}
}

// remember keeps Pods as they are, whatever the router makes of them.
func (p *process) remember(e Event) {
	if e.Kind == Listed || e.Kind == Relisted {
		clear(p.pods)
	}
	for _, pod := range append(slices.Clone(e.Pods), e.Pod) {
		if pod == nil {
			continue
		}
		key := pod.Namespace + "/" + pod.Name
		p.known[pod.Name], p.pods[key] = pod, pod
		if e.Kind == Deleted {
			delete(p.pods, key)
		}
	}
}

// lookAround is what SMG does each minute: ask for all Pods, or go over what it knows.
func (p *process) lookAround() {
	if p.traits.follows == followsLevel {
		p.see(Event{Kind: Tick})
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	pods, err := p.source.List(ctx)
	if err != nil {
		p.log.Warn("listing Pods", "error", err)
		return
	}
	p.see(Event{Kind: Relisted, Pods: pods})
}

// registered are the Pods whose workers discovery has added.
func (p *process) registered() (pods []podInfo) {
	for _, w := range p.workers {
		if w.found {
			pods = append(pods, w.pod)
		}
	}
	return pods
}

func (p *process) apply(changes []change) {
	for _, c := range changes {
		switch {
		case c.remove:
			for _, w := range p.of(c.pod) {
				p.retire(w)
			}
		case p.traits.follows == followsEndpoint:
			p.endpointsOf(c.pod)
		case !p.register(c.pod):
			p.discovery.refused(c.pod)
			continue
		}
		switch p.options.Family {
		case VLLMRouter:
			p.metrics.count("vllm_router_discovery_updates_total", "")
		case SGLModelGateway:
			p.metrics.count("sgl_router_discovery_updates_total", "")
		}
	}
}

// of are the workers that a family takes for those of a Pod.
func (p *process) of(pod podInfo) (found []*worker) {
	for _, w := range p.workers {
		same := false
		switch p.traits.follows {
		case followsEndpoint:
			same = w.pod.id() == pod.id()
		case followsLevel:
			same = w.found && w.pod.uid == pod.uid
		case followsListed:
			same = w.found && w.base() == pod.url(0)
		default:
			same = w.base() == pod.url(0)
		}
		if same {
			found = append(found, w)
		}
	}
	return found
}

// register adds the workers of a Pod; false where its address is taken.
func (p *process) register(pod podInfo) bool {
	for _, url := range p.urls(pod.url(0)) {
		if p.find(url) >= 0 {
			return false
		}
	}
	for n, url := range p.urls(pod.url(0)) {
		p.add(&worker{url: url, rank: n, pod: pod, found: true})
	}
	return true
}

// urls are those of a worker's ranks, or its own.
func (p *process) urls(base string) []string {
	ranks := p.options.Ranks
	if f, on := p.faults.of(DataParallelRanks, ""); on {
		ranks = f.number(2)
	}
	if ranks == 0 {
		return []string{base}
	}
	var all []string
	for n := range ranks {
		all = append(all, base+"@"+strconv.Itoa(n))
	}
	return all
}

// endpointsOf makes the pool's endpoints of a Pod what the Pod says now.
func (p *process) endpointsOf(pod podInfo) {
	wanted := map[string]int{}
	for n, port := range pod.ports {
		wanted[pod.url(n)] = slices.Index(p.options.Ports, port)
	}
	for _, w := range p.of(pod) {
		if _, stays := wanted[w.url]; stays {
			own := pod
			own.ports = w.pod.ports
			w.pod = own
			delete(wanted, w.url)
			continue
		}
		p.drop(w)
	}
	for n := range pod.ports {
		if rank, missing := wanted[pod.url(n)]; missing {
			own := pod
			own.ports = pod.ports[n : n+1]
			p.add(&worker{url: pod.url(n), rank: rank, pod: own, found: true})
		}
	}
}

func (p *process) add(w *worker) {
	if p.ids[w.url] == "" { // an address keeps its id
		p.ids[w.url] = string(uuid.NewUUID())
	}
	w.id, w.status = p.ids[w.url], Ready
	p.workers = append(p.workers, w)
	p.log.Info("worker added", "url", w.url, "pod", w.pod.name)
}

func (p *process) find(url string) int {
	return slices.IndexFunc(p.workers, func(w *worker) bool { return w.url == url })
}

// retire removes a worker as the family does when its Pod goes. One that drains already
// is left to that.
func (p *process) retire(w *worker) {
	switch {
	case p.traits.drains && w.status == Draining:
	case p.traits.drains:
		p.drain(w)
	default:
		p.drop(w)
	}
}

// drain is SMG's removal job.
func (p *process) drain(w *worker) {
	wait := removal(w.status, p.options.DrainSettle)
	if p.faults.on(CollapseDrain, w.pod.name) {
		wait = 0
	}
	if wait == 0 {
		p.drop(w)
		return
	}
	w.status, w.job = Draining, "RemoveWorker"
	p.log.Info("worker draining", "url", w.url, "for", wait.String())
	p.later(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.drop(w)
	})
}

// drop takes a worker off the list. Requests that have chosen it go on.
func (p *process) drop(w *worker) {
	if w.gone {
		return
	}
	w.gone = true
	p.workers = slices.DeleteFunc(p.workers, func(o *worker) bool { return o == w })
	p.books.removed(w)
	p.log.Info("worker removed", "url", w.url, "pod", w.pod.name, "load", w.load)
}

// podAt is a Pod with an address, for a worker that the API adds.
func (p *process) podAt(url string) podInfo {
	rest := strings.TrimPrefix(url, "http://")
	rest, _, _ = strings.Cut(rest, "@")
	ip, portText, _ := net.SplitHostPort(rest)
	port, _ := strconv.Atoi(portText)
	for _, pod := range p.pods {
		if pod.Status.PodIP == ip {
			info, _ := p.selection.info(pod)
			info.ports = []int{port}
			return info
		}
	}
	return podInfo{ip: ip, ports: []int{port}, role: Regular}
}
