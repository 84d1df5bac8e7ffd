package fake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
)

// gatewayControl is the control API of SMG and of the sgl-model-gateway. Changes are jobs:
// they are accepted, and done later.
func (p *process) gatewayControl(mux *http.ServeMux) {
	for pattern, serve := range map[string]http.HandlerFunc{
		"GET /workers":         p.gatewayWorkers,
		"POST /workers":        p.gatewayCreate,
		"GET /workers/{id}":    p.gatewayWorker,
		"DELETE /workers/{id}": p.gatewayDelete,
	} {
		mux.HandleFunc(pattern, p.allowed(serve))
	}
	if p.options.Family == SGLModelGateway {
		mux.HandleFunc("GET /list_workers", p.allowed(p.vllmURLs))
		mux.HandleFunc("GET /get_loads", p.allowed(p.vllmLoads))
	}
}

// gatewayWorker is a worker in the answers.
type gatewayWorker struct {
	ID             string            `json:"id"`
	ModelID        string            `json:"model_id,omitempty"`
	URL            string            `json:"url"`
	WorkerType     Role              `json:"worker_type"`
	ConnectionMode string            `json:"connection_mode"`
	RuntimeType    string            `json:"runtime_type"`
	Labels         map[string]string `json:"labels,omitempty"`
	Priority       int               `json:"priority"`
	Cost           float64           `json:"cost"`
	BootstrapPort  *int              `json:"bootstrap_port,omitempty"`
	DPBaseURL      string            `json:"dp_base_url,omitempty"`
	DPRank         *int              `json:"dp_rank,omitempty"`
	IsHealthy      bool              `json:"is_healthy"`
	Status         Status            `json:"status,omitempty"` // SMG only
	Load           int64             `json:"load"`
	JobStatus      *jobStatus        `json:"job_status,omitempty"`
}

type jobStatus struct {
	JobType   string `json:"job_type"`
	WorkerURL string `json:"worker_url"`
	Status    string `json:"status"`
	Timestamp int64  `json:"timestamp"`
}

// podUIDLabel is what SMG stamps on the workers that it finds itself.
const podUIDLabel = "smg.ai/pod-uid"

func (p *process) shownAt(w *worker) gatewayWorker {
	shown := gatewayWorker{
		ID: w.id, ModelID: p.options.Model, URL: w.url, WorkerType: w.pod.role, ConnectionMode: "http", RuntimeType: "vllm",
		Priority: 50, Cost: 1, IsHealthy: w.status == Ready, Load: p.books.load(w),
	}
	if p.options.Family == SMG {
		shown.Status = w.status
		if w.found {
			shown.Labels = map[string]string{podUIDLabel: string(w.pod.uid)}
		}
	}
	if w.pod.role == Prefill && w.pod.bootstrapPort != 0 {
		shown.BootstrapPort = &w.pod.bootstrapPort
	}
	if base, _, has := cutRank(w.url); has {
		shown.DPBaseURL, shown.DPRank = base, &w.rank
	}
	if w.job != "" {
		shown.JobStatus = &jobStatus{w.job, w.url, "processing", p.clock.Now().Unix()}
	}
	return shown
}

func (p *process) gatewayWorkers(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	all := []gatewayWorker{}
	for _, one := range p.cut(p.workers) {
		all = append(all, p.shownAt(one))
	}
	total, stats := len(p.workers), stats(p.workers)
	p.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"workers": all, "total": total, "stats": stats})
}

var uuidPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// byID finds the worker that a path names, or answers why it cannot. With the lock held.
func (p *process) byID(w http.ResponseWriter, r *http.Request) *worker {
	id := r.PathValue("id")
	for _, one := range p.workers {
		if one.id == id {
			return one
		}
	}
	switch {
	case !uuidPattern.MatchString(id):
		writeJSON(w, http.StatusBadRequest, workerError{fmt.Sprintf("Invalid worker_id '%s' (expected UUID)", id), "BAD_REQUEST"})
	case p.faults.on(SucceedForUnknown, ""):
		writeJSON(w, http.StatusOK, gatewayWorker{ID: id, WorkerType: Regular, ConnectionMode: "http", IsHealthy: true})
	default:
		writeJSON(w, http.StatusNotFound, workerError{fmt.Sprintf("Worker %s not found", id), "WORKER_NOT_FOUND"})
	}
	return nil
}

func (p *process) gatewayWorker(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.byID(w, r); one != nil {
		writeJSON(w, http.StatusOK, p.shownAt(one))
	}
}

// gatewayDelete accepts a removal. A second one, while the worker is Draining, finds no
// worker that is Ready, and removes it at once.
func (p *process) gatewayDelete(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.byID(w, r)
	if one == nil {
		return
	}
	p.removeByAPI([]*worker{one})
	writeJSON(w, http.StatusAccepted, map[string]any{
		"status": "accepted", "worker_id": one.id, "message": "Worker removal queued for background processing",
	})
}

func (p *process) gatewayCreate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		URL        string            `json:"url"`
		WorkerType Role              `json:"worker_type"`
		Labels     map[string]string `json:"labels"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil || in.URL == "" {
		writeJSON(w, http.StatusBadRequest, workerError{"url: a worker's URL is missing", "BAD_REQUEST"})
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.addByAPI(in.URL, in.WorkerType) {
		writeJSON(w, http.StatusConflict, workerError{
			fmt.Sprintf("Worker already exists at URL '%s' with ID %s.", in.URL, p.ids[in.URL]), "WORKER_ALREADY_EXISTS",
		})
		return
	}
	if uid := in.Labels[podUIDLabel]; p.options.Family == SMG && uid != "" { // it is its discovery's by that
		p.workers[p.find(in.URL)].found = true
	}
	id := p.ids[in.URL]
	w.Header().Set("Location", "/workers/"+id)
	writeJSON(w, http.StatusAccepted, map[string]any{
		"status": "accepted", "worker_id": id, "url": in.URL, "location": "/workers/" + id,
		"message": "Worker addition queued for background processing",
	})
}
