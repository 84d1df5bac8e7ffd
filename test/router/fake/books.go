package fake

// choice is what one request has chosen.
type choice struct {
	worker  *worker // that answers it
	prefill *worker // that prefills it; nil where one worker does both
	id      string  // the request's
	// unasked is whether the gateway chose by itself, so that no book has it.
	unasked bool
}

// workers are both of a pair, or the one.
func (c *choice) workers() []*worker {
	if c.prefill == nil {
		return []*worker{c.worker}
	}
	return []*worker{c.prefill, c.worker}
}

// books are how a family counts its requests, right or wrong. Each moment of a request
// that any of them counts is a method; ended comes once for every chosen.
type books interface {
	chosen(c *choice)
	// dispatched is when the worker that answers is sent the request.
	dispatched(c *choice)
	// unsent is when that fails before there was an answer.
	unsent(c *choice)
	// answering is when the answer begins.
	answering(c *choice)
	// ended is when the answer was sent on whole, broke off, or its client left.
	ended(c *choice, left bool)

	removed(w *worker)
	reset(workers []*worker)
	// load is what the API shows as a worker's.
	load(w *worker) int64
	// expose adds what is not counted but read when metrics are.
	expose(x *exposition, workers []*worker)
}

func newBooks(p *process) books {
	switch p.options.Family {
	case VLLMRouter:
		return &ancestorBooks{process: p, prefix: "vllm_router_", leaks: true}
	case SGLModelGateway:
		return &ancestorBooks{process: p, prefix: "sgl_router_"}
	case SMG:
		return &smgBooks{p}
	default:
		return &eppBooks{process: p, entries: map[string]map[string]bool{}}
	}
}

// ancestorBooks are those of vllm-router and of the sgl-model-gateway. They are kept by
// URL in the registry: what is removed is not found, and its count stays as it was.
type ancestorBooks struct {
	*process
	prefix string
	leaks  bool // a client that leaves is counted for ever
}

func (b *ancestorBooks) change(w *worker, by int64) {
	i := b.find(w.url)
	if i < 0 {
		return
	}
	w = b.workers[i]
	w.load = max(0, w.load+by)
	b.show(w.url, float64(w.load))
}

func (b *ancestorBooks) show(url string, v float64) {
	for _, name := range []string{"running_requests", "worker_load"} {
		b.metrics.gauge(b.prefix+name, labelled("worker", url), v)
	}
}

func (b *ancestorBooks) both(c *choice) bool { return c.prefill != nil && b.options.PD == Dual }

func (b *ancestorBooks) chosen(c *choice) {
	for _, w := range c.workers() {
		b.metrics.count(b.prefix+"processed_requests_total", labelled("worker", w.url))
		b.metrics.count(b.prefix+"policy_decisions_total", labelled("policy", b.options.Policy, "worker", w.url))
		if b.both(c) || c.prefill == nil && b.traits.countsPlain {
			b.change(w, 1)
		}
	}
	if c.prefill != nil {
		b.metrics.count(b.prefix+"pd_prefill_requests_total", labelled("worker", c.prefill.url))
	}
}

func (b *ancestorBooks) dispatched(c *choice) {
	if c.prefill == nil {
		return
	}
	b.metrics.count(b.prefix+"pd_decode_requests_total", labelled("worker", c.worker.url))
	if !b.both(c) {
		b.change(c.worker, 1)
	}
}

// unsent takes the request off the books, and ended does it again.
func (b *ancestorBooks) unsent(c *choice) {
	if c.prefill == nil && b.traits.countsPlain || c.prefill != nil && !b.both(c) {
		b.change(c.worker, -1)
	}
}

// answering ends a decode request's count although its stream has only begun.
func (b *ancestorBooks) answering(c *choice) {
	if c.prefill != nil && !b.both(c) {
		b.change(c.worker, -1)
	}
}

func (b *ancestorBooks) ended(c *choice, left bool) {
	if left && b.leaks {
		return
	}
	for _, w := range c.workers() {
		if b.both(c) || c.prefill == nil && b.traits.countsPlain {
			b.change(w, -1)
		}
	}
}

func (b *ancestorBooks) removed(w *worker) {
	switch {
	case b.faults.on(GaugeDeleted, w.pod.name):
		b.metrics.drop(b.prefix+"running_requests", labelled("worker", w.url))
		b.metrics.drop(b.prefix+"worker_load", labelled("worker", w.url))
	case b.faults.on(GaugeZeroed, w.pod.name):
		b.show(w.url, 0)
	}
}

func (b *ancestorBooks) reset(workers []*worker) {
	for _, w := range workers {
		w.load = 0
		b.show(w.url, 0)
	}
}

func (b *ancestorBooks) load(w *worker) int64 { return shown(b.process, w) }

func (b *ancestorBooks) expose(x *exposition, workers []*worker) {
	x.gauge(b.prefix+"active_workers", "", float64(len(workers)))
	for _, w := range workers {
		x.gauge(b.prefix+"worker_health", labelled("worker", w.url), health(w))
	}
	for _, name := range []string{"running_requests", "worker_load"} {
		b.distort(x, b.prefix+name, byURL, workers)
	}
}

// smgBooks are those of SMG. A request holds the worker itself, until its answer was sent
// on; the gauge is set aside when the worker is removed, and again by whoever ends later.
type smgBooks struct{ *process }

func (b *smgBooks) counts(c *choice) bool { return c.prefill != nil || b.traits.countsPlain }

func (b *smgBooks) change(c *choice, by int64) {
	if !b.counts(c) {
		return
	}
	for _, w := range c.workers() {
		w.load = max(0, w.load+by)
		b.metrics.gauge("smg_worker_requests_active", labelled("worker", w.url), float64(w.load))
	}
}

func (b *smgBooks) chosen(c *choice) {
	for _, w := range c.workers() {
		b.metrics.count("smg_worker_selection_total", labelled("worker_type", string(w.pod.role), "connection_mode", "http",
			"model", b.options.Model, "policy", b.options.Policy))
	}
	b.change(c, 1)
}

func (b *smgBooks) dispatched(c *choice) {
	for _, w := range c.workers() {
		if b.traits.countsTotals {
			b.metrics.count("smg_worker_requests_total", labelled("worker", w.url, "model", b.options.Model))
		}
	}
}

func (b *smgBooks) unsent(*choice)          {}
func (b *smgBooks) answering(*choice)       {}
func (b *smgBooks) ended(c *choice, _ bool) { b.change(c, -1) }
func (b *smgBooks) load(w *worker) int64    { return shown(b.process, w) }

func (b *smgBooks) reset(workers []*worker) {
	for _, w := range workers {
		w.load = 0
		b.metrics.gauge("smg_worker_requests_active", byURL(w), 0)
	}
}

func (b *smgBooks) removed(w *worker) {
	if b.faults.on(GaugeDeleted, w.pod.name) {
		b.metrics.drop("smg_worker_requests_active", labelled("worker", w.url))
		return
	}
	b.metrics.gauge("smg_worker_requests_active", labelled("worker", w.url), 0)
	for _, name := range []string{"running", "waiting"} {
		b.metrics.gauge("smg_engine_"+name+"_requests", b.engineLabels(w), -1)
	}
}

func (b *smgBooks) engineLabels(w *worker) string {
	return labelled("worker", w.url, "model", b.options.Model, "dp_rank", "0")
}

func (b *smgBooks) expose(x *exposition, workers []*worker) {
	for _, w := range workers {
		x.gauge("smg_worker_health", labelled("worker", w.url), health(w))
		if e, known := b.engines[w.base()]; known {
			x.gauge("smg_engine_running_requests", b.engineLabels(w), e.running)
			x.gauge("smg_engine_waiting_requests", b.engineLabels(w), e.waiting)
		}
	}
	b.distort(x, "smg_worker_requests_active", byURL, workers)
}

func health(w *worker) float64 {
	if w.status == NotReady {
		return 0
	}
	return 1
}

// shown is a worker's load as the faults have it.
func shown(p *process, w *worker) int64 {
	if p.faults.on(LoadAlwaysZero, w.pod.name) {
		return 0
	}
	return w.load
}

// distort shows gauges of open requests as the faults have them. of is how a worker's are
// labelled; what is not a worker's any more is shown as the faults of all Pods have it.
func (p *process) distort(x *exposition, name string, of func(*worker) string, workers []*worker) {
	pods := map[string]string{}
	for _, w := range workers {
		pods[of(w)] = w.pod.name
	}
	for labels := range x.family("gauge", name) {
		switch pod := pods[labels]; {
		case p.faults.on(NegativeGauge, pod):
			x.gauge(name, labels, -1)
		case p.faults.on(LoadAlwaysZero, pod):
			x.gauge(name, labels, 0)
		}
	}
}

func byURL(w *worker) string { return labelled("worker", w.url) }
