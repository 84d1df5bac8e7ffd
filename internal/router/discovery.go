package router

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// The routers of vLLM and of SGLang have one ancestor: they discover Pods with the same
// flags and answer GET /workers in the same shape. This is what they have in common.

// visit is what one process of them answered.
type visit struct {
	sentAt, receivedAt time.Time
	run                string
	roster             *roster
	rosterErr          error
	page               page
	pageErr            error
}

// call asks a process for its workers and then for its metrics. One that does not
// answer the first is not asked again: it would only take as long once more.
func call(ctx context.Context, client *http.Client, c clock.PassiveClock, p Process, metrics string, families ...string) visit {
	v := visit{sentAt: c.Now(), run: p.Run}
	v.roster, v.rosterErr = workers(ctx, client, p)
	switch {
	case v.rosterErr != nil:
		v.pageErr = v.rosterErr
	case metrics == "":
		v.pageErr = errors.New("where its metrics are is not known")
	default:
		var body []byte
		if body, v.pageErr = get(ctx, client, metrics, "/metrics"); v.pageErr == nil {
			v.page, v.pageErr = readPage(body, families...)
		}
	}
	v.run = v.page.run(v.run)
	v.receivedAt = c.Now()
	return v
}

func workers(ctx context.Context, client *http.Client, p Process) (*roster, error) {
	body, err := get(ctx, client, p.URL, "/workers")
	if err != nil {
		return nil, err
	}
	return readRoster(body)
}

// startedWith is the command line of such a process.
func startedWith(p Process) args {
	a := newArgs(p.Args)
	a.known = a.known && !a.has("config", "config-file")
	return a
}

// metricsOf is where a process has its metrics: where it is said, or else on the port
// that it was told, if it was told to serve it to others. host is what it listens on by
// default.
func metricsOf(p Process, a args, host string) string {
	if p.Metrics != "" {
		return p.Metrics
	}
	at, err := url.Parse(p.URL)
	if told := a.value("prometheus-host"); told != "" {
		host = told
	}
	port := a.value("prometheus-port")
	if port == "" {
		port = "29000"
	}
	if err != nil || !a.known || host != "0.0.0.0" && host != "::" && host != at.Hostname() {
		return ""
	}
	at.Scheme, at.Host = "http", net.JoinHostPort(at.Hostname(), port) // whatever the API is served over
	return at.String()
}

var (
	selectorFlags = []string{"selector", "prefill-selector", "decode-selector", "encode-selector"}
	staticFlags   = []string{"worker-urls", "worker-url", "prefill", "decode", "encode"}
	pairingFlags  = []string{
		"pd-disaggregation", "vllm-pd-disaggregation", "epd-disaggregation", "prefill", "decode", "encode",
		"prefill-selector", "decode-selector", "encode-selector",
	}
)

// comesBack is whether a replica that a process does not list would be listed again by
// itself. A selector that its labels match brings it back when the Pod changes or the
// process restarts, and so does the command line that names it.
func comesBack(a args, b *Backend) (withdraw.Tri, string) {
	if !a.known {
		return withdraw.Unknown, "its command line is not known, so it may discover the replica again"
	}
	static, ok := a.named(staticFlags...)
	if !ok {
		return withdraw.Unknown, "its command line names workers by host name, and which Pods those are cannot be told"
	}
	for _, at := range static {
		if slices.ContainsFunc(b.Addrs, func(own netip.Addr) bool { return own.Unmap() == at.Addr() }) {
			return withdraw.Yes, "its command line names the replica"
		}
	}
	selectors, ok := a.selectors(selectorFlags...)
	switch {
	case !ok:
		return withdraw.Unknown, "its selector cannot be read"
	case len(selectors) == 0:
		return withdraw.Unknown, "it has no selector, so who adds its workers is not known"
	case len(b.Labels) == 0:
		return withdraw.Unknown, "the labels of the replica are not known"
	case slices.ContainsFunc(selectors, func(s selector) bool { return s.matches(b.Labels) }):
		return withdraw.Yes, "its selector still matches the labels of the replica"
	}
	return withdraw.No, ""
}

const (
	// httpWindow is the 10 s of a connect, and the moments around it: vllm-router chooses
	// within 2 s.
	httpWindow = 12 * time.Second
	// grpcWindow is for a connect of 10 s and for building the request, which fetches
	// images, both between choosing a worker and counting for it.
	grpcWindow = 30 * time.Second
)

// window is that of a replica by its entries, and the longest there is where it has none:
// what others are says nothing of it.
func window(own []*worker) time.Duration {
	if len(own) == 0 || slices.ContainsFunc(own, func(w *worker) bool { return !w.http() }) {
		return grpcWindow
	}
	return httpWindow
}

// pairs is whether a process sends a request to a prefill worker and to a decode worker.
func pairs(a args, r *roster) withdraw.Tri {
	switch {
	case r.paired, a.has(pairingFlags...):
		return withdraw.Yes
	case !a.known:
		return withdraw.Unknown
	}
	return withdraw.No
}

// chosen is how often a process has chosen each worker, by where the worker is.
type chosen struct {
	by map[netip.AddrPort]tally
	// why is why that is not known; empty where it is.
	why string
}

// choices reads the first of some families that has any series.
func (v *visit) choices(families ...string) chosen {
	if v.pageErr != nil {
		return chosen{why: "its dispatches are not known: " + v.pageErr.Error()}
	}
	all := v.page.first(families...)
	if len(all) == 0 {
		return chosen{why: "its metrics have no " + strings.Join(families, " or ")}
	}
	c := chosen{by: make(map[netip.AddrPort]tally, len(all))}
	for i := range all {
		for _, at := range locate(all[i].label("worker")) {
			t := c.by[at]
			t.add(all[i].value)
			c.by[at] = t
		}
	}
	return c
}

// of is the counter of a replica, all its ranks together. A worker that was never
// chosen has no series yet, where others have.
func (c *chosen) of(b *Backend, own []*worker, atSelection withdraw.Tri) (withdraw.Counter, string) {
	if c.why != "" {
		return withdraw.Counter{}, c.why
	}
	var places []netip.AddrPort
	for _, addr := range b.Addrs {
		places = append(places, netip.AddrPortFrom(addr.Unmap(), b.Port))
	}
	for _, w := range own {
		places = append(places, w.at...)
	}
	slices.SortFunc(places, netip.AddrPort.Compare)
	var all tally
	for _, at := range slices.Compact(places) {
		all.join(c.by[at])
	}
	if all.broken {
		return withdraw.Counter{}, "its dispatches to the replica are no whole number"
	}
	return withdraw.Counter{Known: true, Value: all.sum, AtSelection: atSelection}, ""
}

// errPaired keeps a worker listed that could not be listed again as what it was.
var errPaired = errors.New("it pairs workers that prefill and decode, and would list one again as neither")

// register tells a process to list a replica, unless it does.
func register(ctx context.Context, client *http.Client, p Process, b Backend, labels map[string]string) error {
	all, err := workers(ctx, client, p)
	if err != nil {
		return err
	}
	own, _ := all.find(&b)
	if slices.ContainsFunc(own, func(w *worker) bool { return w.status == draining }) {
		return errors.New("it is still taking the replica out, and can list it again only after that")
	}
	if len(own) > 0 {
		return nil
	}
	at, err := newURL(&b)
	if err != nil {
		return err
	}
	body, err := json.Marshal(struct {
		URL    string            `json:"url"`
		Labels map[string]string `json:"labels,omitempty"`
	}{at, labels})
	if err != nil {
		return err
	}
	return tell(ctx, client, http.MethodPost, p.URL, "/workers", body, http.StatusConflict)
}

// each is a sighting of every replica, and say adds what the list of workers tells of
// it; where there is no list, nothing is known.
func (v *visit) each(backends []Backend, say func(b *Backend, s *withdraw.Sighting)) []withdraw.Sighting {
	all := make([]withdraw.Sighting, len(backends))
	for i := range backends {
		s := &all[i]
		s.SentAt, s.ReceivedAt, s.Run, s.Answered = v.sentAt, v.receivedAt, v.run, answered(v.rosterErr)
		if v.rosterErr != nil {
			s.Why = v.rosterErr.Error()
			continue
		}
		say(&backends[i], s)
	}
	return all
}
