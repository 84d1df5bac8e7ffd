package fake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// control serves clients, the control API of the family, and the faults.
func (p *process) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", p.complete)
	mux.HandleFunc("POST /v1/chat/completions", p.complete)
	mux.HandleFunc("GET /v1/models", p.models)
	mux.HandleFunc("GET /fault", p.listFaults)
	mux.HandleFunc("POST /fault", p.postFault)
	for _, path := range []string{"/health", "/liveness", "/healthz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("OK")) })
	}
	mux.HandleFunc("GET /readiness", p.readiness)
	switch p.options.Family {
	case VLLMRouter:
		p.vllmControl(mux)
	case SMG, SGLModelGateway:
		p.gatewayControl(mux)
	}
	return mux
}

// numbers serves the metrics port.
func (p *process) numbers() http.Handler {
	mux := http.NewServeMux()
	serve := p.serveMetrics
	if p.options.Family == LLMD {
		serve = p.allowed(serve)
		mux.HandleFunc("GET /debug/plugins/state", p.allowed(p.plugins))
	}
	mux.HandleFunc("GET /metrics", serve)
	return mux
}

func (p *process) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	x := p.metrics.clone()
	p.books.expose(x, p.workers)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(x.text())
}

// allowed lets in who the faults do not keep out.
func (p *process) allowed(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		status := 0
		switch {
		case p.faults.on(Unauthorized, ""):
			status = http.StatusUnauthorized
		case p.faults.on(Forbidden, ""):
			status = http.StatusForbidden
		}
		p.mu.Unlock()
		if status != 0 {
			http.Error(w, http.StatusText(status), status)
			return
		}
		serve(w, r)
	}
}

// readiness is 200 with a healthy worker, and 503 without.
func (p *process) readiness(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	total, healthy := len(p.workers), 0
	for _, one := range p.workers {
		if one.selectable(p.clock.Now()) {
			healthy++
		}
	}
	p.mu.Unlock()
	status, word := http.StatusOK, "ready"
	if healthy == 0 {
		status, word = http.StatusServiceUnavailable, "not ready"
	}
	writeJSON(w, status, map[string]any{"status": word, "healthy_workers": healthy, "total_workers": total})
}

// models is the answer of any worker.
func (p *process) models(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	can := slices.DeleteFunc(slices.Clone(p.workers), func(one *worker) bool { return !one.selectable(p.clock.Now()) })
	p.mu.Unlock()
	for _, one := range can {
		if body, ok := p.ask(one.base() + "/v1/models"); ok {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
			return
		}
	}
	p.refuse(w, http.StatusServiceUnavailable, errNoWorkers.Error())
}

func (p *process) listFaults(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	on := append([]Fault{}, p.faults.set...)
	p.mu.Unlock()
	does := map[string]string{}
	for name, known := range Known {
		does[name] = known.Does
	}
	writeJSON(w, http.StatusOK, map[string]any{"on": on, "known": does})
}

func (p *process) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err == nil {
		err = f.check()
	}
	if err == nil {
		err = p.setFault(f)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if f.Name == Restart && !f.Off {
		w.Header().Set("Content-Length", "0") // so that the answer is whole when it is flushed
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		p.restart()
		return
	}
	p.listFaults(w, r)
}

// setFault turns a fault on or off and does what happens then.
func (p *process) setFault(f Fault) error {
	p.mu.Lock()
	var reused *corev1.Pod
	if pod := p.known[f.Pod]; f.Name == ReuseAddress && pod != nil {
		reused = successor(pod)
	} else if f.Name == ReuseAddress {
		p.mu.Unlock()
		return fmt.Errorf("fault %s: no Pod %q is known", f.Name, f.Pod)
	}
	p.faults.put(f)
	close(p.changed)
	p.changed = make(chan struct{})
	switch {
	case f.Off:
	case f.Name == ResetLoad:
		p.books.reset(p.workers)
	case f.Name == DataParallelRanks:
		p.rankAgain()
	}
	p.mu.Unlock()
	switch {
	case reused != nil && f.Off:
		p.see(Event{Kind: Deleted, Pod: reused})
	case reused != nil:
		p.see(Event{Kind: Applied, Pod: reused})
	}
	return nil
}

// successor is another Pod at a Pod's address.
func successor(pod *corev1.Pod) *corev1.Pod {
	next := pod.DeepCopy()
	next.Name += "-successor"
	next.UID = types.UID("successor-of-" + string(pod.UID))
	next.DeletionTimestamp = nil
	next.Status.Phase = corev1.PodRunning
	next.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return next
}

// rankAgain registers every worker again, with ranks.
func (p *process) rankAgain() {
	was := slices.Clone(p.workers)
	seen := map[string]bool{}
	for _, w := range was {
		p.drop(w)
	}
	for _, w := range was {
		if !seen[w.base()] {
			seen[w.base()] = true
			p.register(w.pod)
		}
	}
}

// removeByAPI removes workers for a caller; sync is whether that is done when it returns.
func (p *process) removeByAPI(gone []*worker) {
	for _, w := range gone {
		if p.faults.on(Disagree, w.pod.name) {
			continue
		}
		after := p.traits.removesAfter
		if f, on := p.faults.of(AsyncRemoval, w.pod.name); on {
			after = f.duration(5 * time.Second)
		}
		switch {
		case after > 0:
			w.job = "RemoveWorker"
			p.later(after, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.removeNow(w)
			})
		default:
			p.removeNow(w)
		}
	}
}

func (p *process) removeNow(w *worker) {
	if w.gone {
		return
	}
	if p.traits.drains {
		p.drain(w) // also one that drains: then its wait is over
	} else {
		p.drop(w)
	}
	if f, on := p.faults.of(AddAgain, w.pod.name); on {
		p.later(f.duration(time.Second), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			pod := p.pods[w.pod.namespace+"/"+w.pod.name]
			if pod == nil {
				return
			}
			if info, ok := p.selection.info(pod); ok && info.ready && !info.terminating {
				p.register(info)
			}
		})
	}
}

// addByAPI adds a worker that a caller names; false where it is there already.
func (p *process) addByAPI(address string, role Role) bool {
	if p.find(address) >= 0 {
		return false
	}
	pod := p.podAt(address)
	if role != "" {
		pod.role = role
	}
	p.add(&worker{url: address, pod: pod})
	return true
}

// cut is what a list shows of the workers.
func (p *process) cut(workers []*worker) []*worker {
	if f, on := p.faults.of(TruncateList, ""); on {
		return workers[:min(len(workers), f.number(1))]
	}
	return workers
}

// pathURL is the worker that a path names. Its URL is escaped there, and the slashes in it
// with it.
func pathURL(r *http.Request, prefix string) string {
	name, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), prefix))
	if err != nil {
		return ""
	}
	return name
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
