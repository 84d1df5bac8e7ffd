package fake

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// eppBooks are those of the llm-d EPP: picks, requests in flight by endpoint, and all of
// them. What is in flight is remembered by the request's id, which is the client's own
// where it sends one; two that share it end each other's.
type eppBooks struct {
	*process
	entries map[string]map[string]bool // endpoints in flight by request id
	// readyAt is when the number of endpoints was last looked at.
	readyAt time.Time
	ready   int
}

const (
	flights  = "llm_d_epp_inflight_requests"
	picksNew = "llm_d_epp_scheduler_attempts_total"
	picksOld = "inference_extension_scheduler_attempts_total"
	// readyLag is how old the number of ready endpoints can be.
	readyLag = 5 * time.Second
)

func (b *eppBooks) flight(w *worker) string {
	return labelled("endpoint_name", w.endpoint(), "fairness_id", "default-flow", "namespace", w.pod.namespace,
		"priority", "0", "producer_name", "inflight-load-producer")
}

// chosen counts the pick of the primary profile only: a prefill pick is not in it.
func (b *eppBooks) chosen(c *choice) {
	w := c.worker
	port := strconv.Itoa(w.pod.ports[0])
	if b.traits.seriesNew {
		b.metrics.count(picksNew, labelled("endpoint_name", w.pod.name, "namespace", w.pod.namespace, "port", port,
			"status", "success", "target_model_name", b.options.Model))
	}
	switch {
	case b.traits.seriesOld && b.traits.podNames:
		b.metrics.count(picksOld, labelled("namespace", w.pod.namespace, "pod_name", w.pod.name, "port", port,
			"status", "success", "target_model_name", b.options.Model))
	case b.traits.seriesOld:
		b.metrics.count(picksOld, labelled("endpoint_name", w.pod.name, "namespace", w.pod.namespace, "port", port,
			"status", "success", "target_model_name", b.options.Model))
	}
	b.running(1)
	for _, w := range c.workers() {
		b.take(c.id, w)
	}
}

func (b *eppBooks) running(by float64) {
	if b.traits.seriesNew {
		b.metrics.add("llm_d_epp_request_running", labelled("fairness_id", "default-flow", "model_name", b.options.Model,
			"priority", "0", "target_model_name", b.options.Model), by)
	}
	if b.traits.seriesOld {
		b.metrics.add("inference_objective_running_requests", labelled("model_name", b.options.Model), by)
	}
}

// take puts a request in flight. An entry that is there already is written over, and the
// request it was of is counted for ever.
func (b *eppBooks) take(id string, w *worker) {
	if !b.traits.countsFlights {
		return
	}
	if b.entries[id] == nil {
		b.entries[id] = map[string]bool{}
	}
	b.entries[id][b.flight(w)] = true
	b.metrics.add(flights, b.flight(w), 1)
}

func (b *eppBooks) evict(id, flight string) {
	if b.entries[id][flight] {
		delete(b.entries[id], flight)
		b.metrics.add(flights, flight, -1)
	}
}

func (b *eppBooks) dispatched(*choice) {}
func (b *eppBooks) unsent(*choice)     {}

// answering is when the prefill is known to be over.
func (b *eppBooks) answering(c *choice) {
	if c.prefill != nil {
		b.evict(c.id, b.flight(c.prefill))
	}
}

// ended evicts everything under the request's id, whoever's it is.
func (b *eppBooks) ended(c *choice, _ bool) {
	b.running(-1)
	for flight := range b.entries[c.id] {
		b.evict(c.id, flight)
	}
	delete(b.entries, c.id)
}

func (b *eppBooks) removed(w *worker) {
	switch {
	case b.traits.dropsFlights || b.faults.on(GaugeDeleted, w.pod.name):
		b.metrics.drop(flights, b.flight(w))
	case b.faults.on(GaugeZeroed, w.pod.name):
		b.metrics.gauge(flights, b.flight(w), 0)
	}
}

func (b *eppBooks) reset([]*worker) {
	for flight := range b.metrics.family("gauge", flights) {
		b.metrics.gauge(flights, flight, 0)
	}
}

// load is what the policies of this fake go by.
func (b *eppBooks) load(w *worker) int64 {
	return int64(b.metrics.family("gauge", flights)[b.flight(w)])
}

// expose reads the series of members from what is registered now.
func (b *eppBooks) expose(x *exposition, workers []*worker) {
	x.gauge("process_start_time_seconds", "", float64(b.started.UnixMilli())/1000)
	if b.clock.Since(b.readyAt) >= readyLag {
		b.readyAt, b.ready = b.clock.Now(), len(workers)
	}
	if b.traits.seriesNew {
		x.gauge("llm_d_epp_ready_endpoints", labelled("name", b.options.Pool), float64(b.ready))
	}
	if b.traits.seriesOld {
		x.gauge("inference_pool_ready_pods", labelled("name", b.options.Pool), float64(b.ready))
	}
	for _, w := range b.cut(workers) {
		waiting := b.engines[w.base()].waiting
		if b.traits.seriesNew {
			x.gauge("llm_d_epp_per_endpoint_queue_size", labelled("model_server_endpoint", w.endpoint(), "name", b.options.Pool), waiting)
		}
		x.gauge("inference_pool_per_pod_queue_size", labelled("model_server_pod", w.endpoint(), "name", b.options.Pool), waiting)
	}
	b.distort(x, flights, b.flight, workers)
}

// plugins answers /debug/plugins/state, which has what is registered.
func (p *process) plugins(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	type endpoint struct {
		Endpoint string `json:"endpoint"`
		Requests int64  `json:"requests"`
		Tokens   int64  `json:"tokens"`
	}
	all := []endpoint{}
	for _, one := range p.cut(p.workers) {
		all = append(all, endpoint{one.pod.namespace + "/" + one.endpoint(), p.books.load(one), 0})
	}
	total := len(p.workers)
	p.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"endpoints": all, "totalEndpoints": total, "maxEndpoints": 100, "truncated": len(all) < total})
}

// host is one of the gateway's upstream hosts.
type host struct{ active, total int }

// clusters answers the gateway's Envoy admin port: hosts it has used.
func (p *process) clusters(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, h := range p.hosts {
		for name, n := range map[string]int{"cx_active": h.active, "rq_active": h.active, "rq_total": h.total} {
			fmt.Fprintf(w, "original_destination_cluster::%s::%s::%d\n", address, name, n)
		}
	}
}

// upstream counts a request at a host of the gateway.
func (p *process) upstream(w *worker, active, total int) {
	address := strings.TrimPrefix(w.base(), "http://")
	if p.hosts[address] == nil {
		p.hosts[address] = &host{}
	}
	p.hosts[address].active += active
	p.hosts[address].total += total
}
