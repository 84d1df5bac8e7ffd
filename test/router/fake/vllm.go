package fake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// vllmControl is the control API of vllm-router. Each call is about this process only and
// is done when it is answered.
func (p *process) vllmControl(mux *http.ServeMux) {
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /workers":        p.vllmWorkers,
		"GET /list_workers":   p.vllmURLs,
		"POST /workers":       p.vllmCreate,
		"GET /workers/":       p.vllmWorker,
		"DELETE /workers/":    p.vllmDelete,
		"POST /add_worker":    p.vllmAdd,
		"POST /remove_worker": p.vllmRemove,
		"GET /get_loads":      p.vllmLoads,
	} {
		mux.HandleFunc(pattern, p.allowed(serve))
	}
}

// vllmWorker is a worker in GET /workers.
type vllmWorker struct {
	URL            string  `json:"url"`
	ModelID        string  `json:"model_id"`
	WorkerType     Role    `json:"worker_type"`
	IsHealthy      bool    `json:"is_healthy"`
	Load           int64   `json:"load"`
	ConnectionMode string  `json:"connection_mode"`
	Priority       int     `json:"priority"`
	Cost           float64 `json:"cost"`
	BootstrapPort  *int    `json:"bootstrap_port,omitempty"`
}

func (p *process) vllmWorkers(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	all := []vllmWorker{}
	for _, one := range p.cut(p.workers) {
		shown := vllmWorker{
			URL: one.url, ModelID: p.options.Model, WorkerType: one.pod.role, IsHealthy: one.status == Ready,
			Load: p.books.load(one), ConnectionMode: "Http", Priority: 50, Cost: 1,
		}
		if one.pod.role == Prefill && one.pod.bootstrapPort != 0 {
			shown.BootstrapPort = &one.pod.bootstrapPort
		}
		all = append(all, shown)
	}
	total, stats := len(p.workers), stats(p.workers)
	p.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"workers": all, "total": total, "stats": stats})
}

func stats(workers []*worker) map[string]int {
	n := map[string]int{"prefill_count": 0, "decode_count": 0, "regular_count": 0}
	for _, w := range workers {
		n[string(w.pod.role)+"_count"]++
	}
	return n
}

func (p *process) vllmURLs(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	urls := []string{}
	for _, one := range p.cut(p.workers) {
		urls = append(urls, one.url)
	}
	p.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"urls": urls})
}

// vllmWorker says that a worker it has is healthy, whether it is or not.
func (p *process) vllmWorker(w http.ResponseWriter, r *http.Request) {
	name := pathURL(r, "/workers/")
	p.mu.Lock()
	there := p.find(name) >= 0 || p.faults.on(SucceedForUnknown, "")
	p.mu.Unlock()
	if !there {
		writeJSON(w, http.StatusNotFound, workerError{fmt.Sprintf("Worker %s not found", name), "WORKER_NOT_FOUND"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"url": name, "model_id": "unknown", "is_healthy": true})
}

type workerError struct {
	Error string `json:"error"`
	Code  string `json:"code"`
}

// vllmDelete answers 200 also where there was no such worker.
func (p *process) vllmDelete(w http.ResponseWriter, r *http.Request) {
	name := pathURL(r, "/workers/")
	status := p.vllmTakeOut(name)
	writeJSON(w, status, map[string]any{"success": true, "message": fmt.Sprintf("Worker %s removed successfully", name)})
}

func (p *process) vllmRemove(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("url")
	status := p.vllmTakeOut(name)
	w.WriteHeader(status)
	fmt.Fprintf(w, "Successfully removed worker: %s", name)
}

// vllmTakeOut removes a worker; without a rank, all ranks of it.
func (p *process) vllmTakeOut(name string) (status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var gone []*worker
	for _, w := range p.workers {
		if w.url == name || w.base() == name {
			gone = append(gone, w)
		}
	}
	p.removeByAPI(gone)
	if p.faults.on(AsyncRemoval, "") {
		return http.StatusAccepted
	}
	return http.StatusOK
}

func (p *process) vllmAdd(w http.ResponseWriter, r *http.Request) {
	message, ok := p.vllmPutIn(r.URL.Query().Get("url"), "")
	if !ok {
		http.Error(w, message, http.StatusBadRequest)
		return
	}
	_, _ = w.Write([]byte(message))
}

func (p *process) vllmCreate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		URL        string `json:"url"`
		WorkerType Role   `json:"worker_type"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		http.Error(w, "Failed to parse the request body as JSON: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	message, ok := p.vllmPutIn(in.URL, in.WorkerType)
	if !ok {
		writeJSON(w, http.StatusBadRequest, workerError{message, "ADD_WORKER_FAILED"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"success": true, "message": message})
}

// vllmPutIn adds a worker that answers its health check.
func (p *process) vllmPutIn(name string, role Role) (message string, ok bool) {
	if !strings.HasPrefix(name, "http://") {
		return fmt.Sprintf("Invalid worker URL: %s", name), false
	}
	base, _, _ := cutRank(name)
	if _, healthy := p.ask(base + "/health"); !healthy {
		return fmt.Sprintf("Worker %s did not become healthy", name), false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.addByAPI(name, role) {
		return fmt.Sprintf("Worker %s already exists", name), false
	}
	return fmt.Sprintf("Successfully added worker: %s", name), true
}

// vllmLoads asks the workers, which do not know: -1 is an error.
func (p *process) vllmLoads(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	loads := []map[string]any{}
	for _, one := range p.workers {
		loads = append(loads, map[string]any{"worker": one.url, "load": -1})
	}
	p.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"workers": loads})
}
