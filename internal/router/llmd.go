package router

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// llmdWindow is how long the data producers can take that run between looking for
// endpoints and choosing one. The gateway sends to the chosen one at once.
const llmdWindow = 5 * time.Second

// llmdRole is the label by which an endpoint prefills or decodes for others.
const llmdRole = "llm-d.ai/role"

// The series of an endpoint picker, in both generations of names.
const (
	llmdInFlight = "llm_d_epp_inflight_requests"
	llmdRunning  = "llm_d_epp_request_running"
)

var (
	// llmdEndpoints list the pool's endpoints, made from what it can choose of at the
	// moment that it is asked. The key is the label that names one.
	llmdEndpoints = map[string]string{
		"llm_d_epp_per_endpoint_queue_size": "model_server_endpoint",
		"inference_pool_per_pod_queue_size": "model_server_pod",
	}
	llmdPicks = []string{"llm_d_epp_scheduler_attempts_total", "inference_extension_scheduler_attempts_total"}
)

// llmd is the endpoint picker of llm-d, and of the Gateway API inference extension that
// it comes from. It follows a Pod's labels and readiness, so it is told nothing. In a
// pool with prefill workers the one who holds a request is a sidecar in the Pod of the
// decode worker, which has no metrics of it.
type llmd struct{ clock clock.PassiveClock }

func (llmd) Told(Process) (told, drains bool) { return false, false }

func (llmd) Withdraw(context.Context, *http.Client, Process, Backend) error {
	return errors.New("it follows the labels of the replica, and has no API to tell it anything")
}

// Restore has nothing to tell: the labels do.
func (llmd) Restore(context.Context, *http.Client, Process, Backend) error { return nil }

func (f llmd) Look(ctx context.Context, client *http.Client, p Process, backends []Backend) []withdraw.Sighting {
	all := make([]withdraw.Sighting, len(backends))
	sent := f.clock.Now()
	pg, err := llmdPage(ctx, client, cmp.Or(p.Metrics, p.URL))
	received := f.clock.Now()
	if err != nil {
		for i := range all {
			all[i] = withdraw.Sighting{SentAt: sent, ReceivedAt: received, Run: p.Run, Answered: answered(err), Why: err.Error()}
		}
		return all
	}
	e := newPicker(p, pg)
	run := pg.run(p.Run)
	for i := range backends {
		all[i] = e.sighting(&backends[i])
		all[i].SentAt, all[i].ReceivedAt, all[i].Run, all[i].Answered = sent, received, run, true
	}
	return all
}

func llmdPage(ctx context.Context, client *http.Client, base string) (page, error) {
	families := append([]string{llmdInFlight, llmdRunning}, llmdPicks...)
	for name := range llmdEndpoints {
		families = append(families, name)
	}
	body, err := get(ctx, client, base, "/metrics")
	if err != nil {
		return nil, err
	}
	return readPage(body, families...)
}

// sighting is what the picker says of a replica.
func (e *picker) sighting(b *Backend) withdraw.Sighting {
	s := withdraw.Sighting{Window: llmdWindow, Whole: e.whole}
	var why reasons
	var reason string
	s.Membership, reason = e.membership(b)
	why.add(reason)
	s.Returns = why.of(e.comesBack(b, s.Membership))
	s.Holds = why.of(e.holds(b))
	s.HeldOutside = s.Holds != withdraw.No // by a sidecar or the gateway
	s.InFlight, reason = e.inFlight(b, s.Membership)
	why.add(reason)
	s.Dispatches, reason = e.dispatches(b)
	why.add(reason)
	s.Why = why.String()
	return s
}

// comesBack is whether an endpoint that is not there comes by itself. It does when its
// Pod is Ready again, unless its labels keep it out: the pool's selector is in an object
// of the API server, so that lastcall's own label does so is taken from the mark.
func (e *picker) comesBack(b *Backend, m withdraw.Membership) (withdraw.Tri, string) {
	if e.args.has("endpoint-selector") && e.args.known {
		selectors, ok := e.args.selectors("endpoint-selector")
		switch {
		case !ok:
			return withdraw.Unknown, "its --endpoint-selector cannot be read"
		case len(b.Labels) == 0:
			return withdraw.Unknown, "the labels of the replica are not known"
		}
		for _, s := range selectors {
			if s.matches(b.Labels) {
				return withdraw.Yes, "its --endpoint-selector still matches the labels of the replica"
			}
		}
		return withdraw.No, ""
	}
	serving, marked := b.Labels[names.LabelServing]
	switch {
	case m != withdraw.Absent:
		return withdraw.Unknown, ""
	case !b.Ready: // a pool that ignores the label leaves out what is not Ready, until it is
		return withdraw.Unknown, "the replica is not Ready, so it may be left out for that only"
	case !marked || serving == names.Serving:
		return withdraw.Unknown, "the label " + names.LabelServing + " does not keep the replica out, so it may only be not Ready"
	}
	return withdraw.No, ""
}

// holds is whether a request can wait after the replica was chosen for it.
func (e *picker) holds(b *Backend) (withdraw.Tri, string) {
	role, has := b.Labels[llmdRole]
	switch {
	case has:
		return withdraw.Unknown, "the replica has the label " + llmdRole + "=" + role + ", so its sidecar may hold a request while another prefills"
	case e.fallbacks == withdraw.Yes:
		return withdraw.Unknown, "it names several endpoints for a request (maxNumOfEndpoints), and the gateway may try the replica later"
	}
	return withdraw.No, ""
}

// inFlight is what the picker counts for the replica. Requests with one x-request-id are
// taken for one, and that clients never send the same one twice is not known.
func (e *picker) inFlight(b *Backend, m withdraw.Membership) (withdraw.Count, string) {
	t := e.inflight.of(b)
	survives := withdraw.No
	if e.exact {
		survives = withdraw.Yes
	}
	switch {
	case t.series == 0:
		return withdraw.Count{}, "it has no " + llmdInFlight + " of the replica"
	case t.broken:
		return withdraw.Count{}, "its " + llmdInFlight + " of the replica is no number of requests"
	case m != withdraw.Selectable && !e.exact && t.sum == 0:
		return withdraw.Count{}, "its " + llmdInFlight + " of the replica begins anew once that is removed"
	}
	c := withdraw.Count{
		Known: true, Value: int64(t.sum), BeforeChoice: withdraw.No, HeldToEnd: withdraw.Yes,
		AllPaths: not(e.fallbacks), SurvivesRemoval: survives,
	}
	if e.exact {
		// Else it is set back when the endpoint goes and comes between two looks.
		c.NeverReset = withdraw.Yes
	}
	if b.Labels[llmdRole] != "" && b.Labels[llmdRole] != "decode" {
		c.HeldToEnd = withdraw.Unknown // a prefill counts until its first chunk only
	}
	return c, "two requests with one x-request-id count as one"
}

// dispatches is how often the replica was chosen by the primary profile, which is the
// one that decodes. That it was chosen to prefill is counted nowhere.
func (e *picker) dispatches(b *Backend) (withdraw.Counter, string) {
	t := e.picks.of(b)
	switch {
	case !e.picking:
		return withdraw.Counter{}, "its metrics have no " + llmdPicks[0] + " that names endpoints"
	case b.Labels[llmdRole] == "prefill":
		return withdraw.Counter{}, "it does not count how often it chooses a replica to prefill"
	case t.broken:
		return withdraw.Counter{}, "its dispatches to the replica are no whole number"
	}
	c := withdraw.Counter{Known: true, Value: t.sum}
	if role := b.Labels[llmdRole]; role == "" || role == "decode" {
		c.AtSelection = withdraw.Yes
	}
	return c, ""
}

func not(t withdraw.Tri) withdraw.Tri {
	switch t {
	case withdraw.Yes:
		return withdraw.No
	case withdraw.No:
		return withdraw.Yes
	}
	return withdraw.Unknown
}
