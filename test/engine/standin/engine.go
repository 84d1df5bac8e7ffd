package standin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// State counts what the engine has served. The control port answers it as JSON
// on GET /state.
type State struct {
	Started        int       `json:"started"`
	Completed      int       `json:"completed"`
	Aborted        int       `json:"aborted"`
	InFlight       int       `json:"inFlight"`
	LastRequestEnd time.Time `json:"lastRequestEnd,omitzero"`
	TerminatedAt   time.Time `json:"terminatedAt,omitzero"` // when SIGTERM arrived
}

// Engine is one stand-in. Make it with New and Run it, or Start it in a test.
type Engine struct {
	options    Options
	journal    *journal
	metrics    metrics
	registry   *registry
	schedulers []*scheduler
	listener   *listener // the engine's port
	control    *listener // nil without one

	ready      chan struct{} // closed when the engine's port is open
	terminated chan struct{} // closed at SIGTERM
	cut        chan struct{} // closed when what runs is cut
	done       chan struct{} // closed at the end
	ended      chan struct{} // holds one when a request ended

	mu       sync.Mutex
	state    State
	faults   Faults
	stale    []byte // the body that a stale /metrics keeps answering
	next     int    // requests seen
	exiting  bool
	exitCode int
}

// New makes an engine that does not serve yet.
func New(o Options) (*Engine, error) {
	o = o.withDefaults()
	e := &Engine{
		options: o, journal: &journal{out: o.Output},
		ready: make(chan struct{}), terminated: make(chan struct{}), cut: make(chan struct{}),
		done: make(chan struct{}), ended: make(chan struct{}, 1),
	}
	switch o.Kind {
	case VLLM:
		m := newVLLMMetrics(o)
		e.metrics, e.registry = m, m.registry
	case SGLang:
		m := newSGLangMetrics(o)
		e.metrics, e.registry = m, m.registry
	default:
		return nil, fmt.Errorf("engine kind %q: want %q or %q", o.Kind, VLLM, SGLang)
	}
	for rank := range o.DataParallel {
		e.schedulers = append(e.schedulers, newScheduler(rank, o, e.metrics))
	}
	tlsConfig, err := e.tlsConfig()
	if err != nil {
		return nil, err
	}
	e.listener = newListener(net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), e.handler(), tlsConfig)
	if o.ControlPort >= 0 {
		e.control = newListener(net.JoinHostPort("", strconv.Itoa(o.ControlPort)), e.controlHandler(), nil)
	}
	return e, nil
}

// Run serves until the engine has ended and returns its exit code. The end of
// ctx kills it.
func (e *Engine) Run(ctx context.Context) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.control != nil {
		if err := e.control.open(); err != nil {
			return 1, fmt.Errorf("opening the control port: %w", err)
		}
		defer e.control.shut()
	}
	e.start(ctx)
	select {
	case <-time.After(e.options.StartDelay):
		if err := e.listener.open(); err != nil {
			return 1, fmt.Errorf("opening the engine's port: %w", err)
		}
		e.journal.write(Event{Event: Listening, Address: e.URL()})
		close(e.ready)
		go e.leave(ctx)
	case <-e.terminated:
		e.exit(143, "terminated while loading")
	case <-ctx.Done():
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		e.exit(137, "killed")
	}
	return e.ExitCode(), nil
}

func (e *Engine) start(ctx context.Context) {
	for _, s := range e.schedulers {
		go s.run(ctx)
	}
}

// TB is the part of testing.TB that Start uses, named here so that the binary
// does not link the testing package.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start runs an engine on free ports, whatever ports o names, until the test
// ends. Without a host it is 127.0.0.1.
func Start(t TB, o Options) *Engine {
	t.Helper()
	o.Port, o.ControlPort = 0, 0
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	e, err := New(o)
	if err != nil {
		t.Fatalf("making a stand-in engine: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := e.Run(ctx)
		failed <- err
	}()
	select {
	case <-e.ready:
	case err := <-failed:
		t.Fatalf("starting a stand-in engine: %v", err)
	}
	t.Cleanup(func() {
		cancel()
		<-failed //nolint:errcheck // it serves no more, for whatever reason
	})
	return e
}

// URL is where the engine serves, with a host a client on this machine can use.
func (e *Engine) URL() string {
	scheme := "http"
	if e.options.KeyFile != "" {
		scheme = "https"
	}
	return scheme + "://" + e.listener.address()
}

// ControlURL is where POST /faults and GET /state are.
func (e *Engine) ControlURL() string {
	if e.control == nil {
		return "http://127.0.0.1:9" // the discard port: nothing answers
	}
	return "http://" + e.control.address()
}

// State returns the counters as they are now.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Done is closed when the engine has ended; ExitCode may then be read.
func (e *Engine) Done() <-chan struct{} { return e.done }

// ExitCode is what the process would have ended with.
func (e *Engine) ExitCode() int {
	<-e.done
	return e.exitCode
}

// scheduler picks the engine with the least to do.
func (e *Engine) scheduler() *scheduler {
	least := e.schedulers[0]
	for _, s := range e.schedulers[1:] {
		if s.size() < least.size() {
			least = s
		}
	}
	return least
}

// begin counts a request in and gives it a name.
func (e *Engine) begin(r *http.Request) string {
	e.mu.Lock()
	e.next++
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = "req-" + strconv.Itoa(e.next)
	}
	e.state.Started++
	e.state.InFlight++
	e.mu.Unlock()
	e.journal.write(Event{Event: RequestStarted, ID: id})
	return id
}

// end counts a request out; cutBy is empty for one that completed.
func (e *Engine) end(id string, tokens int, cutBy string) {
	at := e.journal.write(Event{Event: RequestEnded, ID: id, Tokens: tokens, Aborted: cutBy != "", Reason: cutBy})
	e.mu.Lock()
	e.state.InFlight--
	e.state.LastRequestEnd = at
	if cutBy == "" {
		e.state.Completed++
	} else {
		e.state.Aborted++
	}
	e.mu.Unlock()
	select {
	case e.ended <- struct{}{}:
	default:
	}
}
