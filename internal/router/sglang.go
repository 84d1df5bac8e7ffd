package router

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// draining is the status of a worker that is on its way out: it is not chosen and not
// probed any more, and nothing but its removal ends that.
const draining = "draining"

// sglangDispatches count when a request is sent, in SMG and in what came before it.
var sglangDispatches = []string{"smg_worker_requests_total", "sgl_router_processed_requests_total"}

// sglang is the gateway of SGLang: SMG, and sgl-model-gateway, which it grew out of.
type sglang struct{ clock clock.PassiveClock }

// Told: sgl-model-gateway ignores what becomes of a Pod's labels. SMG follows them, up
// to 1.9.0 within a minute only, so it is told; later ones discover again what was
// removed from them, and a removal beside that of the label would cut short the time in
// which the worker drains.
func (sglang) Told(p Process) (told, drains bool) {
	g := newGateway(p)
	return g.told(), g.base == smg
}

func (f sglang) Look(ctx context.Context, client *http.Client, p Process, backends []Backend) []withdraw.Sighting {
	g := newGateway(p)
	host := "127.0.0.1"
	if g.base == smg {
		host = "0.0.0.0"
	}
	v := call(ctx, client, f.clock, p, metricsOf(p, g.args, host), sglangDispatches...)
	if v.roster != nil {
		g = g.answering(v.roster)
	}
	c := v.choices(sglangDispatches...)
	return v.each(backends, func(b *Backend, s *withdraw.Sighting) { sglangSighting(&v, &c, g, b, s) })
}

func sglangSighting(v *visit, c *chosen, g gateway, b *Backend, s *withdraw.Sighting) {
	var why reasons
	own, unsure := v.roster.find(b)
	leaving := g.base == smg && len(own) > 0 && !slices.ContainsFunc(own, func(w *worker) bool { return w.status != draining })
	switch {
	case leaving && v.roster.whole:
		s.Membership = withdraw.Unselectable
	case len(own) > 0 && !leaving:
		s.Membership = withdraw.Selectable
	case leaving:
		why.add("its list of workers is not whole")
	case unsure == nobody:
		s.Membership = withdraw.Emptied
		why.add(unsure)
	case unsure != "":
		why.add(unsure)
	default:
		s.Membership = withdraw.Absent
	}
	s.Returns = why.of(comesBack(g.args, b))
	s.Window = window(own)
	s.Holds = why.of(g.holds(v.roster))
	if len(own) > 0 {
		var uncounted string
		s.InFlight, uncounted = g.inFlight(own)
		why.add(uncounted)
	}
	var uncounted string
	s.Dispatches, uncounted = c.of(b, own, withdraw.Unknown)
	why.add(uncounted)
	s.Why = why.String()
}

// Withdraw asks for the removal of each entry of the replica, once: a worker that
// drains already would be removed at once if it was asked for again.
func (sglang) Withdraw(ctx context.Context, client *http.Client, p Process, b Backend) error {
	if !newGateway(p).told() {
		return errors.New("it follows the labels of the replica, or may, and is not to be told")
	}
	all, err := workers(ctx, client, p)
	if err != nil {
		return err
	}
	own, unsure := all.find(&b)
	switch {
	case unsure != "":
		return errors.New(unsure)
	case all.paired:
		return errPaired
	}
	var targets []string
	for _, w := range own {
		switch {
		case w.status == draining:
		case w.id != "":
			targets = append(targets, w.id)
		default:
			targets = append(targets, urls([]*worker{w})...)
		}
	}
	slices.Sort(targets)
	var failed []error
	for _, id := range slices.Compact(targets) {
		failed = append(failed, tell(ctx, client, http.MethodDelete, p.URL, "/workers/"+url.PathEscape(id), nil, http.StatusNotFound))
	}
	return errors.Join(failed...)
}

// Restore lists the replica where its removal was told, since it is not discovered
// again there. Elsewhere a worker that was added by hand would be one that no change of
// labels ever removes.
func (sglang) Restore(ctx context.Context, client *http.Client, p Process, b Backend) error {
	g := newGateway(p)
	if !g.told() {
		return nil
	}
	var labels map[string]string
	if g.base == smg && b.UID != "" { // or its discovery would not take it out with its Pod
		labels = map[string]string{labelPodUID: string(b.UID), labelPodName: b.Name}
	}
	return register(ctx, client, p, b, labels)
}
