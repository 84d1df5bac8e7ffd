package router

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// vllmDispatches counts when a worker is chosen, whatever the policy.
const vllmDispatches = "vllm_router_processed_requests_total"

// vllm is vllm-project/router. It ignores what becomes of a Pod's labels and readiness:
// only its API takes a worker out. Its load gauges are never looked at: most policies do
// not count, every tenth health check sets them to 0, and a removal freezes them.
type vllm struct{ clock clock.PassiveClock }

// Told: also what pairs workers takes them out when it is told, but cannot be told to
// take one back as what it was, and that it holds nothing for one cannot be shown.
func (vllm) Told(p Process) (told, drains bool) { return !startedWith(p).has(pairingFlags...), false }

func (f vllm) Look(ctx context.Context, client *http.Client, p Process, backends []Backend) []withdraw.Sighting {
	a := startedWith(p)
	v := call(ctx, client, f.clock, p, metricsOf(p, a, "127.0.0.1"), vllmDispatches)
	c := v.choices(vllmDispatches)
	return v.each(backends, func(b *Backend, s *withdraw.Sighting) { vllmSighting(&v, &c, a, b, s) })
}

func vllmSighting(v *visit, c *chosen, a args, b *Backend, s *withdraw.Sighting) {
	var why reasons
	own, unsure := v.roster.find(b)
	switch {
	case a.has("vllm-discovery-address"):
		why.add("its workers register themselves (--vllm-discovery-address), and no list says which of those it chooses from")
	case len(own) > 0:
		s.Membership = withdraw.Selectable
	case !a.known && (unsure == "" || unsure == nobody):
		why.add("its command line is not known, so its workers may register themselves")
	case unsure == nobody:
		s.Membership = withdraw.Emptied
		why.add(unsure)
	case unsure != "":
		why.add(unsure)
	default:
		s.Membership = withdraw.Absent
	}
	s.Returns = why.of(comesBack(a, b))
	s.Window = window(own)
	holds, held := vllmHolds(a, v.roster)
	s.Holds = why.of(holds, held)
	atSelection := withdraw.Unknown
	if s.Holds == withdraw.No {
		atSelection = withdraw.Yes
	}
	why.add("its load gauges do not count what is in flight")
	var uncounted string
	s.Dispatches, uncounted = c.of(b, own, atSelection)
	why.add(uncounted)
	s.Why = why.String()
}

// vllmHolds is whether a request that has a worker can wait for longer than the window.
func vllmHolds(a args, r *roster) (withdraw.Tri, string) {
	switch pairs(a, r) {
	case withdraw.Yes:
		return withdraw.Yes, "it holds a request for a decode worker while another prefills, and counts that nowhere"
	case withdraw.Unknown:
		return withdraw.Unknown, "its command line is not known, so it may hold requests while others prefill"
	case withdraw.No:
	}
	switch {
	case a.has("enable-program-scheduling"): // a program has one worker, and its requests wait for room there
		return withdraw.Yes, "it keeps requests for a worker until that has room (--enable-program-scheduling)"
	case !r.http:
		return withdraw.Unknown, "it is not known to speak HTTP to all workers, and how it sends otherwise is not known"
	}
	return withdraw.No, ""
}

// Withdraw removes every entry of the replica, and the one it would have if the list
// has not shown it. The router answers 200 or 404 where there is nothing to remove.
func (vllm) Withdraw(ctx context.Context, client *http.Client, p Process, b Backend) error {
	all, err := workers(ctx, client, p)
	if err != nil {
		return err
	}
	if all.paired {
		return errPaired
	}
	own, _ := all.find(&b)
	targets := urls(own)
	if len(own) == 0 {
		at, err := newURL(&b)
		if err != nil {
			return err
		}
		targets = []string{at}
	}
	var failed []error
	for _, at := range targets {
		failed = append(failed, tell(ctx, client, http.MethodDelete, p.URL, "/workers/"+url.PathEscape(at), nil, http.StatusNotFound))
	}
	return errors.Join(failed...)
}

func (vllm) Restore(ctx context.Context, client *http.Client, p Process, b Backend) error {
	return register(ctx, client, p, b, nil)
}
