package standin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Faults are what is wrong with the engine at the moment. The zero value is an
// engine without faults.
type Faults struct {
	// Metrics is what /metrics does instead of answering: one of MetricsFaults,
	// or empty.
	Metrics string `json:"metrics"`
	// Health "503" fails the health check.
	Health string `json:"health"`
	// ClientCert demands a client certificate of new connections (TLS only).
	ClientCert bool `json:"clientCert"`
	// IgnoreSIGTERM makes a SIGTERM that comes later do nothing.
	IgnoreSIGTERM bool `json:"ignoreSIGTERM"`
	// Gauges are shown with these values in every series, by family name.
	Gauges map[string]float64 `json:"gauges"`
}

// MetricsFaults are the values of Faults.Metrics, each with what it does.
var MetricsFaults = map[string]string{
	"refuse":               "the engine's port is closed; open connections live on",
	"hang":                 "no byte of an answer",
	"drip":                 "200, then a byte each half second for ever",
	"404":                  "404",
	"503":                  "503",
	"503-once":             "503 to the next read, then no fault",
	"garbage":              "200 with text that is not metrics",
	"missing-gauges":       "the gauges and counters of requests are left out",
	"stale":                "the text as it was when the fault was set",
	"busy":                 "one request running in every engine, whatever runs",
	"redirect-same-origin": "307 to /metrics/, which answers",
	"redirect-elsewhere":   "307 to the control port, which answers with a busy engine's text",
	"short-body":           "a Content-Length that the body does not reach",
	"huge":                 "the text padded to 2 MiB",
	"close":                "the connection is closed before a status line",
}

const hugeBody = 2 << 20

func (f Faults) check() error {
	if _, known := MetricsFaults[f.Metrics]; f.Metrics != "" && !known {
		return fmt.Errorf("metrics: %q is no fault; want one of %s", f.Metrics, strings.Join(slices.Sorted(maps.Keys(MetricsFaults)), ", "))
	}
	if f.Health != "" && f.Health != "503" {
		return fmt.Errorf("health: %q is no fault; want 503", f.Health)
	}
	return nil
}

// Faults returns what is wrong now.
func (e *Engine) Faults() Faults {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults
}

// SetFaults replaces all faults. With "refuse" the port is closed when it
// returns, and without it open.
func (e *Engine) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.Metrics == "stale" && e.Faults().Metrics != "stale" {
		text := e.metricsText()
		e.mu.Lock()
		e.stale = text
		e.mu.Unlock()
	}
	e.mu.Lock()
	e.faults = f
	e.mu.Unlock()
	if f.Metrics == "refuse" {
		e.listener.close()
		return nil
	}
	select {
	case <-e.ready:
		return e.listener.open()
	default: // still starting: it opens its port itself
		return nil
	}
}

// serveMetrics answers /metrics, or does what the fault says.
func (e *Engine) serveMetrics(w http.ResponseWriter, r *http.Request) {
	switch e.Faults().Metrics {
	case "hang":
		e.hold(r)
	case "drip":
		e.drip(w, r)
	case "404":
		http.NotFound(w, r)
	case "503":
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
	case "503-once":
		e.mu.Lock()
		e.faults.Metrics = ""
		e.mu.Unlock()
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
	case "garbage":
		_, _ = w.Write([]byte("<html><body>It works! {\"status\": 1} \xff\xfe</body></html>\n"))
	case "redirect-same-origin":
		http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
	case "redirect-elsewhere":
		http.Redirect(w, r, e.ControlURL()+"/metrics", http.StatusTemporaryRedirect)
	case "short-body":
		text := e.metricsText()
		w.Header().Set("Content-Type", metricsContentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		panic(http.ErrAbortHandler)
	case "close":
		panic(http.ErrAbortHandler)
	default:
		e.writeMetrics(w, r)
	}
}

// hold keeps a request without an answer until its client or the engine goes.
func (e *Engine) hold(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-e.cut:
	}
	panic(http.ErrAbortHandler)
}

func (e *Engine) drip(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", metricsContentType)
	out := http.NewResponseController(w)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := w.Write([]byte("#")); err != nil {
			return
		}
		_ = out.Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-e.cut:
			panic(http.ErrAbortHandler)
		}
	}
}

// override rewrites the values that the faults set.
func (f Faults) override(text []byte, kind Kind) []byte {
	values := maps.Clone(f.Gauges)
	if values == nil {
		values = map[string]float64{}
	}
	if f.Metrics == "busy" {
		values[runningGauge[kind]] = 1
	}
	if len(values) == 0 {
		return text
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		name, _, _ := bytes.Cut(line, []byte("{"))
		v, ok := values[string(name)]
		if !ok {
			out.Write(line)
			continue
		}
		i := bytes.LastIndexByte(line, ' ')
		fmt.Fprintf(&out, "%s %s\n", line[:i], pythonFloat(v))
	}
	return out.Bytes()
}

var runningGauge = map[Kind]string{VLLM: "vllm:num_requests_running", SGLang: "sglang:num_running_reqs"}

// controlHandler is the control port: GET and POST /faults, GET /state,
// POST /crash and POST /sigterm.
func (e *Engine) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.Faults()) })
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		// A field that is not sent keeps its value; {"metrics": ""} takes one back.
		f := e.Faults()
		f.Gauges = maps.Clone(f.Gauges)
		in := json.NewDecoder(r.Body)
		in.DisallowUnknownFields()
		err := in.Decode(&f)
		if err == nil {
			err = e.SetFaults(f)
		}
		if err != nil {
			writeError(w, http.StatusBadRequest, err.Error())
			return
		}
		writeJSON(w, http.StatusOK, f)
	})
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		if err := e.SetFaults(Faults{}); err != nil {
			writeError(w, http.StatusInternalServerError, err.Error())
		}
	})
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, e.State()) })
	mux.HandleFunc("POST /sigterm", func(http.ResponseWriter, *http.Request) { e.Terminate() })
	mux.HandleFunc("POST /crash", func(http.ResponseWriter, *http.Request) { e.Crash() })
	// Where redirect-elsewhere leads: a reader that follows it sees work.
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		var b bytes.Buffer
		e.registry.write(&b, func(string) bool { return true })
		_, _ = w.Write(Faults{Metrics: "busy"}.override(b.Bytes(), e.options.Kind))
	})
	return mux
}
