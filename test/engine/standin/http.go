package standin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// handler is the engine's HTTP surface.
func (e *Engine) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /v1/models", e.listModels)
	mux.HandleFunc("POST /v1/completions", e.complete)
	mux.HandleFunc("POST /v1/chat/completions", e.complete)
	if e.options.Kind == VLLM || e.options.EnableMetrics {
		mux.HandleFunc("GET /metrics", e.serveMetrics)
		// A redirect of the redirect-same-origin fault ends here.
		mux.HandleFunc("GET /metrics/", e.writeMetrics)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "uvicorn")
		path := strings.TrimSuffix(r.URL.Path, "/")
		if m, ok := e.metrics.(*sglangMetrics); ok {
			m.active(r.Method, path, 1)
			defer m.active(r.Method, path, -1)
		}
		began, status := time.Now(), &statusWriter{ResponseWriter: w, status: http.StatusOK}
		defer func() { e.metrics.handled(r.Method, path, status.status, time.Since(began)) }()
		mux.ServeHTTP(status, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController flush and hijack.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// health stays 200 while a vLLM drains. SGLang answers 503 once it was told to
// end, and proves its health by generating a token when it has nothing to do:
// a probe is engine work, and its prefill is a report.
func (e *Engine) health(w http.ResponseWriter, r *http.Request) {
	if e.Faults().Health == "503" || e.options.Kind == SGLang && e.leaving() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	s := e.scheduler()
	if e.options.Kind == VLLM || s.size() > 0 {
		return
	}
	probe := &request{prompt: 1, limit: 1, rate: e.options.TokensPerSecond, progress: make(chan struct{}, 1)}
	s.submit(probe)
	select {
	case <-probe.progress:
	case <-e.cut:
	case <-r.Context().Done():
	}
}

func (e *Engine) listModels(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list"}
	for _, name := range e.options.Models {
		list.Data = append(list.Data, model{name, "model", time.Now().Unix(), string(e.options.Kind)})
	}
	writeJSON(w, http.StatusOK, list)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// metricsContentType is prometheus_client's.
const metricsContentType = "text/plain; version=0.0.4; charset=utf-8"

// writeMetrics answers /metrics as it is, with the faults that change its text.
func (e *Engine) writeMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", metricsContentType)
	_, _ = w.Write(e.metricsText())
}

// metricsText is the body of /metrics.
func (e *Engine) metricsText() []byte {
	faults := e.Faults()
	if faults.Metrics == "stale" {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.stale
	}
	size := e.options.MetricsBytes
	if faults.Metrics == "huge" {
		size = hugeBody
	}
	var b bytes.Buffer
	e.registry.write(&b, func(name string) bool {
		return faults.Metrics != "missing-gauges" || !strings.Contains(name, ":num_")
	})
	text := faults.override(b.Bytes(), e.options.Kind)
	return pad(text, size)
}

// pad adds the series of a busy front end until the body has size bytes.
func pad(text []byte, size int) []byte {
	if len(text) >= size {
		return text
	}
	b := bytes.NewBuffer(text)
	f := family{
		typ: "histogram", name: "http_response_size_bytes", help: "Content length of outgoing responses by handler.",
		buckets: requestTimes,
	}
	header(b, f.name, f.help, f.typ)
	for i := 0; b.Len() < size; i++ {
		s := &series{labels: labels{"handler": "/v1/adapters/" + pythonFloat(float64(i))}, counts: make([]float64, len(f.buckets)+1)}
		f.writeBuckets(b, s)
		sample(b, f.name+"_count", s.labels, 0)
		sample(b, f.name+"_sum", s.labels, 0)
	}
	return b.Bytes()
}
