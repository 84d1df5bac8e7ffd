package fake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	mostBody    = 16 << 20
	backoffBase = 50 * time.Millisecond
)

// retried are the statuses after which another worker is tried.
var retried = []int{
	http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// request is a client's, as it is sent on.
type request struct {
	path   string
	header http.Header
	body   []byte
	id     string
	// listed are the workers of the first attempt, the one that was chosen first.
	listed []*worker
}

var errNoWorkers = errors.New("no available workers (all circuits open or unhealthy)")

// complete sends a request on and its answer back.
func (p *process) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	q := &request{path: r.URL.Path, header: r.Header.Clone(), body: body, id: p.requestID(r)}
	q.header.Del("Content-Length")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)() // a process that ends cuts what it has open
	attempts := 1
	if p.traits.retries && (p.options.PD == "" || p.traits.retriesPair) {
		attempts = p.options.Retries
	}
	for n := range attempts {
		if n > 0 && !p.backOff(ctx, r.URL.Path, n) {
			break
		}
		if p.attempt(ctx, w, q, n, n == attempts-1) {
			return
		}
	}
	panic(http.ErrAbortHandler) // cut while it waited for another attempt
}

// attempt chooses workers, sends the request and, unless there should be another attempt,
// the answer. It reports whether the client was answered.
func (p *process) attempt(ctx context.Context, w http.ResponseWriter, q *request, n int, last bool) (answered bool) {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	c, err := p.choose(ctx, q, n)
	if err != nil {
		p.refuse(w, http.StatusServiceUnavailable, err.Error())
		return true
	}
	left := false
	defer func() { p.end(c, left) }()
	res, err := p.dispatch(ctx, q, c, &beside)
	if err != nil {
		left = ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded)
		switch {
		case left:
			panic(http.ErrAbortHandler)
		case !last:
			return false
		}
		p.refuse(w, http.StatusInternalServerError, "Request failed: "+err.Error())
		return true
	}
	defer res.Body.Close() //nolint:errcheck // only read
	if slices.Contains(retried, res.StatusCode) && !last {
		return false
	}
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	if err := relay(w, res.Body); err != nil {
		left = ctx.Err() != nil
		panic(http.ErrAbortHandler) // the client must see that the answer is not whole
	}
	return true
}

// choose lists the workers that can be chosen and takes one, or a pair. n is how many
// attempts there were before.
func (p *process) choose(ctx context.Context, q *request, n int) (*choice, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &choice{id: q.id}
	switch {
	case p.options.Family == LLMD && p.faults.on(FailOpen, ""):
		c.unasked = true
		if c.worker = p.unasked(); c.worker == nil {
			return nil, errNoWorkers
		}
	case n > 0 && p.options.PD == "" && p.faults.on(StaleRetry, ""):
		c.worker = q.listed[n%len(q.listed)]
	default:
		if err := p.chooseListed(ctx, q, c); err != nil {
			return nil, err
		}
	}
	p.turns++
	if !c.unasked {
		p.books.chosen(c)
	}
	if p.options.Family == LLMD {
		p.upstream(c.worker, 1, 1)
	}
	return c, nil
}

// chooseListed chooses from what is listed. The lock is let go between the two when that
// takes time.
func (p *process) chooseListed(ctx context.Context, q *request, c *choice) error {
	needs := []Role{Regular}
	if p.options.PD != "" {
		needs = []Role{Decode, Prefill}
	}
	var can [2][]*worker
	for i, role := range needs {
		can[i] = candidates(p.workers, role, p.options.Family, p.filter, p.clock.Now())
		if len(can[i]) == 0 {
			return errNoWorkers
		}
	}
	if f, on := p.faults.of(StalePick, ""); on {
		p.waiting++
		p.mu.Unlock()
		waited := p.wait(ctx, f.duration(400*time.Millisecond))
		p.mu.Lock()
		p.waiting--
		if !waited {
			return ctx.Err()
		}
	}
	if p.options.Family == LLMD {
		for _, w := range p.workers {
			w.load = p.books.load(w)
		}
	}
	c.worker = pick(p.options.Policy, can[0], p.turns)
	if len(needs) == 2 {
		c.prefill = pick(p.options.Policy, can[1], p.turns)
	}
	if q.listed == nil {
		i := slices.Index(can[0], c.worker)
		q.listed = append(slices.Clone(can[0][i:]), can[0][:i]...)
	}
	return nil
}

// unasked is the gateway's own choice when its picker does not answer: any Ready Pod that
// the pool's selector takes, whatever else is said of it.
func (p *process) unasked() *worker {
	var can []*worker
	for _, key := range slices.Sorted(maps.Keys(p.pods)) {
		pod := p.pods[key]
		if info, ok := p.selection.info(pod); ok && info.ready && !info.terminating {
			info.ports = p.options.Ports
			can = append(can, &worker{url: info.url(0), pod: info, status: Ready})
		}
	}
	if len(can) == 0 {
		return nil
	}
	return can[p.turns%len(can)]
}

// end takes a request off the books.
func (p *process) end(c *choice, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !c.unasked {
		p.books.ended(c, left)
	}
	if p.options.Family == LLMD {
		p.upstream(c.worker, -1, 0)
	}
}

// dispatch sends the request to what was chosen, and returns when the answer begins. What
// goes on beside that ends with ctx.
func (p *process) dispatch(ctx context.Context, q *request, c *choice, beside *sync.WaitGroup) (*http.Response, error) {
	switch {
	case c.prefill == nil:
	case p.options.PD == Dual:
		beside.Go(func() { _ = p.prefill(ctx, q, c) })
	default:
		if err := p.prefill(ctx, q, c); err != nil {
			return nil, err
		}
		if err := p.hold(ctx, c); err != nil {
			return nil, err
		}
	}
	p.note(c, books.dispatched)
	res, err := p.send(ctx, c.worker, p.decodeHeader(q, c), q.path, q.body)
	if err != nil && ctx.Err() == nil && p.traits.resends {
		// A kept connection that the worker had closed: once more, to the same worker.
		res, err = p.send(ctx, c.worker, p.decodeHeader(q, c), q.path, q.body)
	}
	if err != nil {
		p.note(c, books.unsent)
		return nil, err
	}
	p.note(c, books.answering)
	return res, nil
}

func (p *process) note(c *choice, moment func(books, *choice)) {
	if c.unasked {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	moment(p.books, c)
}

// send sends a body to a worker and reports to its breaker what came of it.
func (p *process) send(ctx context.Context, w *worker, header http.Header, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header.Clone()
	if _, rank, has := cutRank(w.url); has {
		req.Header.Set("X-Data-Parallel-Rank", rank)
	}
	res, err := p.client.Do(req)
	p.outcome(w, err == nil && res.StatusCode < http.StatusInternalServerError)
	return res, err
}

func (p *process) outcome(w *worker, success bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	outcome := "success"
	if success {
		w.failures = 0
	} else {
		outcome = "failure"
		if p.traits.retries { // who retries has breakers
			w.failed(p.clock.Now())
		}
	}
	name := map[Family]string{
		VLLMRouter: "vllm_router_cb_outcomes_total", SGLModelGateway: "sgl_router_cb_outcomes_total", SMG: "smg_worker_cb_outcomes_total",
	}[p.options.Family]
	if name != "" {
		p.metrics.count(name, labelled("worker", w.url, "outcome", outcome))
	}
}

// backOff waits before the n-th attempt after the first.
func (p *process) backOff(ctx context.Context, route string, n int) bool {
	p.mu.Lock()
	switch p.options.Family {
	case VLLMRouter:
		p.metrics.count("vllm_router_retries_total", labelled("route", route))
	case SGLModelGateway:
		p.metrics.count("sgl_router_retries_total", labelled("route", route))
	case SMG:
		p.metrics.count("smg_worker_retries_total", labelled("worker_type", "regular", "endpoint", route))
	}
	p.mu.Unlock()
	return p.wait(ctx, backoffBase<<(n-1))
}

// wait reports whether so much time passed before ctx was done.
func (p *process) wait(ctx context.Context, d time.Duration) bool {
	timer := p.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// relay sends an answer on as it comes.
func relay(w http.ResponseWriter, body io.Reader) error {
	out := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// requestID is the client's own where it sends one.
func (p *process) requestID(r *http.Request) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.on(DuplicateRequestID, "") {
		return "duplicate"
	}
	if id := r.Header.Get("X-Request-Id"); id != "" {
		return id
	}
	return string(uuid.NewUUID())
}

func (p *process) refuse(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{"type": http.StatusText(status), "code": strconv.Itoa(status), "message": message}})
}
