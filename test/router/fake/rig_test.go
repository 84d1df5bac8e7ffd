package fake

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// rig is a router in front of engines.
type rig struct {
	*Router
	t       *testing.T
	script  *Script
	clock   *clocktesting.FakeClock // nil where time passes by itself
	engines []*engine
}

func play(t *testing.T, o Options, n int, changes ...func(*corev1.Pod)) *rig {
	t.Helper()
	return playAt(t, o, nil, engines(t, n), changes...)
}

// stopped is a rig in which time passes only when the test says so.
func stopped(t *testing.T, o Options, n int, changes ...func(*corev1.Pod)) *rig {
	t.Helper()
	return playAt(t, o, clocktesting.NewFakeClock(time.Now()), engines(t, n), changes...)
}

func playAt(t *testing.T, o Options, clock *clocktesting.FakeClock, all []*engine, changes ...func(*corev1.Pod)) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{t: t, engines: all, clock: clock}
	var pods []*corev1.Pod
	for _, e := range all {
		e.pod = with(e.pod, changes...)
		pods = append(pods, e.pod)
	}
	r.script = NewScript(pods...)
	o.Ports = []int{portOf(all)}
	if o.PD == "" || o.Family == LLMD {
		o.Selector = "app=engine"
	}
	if clock == nil {
		r.Router = Start(t, o, r.script, nil)
	} else {
		r.Router = Start(t, o, r.script, clock)
	}
	return r
}

// pair gives the first engine the prefill role and the others decode.
func pairOf(t *testing.T, o Options, n int) *rig {
	t.Helper()
	all := engines(t, n)
	for i, e := range all {
		role := "decode"
		if i == 0 {
			role = "prefill"
		}
		e.pod = with(e.pod, label("role", role), label(roleLabel, role))
	}
	o.PrefillSelector, o.DecodeSelector = "role=prefill", "role=decode"
	if o.Family == LLMD {
		o.PrefillSelector, o.DecodeSelector = "", ""
	}
	return playAt(t, o, nil, all)
}

func (r *rig) step(d time.Duration) { r.clock.Step(d) }

// do sends a request and returns the status and the body.
func (r *rig) do(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.URL()+path, strings.NewReader(body))
	require.NoError(r.t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer res.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res.StatusCode, string(text)
}

// served is which Pod answers a request; empty where none does.
func (r *rig) served(headers ...string) string {
	r.t.Helper()
	return r.servedTo(r.post(r.t.Context(), `{"prompt": "x"}`, headers...))
}

func (r *rig) servedTo(res *http.Response, err error) string {
	r.t.Helper()
	require.NoError(r.t, err)
	defer res.Body.Close() //nolint:errcheck // read below
	_, err = io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res.Header.Get("X-Served-By")
}

func (r *rig) post(ctx context.Context, body string, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL()+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return http.DefaultClient.Do(req)
}

// stream is a request whose answer has begun.
type stream struct {
	t      *testing.T
	body   *bufio.Reader
	by     string
	leave  context.CancelFunc
	closed func() error
}

// open begins a stream and returns when its first line is there.
func (r *rig) open(headers ...string) *stream {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	r.t.Cleanup(leave)
	res, err := r.post(ctx, `{"prompt": "x", "stream": true}`, headers...)
	require.NoError(r.t, err)
	s := &stream{t: r.t, body: bufio.NewReader(res.Body), by: res.Header.Get("X-Served-By"), leave: leave, closed: res.Body.Close}
	line, err := s.body.ReadString('\n')
	require.NoError(r.t, err)
	require.Equal(r.t, "data: first\n", line)
	return s
}

// whole reads to the end and reports whether nothing was cut.
func (s *stream) whole() bool {
	s.t.Helper()
	rest, err := io.ReadAll(s.body)
	_ = s.closed()
	return err == nil && strings.HasSuffix(string(rest), "data: [DONE]\n\n")
}

// begin sends a stream whose answer is not waited for.
func (r *rig) begin(headers ...string) (served <-chan string) {
	done := make(chan string, 1)
	go func() {
		res, err := r.post(r.t.Context(), `{"prompt": "x", "stream": true}`, headers...)
		if err != nil {
			done <- err.Error()
			return
		}
		_, _ = io.ReadAll(res.Body)
		_ = res.Body.Close()
		done <- res.Header.Get("X-Served-By")
	}()
	return done
}

// listedWorker is a worker as either API shows it.
type listedWorker struct {
	ID     string            `json:"id"`
	URL    string            `json:"url"`
	Type   string            `json:"worker_type"`
	Load   int64             `json:"load"`
	Status string            `json:"status"`
	Is     bool              `json:"is_healthy"`
	Labels map[string]string `json:"labels"`
}

func (r *rig) list() (workers []listedWorker) {
	r.t.Helper()
	status, body := r.do(http.MethodGet, "/workers", "")
	require.Equal(r.t, http.StatusOK, status)
	var answer struct{ Workers []listedWorker }
	require.NoError(r.t, json.Unmarshal([]byte(body), &answer))
	return answer.Workers
}

// has is the engine's worker, or nil.
func (r *rig) has(e *engine) *listedWorker {
	r.t.Helper()
	for _, w := range r.list() {
		if strings.HasPrefix(w.URL, e.url()) {
			return &w
		}
	}
	return nil
}

func (e *engine) url() string { return "http://" + e.host }

// path is that of a worker in the API.
func (r *rig) path(e *engine) string {
	r.t.Helper()
	if r.options.Family == VLLMRouter {
		return "/workers/" + url.QueryEscape(e.url())
	}
	w := r.has(e)
	require.NotNil(r.t, w)
	return "/workers/" + w.ID
}

func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// metric is a sample by its name and labels as they are written; ok is false without it.
func (r *rig) metric(sample string) (v float64, ok bool) {
	r.t.Helper()
	for line := range strings.Lines(r.text()) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), sample+" "); found {
			v, err := strconv.ParseFloat(value, 64)
			require.NoError(r.t, err)
			return v, true
		}
	}
	return 0, false
}

func (r *rig) text() string {
	r.t.Helper()
	res, err := http.Get(r.MetricsURL() + "/metrics")
	require.NoError(r.t, err)
	defer res.Body.Close() //nolint:errcheck // read below
	body, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return string(body)
}

// sample is one that must be there.
func (r *rig) sample(sample string) float64 {
	r.t.Helper()
	v, ok := r.metric(sample)
	require.True(r.t, ok, "no %s in\n%s", sample, r.text())
	return v
}

func (r *rig) fault(f Fault) {
	r.t.Helper()
	body, err := json.Marshal(f)
	require.NoError(r.t, err)
	was := r.current()
	status, text := r.do(http.MethodPost, "/fault", string(body))
	require.Equal(r.t, http.StatusOK, status, text)
	if f.Name == Restart { // which is answered before it happens
		r.eventually("another process", func() bool { return r.current() != was })
		<-r.current().listed
	}
}

// eventually waits for what another goroutine does.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	require.Eventually(r.t, ok, soon, time.Millisecond, what)
}

func byWorker(name string, e *engine) string {
	return fmt.Sprintf("%s{worker=%q}", name, e.url())
}

func fakeClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Now()) }

func readAll(t *testing.T, res *http.Response) string {
	t.Helper()
	defer res.Body.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}
