package fake

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Router is one fake. Make it with New and Run it, or Start it in a test.
type Router struct {
	options Options
	traits  traits
	clock   clock.WithTicker
	source  Source
	client  *http.Client
	log     *slog.Logger
	restart func()
	// asked is told of each request that anybody makes; nil where nobody wants to know.
	asked func(*http.Request)

	listeners [3]net.Listener // Listen, Metrics, Admin

	mu      sync.Mutex
	process *process
	former  sync.WaitGroup // processes that were replaced
}

// New makes a router that follows the Pods of source and logs to out. restart is what the
// fault does to it: end the program, for one that is started again by somebody.
func New(o Options, source Source, out io.Writer, restart func()) (*Router, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	t, err := traitsOf(o)
	if err != nil {
		return nil, err
	}
	return &Router{
		options: o, traits: t, clock: clock.RealClock{}, source: source, restart: restart,
		log: slog.New(slog.NewJSONHandler(out, nil)),
		client: &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, MaxIdleConnsPerHost: 500, IdleConnTimeout: 50 * time.Second,
		}},
	}, nil
}

// ReachEngines has it send what it sends to engines through a transport of the caller's,
// and not over the network. Call it before Run.
func (r *Router) ReachEngines(through http.RoundTripper) { r.client.Transport = through }

// TellRequests has somebody told of every request that is made of it, by clients and by
// who asks it, before that is answered. Call it before Run.
func (r *Router) TellRequests(to func(*http.Request)) { r.asked = to }

// listen opens the ports.
func (r *Router) listen() error {
	for i, address := range []string{r.options.Listen, r.options.Metrics, r.options.Admin} {
		if address == "" {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		r.listeners[i] = l
	}
	return nil
}

// Run serves until ctx is done. Then it takes no more connections and waits for what is
// open, as the real routers do, until cut is done.
func (r *Router) Run(ctx, cut context.Context) error {
	if err := r.listen(); err != nil {
		return err
	}
	r.begin(cut)
	return r.serve(ctx, cut)
}

func (r *Router) serve(ctx, cut context.Context) error {
	defer func() {
		r.current().stop()
		r.former.Wait()
	}()
	defer r.client.CloseIdleConnections()
	handlers := []func(*process) http.Handler{
		(*process).control, (*process).numbers,
		func(p *process) http.Handler { return http.HandlerFunc(p.clusters) },
	}
	failed := make(chan error, len(handlers))
	var servers []*http.Server
	for i, handler := range handlers {
		if r.listeners[i] == nil {
			continue
		}
		server := &http.Server{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if r.asked != nil {
					r.asked(req)
				}
				handler(r.current()).ServeHTTP(w, req)
			}),
			ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		}
		servers = append(servers, server)
		go func() { failed <- server.Serve(r.listeners[i]) }()
	}
	r.log.Info("listening", "family", string(r.options.Family), "version", r.options.Version, "control", r.URL(), "metrics", r.MetricsURL())
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	var closing sync.WaitGroup
	for _, server := range servers {
		closing.Go(func() {
			if server.Shutdown(cut) != nil {
				_ = server.Close()
			}
		})
	}
	closing.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// begin starts a process in the place of the one before, whose open requests are cut. The
// channel is closed when it has seen the Pods there are.
func (r *Router) begin(ctx context.Context) (listed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if was := r.process; was != nil {
		r.former.Go(was.stop)
	}
	r.process = newProcess(ctx, r)
	r.process.start()
	return r.process.listed
}

func (r *Router) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// URL is where clients and the control API are, MetricsURL where the metrics, and
// AdminURL where the gateway's Envoy is; from this machine.
func (r *Router) URL() string { return r.url(0) }

// MetricsURL is where the metrics are.
func (r *Router) MetricsURL() string { return r.url(1) }

// AdminURL is where the gateway's Envoy answers its administrator.
func (r *Router) AdminURL() string { return r.url(2) }

func (r *Router) url(i int) string {
	if r.listeners[i] == nil {
		return ""
	}
	host, port, _ := net.SplitHostPort(r.listeners[i].Addr().String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Set turns a fault on or off, as POST /fault does.
func (r *Router) Set(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.Name == Restart && !f.Off {
		r.restart()
		return nil
	}
	return r.current().setFault(f)
}
