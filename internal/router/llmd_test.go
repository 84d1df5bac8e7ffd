package router

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

const (
	imageV10  = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0"
	imageV11  = "ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.11.0"
	imageGAIE = "registry.k8s.io/gateway-api-inference-extension/epp:v1.5.0"
)

func llmdStage(t *testing.T, image, file string) *stage {
	s := newStage(t, v1alpha1.LLMDRouter, "", read(t, file))
	s.process.Image, s.process.Args = image, []string{"/app/epp", "--pool-name", "qwen", "--config-file", "/config/epp.yaml"}
	return s
}

// lines takes lines out of the page.
func lines(words ...string) func(*stage) {
	return func(s *stage) {
		for _, word := range words {
			s.metrics = without(s.metrics, word)
		}
	}
}

// renamed calls the replica something else.
func renamed(name string) func(*stage) {
	return func(s *stage) { s.metrics = strings.ReplaceAll(s.metrics, "qwen-server-1", name) }
}

// outOfPool is what is left of an endpoint that is out of the pool.
var outOfPool = lines(`endpoint="qwen-server-1`, `pod="qwen-server-1`)

func TestLLMDRouterSays(t *testing.T) {
	listed := want{
		membership: withdraw.Selectable, returns: withdraw.Unknown, holds: withdraw.No, window: llmdWindow,
		inFlight: ptr(int64(3)), dispatches: ptr(7.0), why: "two requests with one x-request-id count as one",
	}
	with := func(changes ...func(*want)) want {
		w := listed
		for _, change := range changes {
			change(&w)
		}
		return w
	}
	absent := func(w *want) { w.membership, w.returns = withdraw.Absent, withdraw.No }
	unknown := func(why string) func(*want) {
		return func(w *want) { w.membership, w.why = withdraw.MembershipUnknown, why }
	}
	uncounted := func(why string) func(*want) { return func(w *want) { w.inFlight, w.why = nil, why } }
	never := func(w *want) { w.inFlight, w.dispatches = nil, ptr(0.0) }
	const noCount = "it has no llm_d_epp_inflight_requests"
	picks := func(n *float64, why string) func(*want) { return func(w *want) { w.dispatches, w.why = n, why } }
	open := func(value string) func(*stage) {
		return func(s *stage) {
			s.metrics = strings.Replace(strings.Replace(s.metrics, `load-producer"} 1`, `load-producer"} `+value, 1), `load-producer"} 2`, `load-producer"} 0`, 1)
		}
	}

	for sentence, c := range map[string]struct {
		image, file string
		change      func(s *stage)
		backend     func(b *Backend)
		want        want
	}{
		"v0.10: it can choose the replica":                 {imageV10, "", nil, nil, listed},
		"v0.10: what is open is counted after the removal": {imageV10, "", outOfPool, nil, with(absent)},
		"v0.10: nothing is open after the removal":         {imageV10, "", both(outOfPool, open("0")), nil, with(absent, func(w *want) { w.inFlight = ptr(int64(0)) })},
		"v0.11: nothing is open while it is listed":        {imageV11, "", open("0"), nil, with(func(w *want) { w.inFlight = ptr(int64(0)) })},
		"v0.11: 0 after the removal says nothing":          {imageV11, "", both(outOfPool, open("0")), nil, with(absent, uncounted("begins anew"))},
		"v0.11: below zero after the removal":              {imageV11, "", both(outOfPool, open("-1")), nil, with(absent, uncounted("no number of requests"))},
		"v0.11: the count is gone with the endpoint":       {imageV11, "", lines(`endpoint="qwen-server-1`, `pod="qwen-server-1`, `qwen-server-1-rank`), nil, with(absent, uncounted(noCount))},
		"the count is infinite":                            {imageV10, "", open("+Inf"), nil, with(uncounted("no number of requests"))},
		"GAIE: it can choose the replica":                  {imageGAIE, "gaie-v1.5.txt", nil, nil, with(uncounted(noCount))},
		"GAIE: the replica is out of the pool":             {imageGAIE, "gaie-v1.5.txt", outOfPool, nil, with(absent, uncounted(noCount))},
		"main: the old names are gone":                     {imageV11, "", lines("inference_"), nil, listed},
		"only the old names list the replica":              {imageV10, "", lines(`endpoint="qwen-server-1`), nil, listed},
		"only the new names list the replica":              {imageV10, "", lines(`pod="qwen-server-1`), nil, listed},
		"it lists nobody":                                  {imageV10, "", lines("queue_size"), nil, with(unknown("no endpoint at all"))},
		"it lists only the replica, which leaves":          {imageV10, "", lines("queue_size{"), nil, with(unknown("no endpoint at all"))},
		"it serves several pools, and one may not be known yet": {imageV10, "", func(s *stage) {
			outOfPool(s)
			s.metrics += `llm_d_epp_per_endpoint_queue_size{model_server_endpoint="other-0-rank-0",name="other"} 0` + "\n"
		}, nil, with(unknown("several pools"))},
		"an endpoint has no name": {imageV10, "", func(s *stage) {
			outOfPool(s)
			s.metrics += `llm_d_epp_per_endpoint_queue_size{name="qwen"} 0` + "\n"
		}, nil, with(unknown("without a name"))},
		"the second rank of the replica is listed": {imageV10, "", func(s *stage) {
			renamed("qwen-server-1-rank-0")(s)
			s.metrics = strings.ReplaceAll(s.metrics, "qwen-server-1-rank-0-rank-0", "qwen-server-1-rank-1")
		}, nil, with(func(w *want) { w.dispatches = ptr(7.0) })},
		"endpoints have the names of their Pods":       {imageV10, "", func(s *stage) { s.metrics = strings.ReplaceAll(s.metrics, "-rank-0", "") }, nil, listed},
		"the name of another Pod begins with this one": {imageV10, "", renamed("qwen-server-1-1"), nil, with(absent, never, uncounted(noCount))},
		"the name of another Pod ends with this one":   {imageV10, "", renamed("my-qwen-server-1"), nil, with(absent, never, uncounted(noCount))},
		"another Pod is this one with a word more":     {imageV10, "", renamed("qwen-server-1-rank-x"), nil, with(absent, never, uncounted(noCount))},
		"a Pod of this name in another namespace": {imageV10, "", func(s *stage) {
			s.metrics = strings.ReplaceAll(s.metrics, `"team-a"`, `"team-b"`)
		}, nil, with(never, uncounted(noCount))},
		"its series have no namespace":    {imageV10, "", func(s *stage) { s.metrics = strings.ReplaceAll(s.metrics, `namespace="team-a",`, "") }, nil, listed},
		"it has never chosen the replica": {imageV10, "", func(s *stage) { s.metrics = without(s.metrics, `attempts_total{endpoint_name="qwen-server-1"`) }, nil, with(func(w *want) { w.dispatches = ptr(0.0) })},
		"it names Pods and not endpoints": {imageV10, "", func(s *stage) {
			s.metrics = strings.ReplaceAll(s.metrics, `attempts_total{endpoint_name=`, `attempts_total{pod_name=`)
		}, nil, listed},
		"it does not say whom it has chosen": {imageV10, "", func(s *stage) {
			s.metrics = strings.ReplaceAll(s.metrics, `attempts_total{endpoint_name=`, `attempts_total{elsewhere=`)
		}, nil, with(picks(nil, "that names endpoints"))},
		"it has never chosen anybody":      {imageV10, "", lines("attempts_total{"), nil, with(picks(nil, "no llm_d_epp_scheduler_attempts_total"))},
		"it has chosen it less than never": {imageV10, "", func(s *stage) { s.metrics = strings.ReplaceAll(s.metrics, "} 7\n", "} NaN\n") }, nil, with(picks(nil, "no whole number"))},
		"the mark is not on the Pod, which is out all the same": {imageV10, "", outOfPool, labelled(names.LabelServing, names.Serving), with(absent, func(w *want) {
			w.returns, w.why = withdraw.Unknown, "may only be not Ready"
		})},
		"its own selector keeps the replica out": {imageV10, "", func(s *stage) {
			outOfPool(s)
			s.process.Args = []string{"epp", "--endpoint-selector", "app=qwen,lastcall.dev/serving=true"}
		}, nil, with(absent)},
		"its own selector does not know the mark": {imageV10, "", func(s *stage) {
			outOfPool(s)
			s.process.Args = []string{"epp", "--endpoint-selector=app=qwen"}
		}, nil, with(absent, func(w *want) { w.returns, w.why = withdraw.Yes, "still matches" })},
		"its own selector cannot be read": {imageV10, "", func(s *stage) {
			outOfPool(s)
			s.process.Args = []string{"epp", "--endpoint-selector", "app in (qwen)"}
		}, nil, with(absent, func(w *want) { w.returns, w.why = withdraw.Unknown, "cannot be read" })},
		"the replica decodes, and its sidecar may hold a request": {imageV10, "", outOfPool, labelled(llmdRole, "decode"), with(absent, func(w *want) {
			w.holds, w.why = withdraw.Unknown, "its sidecar may hold"
		})},
		"the replica prefills, and its picks are not counted": {imageV10, "", nil, labelled(llmdRole, "prefill"), with(func(w *want) {
			w.holds, w.dispatches, w.why = withdraw.Unknown, nil, "chooses a replica to prefill"
		})},
		"the gateway may try the replica second": {imageV10, "", func(s *stage) {
			s.process.Args = []string{"epp", "--config-text", "plugins:\n- type: max-score-picker\n  parameters:\n    maxNumOfEndpoints: 3\n"}
		}, nil, with(func(w *want) { w.holds, w.why = withdraw.Unknown, "maxNumOfEndpoints" })},
		"the gateway tries one": {imageV10, "", func(s *stage) {
			s.process.Args = []string{"epp", "--config-text", `{"parameters":{"maxNumOfEndpoints":1}}`}
		}, nil, listed},
		"its page ends in the middle of a line": {imageV10, "", func(s *stage) { s.metrics = strings.TrimSuffix(outOf(s.metrics), "\n") }, nil, want{why: "in the middle of a line"}},
		"its page has a broken line":            {imageV10, "", func(s *stage) { s.metrics = outOf(s.metrics) + "llm_d_epp_inflight_requests{endpoint_name=\"x\n" }, nil, want{why: "a line that cannot be read"}},
		"its page has a series twice":           {imageV10, "", func(s *stage) { s.metrics += "llm_d_epp_request_running{model_name=\"Qwen/Qwen2.5-7B-Instruct\"} 7\n" }, nil, want{why: "twice"}},
		"its page is empty":                     {imageV10, "", func(s *stage) { s.metrics = "\n" }, nil, with(unknown("no endpoint at all"), uncounted(noCount), picks(nil, ""), func(w *want) { w.why = "" })},
		"it wants a token":                      {imageV10, "", refusing(t, http.StatusUnauthorized), nil, want{why: "GET /metrics: it answers 401 and wants credentials"}},
		"it does not let lastcall in":           {imageV10, "", refusing(t, http.StatusForbidden), nil, want{why: "it answers 403"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.file == "" {
				c.file = "llmd-v0.10.txt"
			}
			s := llmdStage(t, c.image, c.file)
			if c.change != nil {
				c.change(s)
			}
			b := replica()
			if c.backend != nil {
				c.backend(&b)
			}
			c.want.check(t, s.look(t, b))
		})
	}
}

func outOf(page string) string {
	return without(without(page, `endpoint="qwen-server-1`), `pod="qwen-server-1`)
}

func TestLLMDRouterCounts(t *testing.T) {
	v10 := llmdStage(t, imageV10, "llmd-v0.10.txt").look(t, replica())
	assert.Equal(t, withdraw.Count{
		Known: true, Value: 3, BeforeChoice: withdraw.No, HeldToEnd: withdraw.Yes, NeverReset: withdraw.Yes, SurvivesRemoval: withdraw.Yes,
	}, v10.InFlight)
	assert.Equal(t, withdraw.Count{Known: true, Value: 7}, v10.Whole, "it leaks, so it is for people")
	assert.Equal(t, withdraw.Yes, v10.Dispatches.AtSelection)
	assert.Equal(t, "containerd://1@1796020000", v10.Run)

	v11 := llmdStage(t, imageV11, "llmd-v0.10.txt").look(t, replica())
	assert.Equal(t, withdraw.Count{Known: true, Value: 3, BeforeChoice: withdraw.No, HeldToEnd: withdraw.Yes, SurvivesRemoval: withdraw.No}, v11.InFlight)

	other := llmdStage(t, "example/epp:v0.10.0", "llmd-v0.10.txt").look(t, replica())
	assert.Equal(t, v11.InFlight, other.InFlight, "a tag means nothing without the name")

	either := llmdStage(t, imageV10, "llmd-v0.10.txt").look(t, replica(labelled(llmdRole, "both")))
	assert.Equal(t, withdraw.Unknown, either.Dispatches.AtSelection, "it may be chosen to prefill, which is not counted")
	assert.Equal(t, withdraw.Unknown, either.InFlight.HeldToEnd)

	inline := llmdStage(t, imageV10, "llmd-v0.10.txt")
	inline.process.Args = []string{"epp", "--config-text", "{}"}
	assert.Equal(t, withdraw.Yes, inline.look(t, replica()).InFlight.AllPaths)
	inline.process.Args[2] = "maxNumOfEndpoints: 2"
	assert.Equal(t, withdraw.No, inline.look(t, replica()).InFlight.AllPaths)
}

func TestLLMDRouterIsToldNothing(t *testing.T) {
	s := llmdStage(t, imageV10, "llmd-v0.10.txt")
	told, _ := s.family.Told(s.process)
	assert.False(t, told)
	require.ErrorContains(t, s.family.Withdraw(t.Context(), http.DefaultClient, s.process, replica()), "follows the labels")
	require.NoError(t, s.family.Restore(t.Context(), http.DefaultClient, s.process, replica()))
	assert.Empty(t, s.told)
}

// What an endpoint picker comes to over time.
func TestLLMDRouterProof(t *testing.T) {
	decoding := replica(labelled(llmdRole, "decode"))
	for sentence, c := range map[string]struct {
		image   string
		story   func(t *testing.T, f *fleet)
		missing string
	}{
		"out of the pool for 5 s": {imageV10, func(t *testing.T, f *fleet) {
			f.sees(t, 0, replica())
			outOfPool(f.stage)
			f.sees(t, 1, replica()).sees(t, 6.5, replica())
		}, ""},
		"out of the pool for 5 s, in any release": {"example/epp:main", func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.sees(t, 1, replica()).sees(t, 6.5, replica())
		}, ""},
		"a moment too early": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.sees(t, 1, replica()).sees(t, 5.9, replica())
		}, names.HeldRouterHolds},
		"chosen a moment ago": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.sees(t, 1, replica())
			f.metrics = strings.ReplaceAll(f.metrics, "} 7\n", "} 8\n")
			f.sees(t, 6.5, replica())
		}, names.HeldRecentDispatches},
		"somebody else is chosen all the time": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.sees(t, 1, replica())
			f.metrics = strings.ReplaceAll(f.metrics, "} 9\n", "} 99\n")
			f.sees(t, 6.5, replica())
		}, ""},
		"its own sidecar may hold one, which no new picker ends": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.routed.Fleet.Processes[0].StartedAt = began.Add(20 * time.Second)
			f.sees(t, 25, decoding)
		}, names.HeldRouterHolds},
		"its pool has no one left": {imageV10, func(t *testing.T, f *fleet) {
			lines("queue_size")(f.stage)
			f.sees(t, 1, replica()).sees(t, 60, replica())
		}, names.HeldRouterUnread},
		"not Ready for 10 s, and in the pool by its labels": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			serving := replica(labelled(names.LabelServing, names.Serving))
			f.sees(t, 1, serving).sees(t, 10, serving)
		}, names.HeldRouterReturns},
		"3: its sidecar waits for a prefill, and every count is gone": {imageV11, func(t *testing.T, f *fleet) {
			lines("qwen-server-1-rank-0")(f.stage)
			f.sees(t, 1, decoding).sees(t, 60, decoding)
		}, names.HeldRouterHolds},
		"13: two requests share an id, and its count is 0": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.metrics = strings.ReplaceAll(strings.ReplaceAll(f.metrics, `load-producer"} 1`, `load-producer"} 0`), `load-producer"} 2`, `load-producer"} 0`)
			f.sees(t, 1, decoding).sees(t, 60, decoding)
		}, names.HeldRouterHolds},
		"10: it restarted in its container": {imageV10, func(t *testing.T, f *fleet) {
			outOfPool(f.stage)
			f.sees(t, 1, replica()).sees(t, 5, replica())
			f.metrics = strings.Replace(f.metrics, "1.79602e+09", "1.79603e+09", 1)
			f.sees(t, 7, replica())
		}, names.HeldRouterHolds},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := newFleet(llmdStage(t, c.image, "llmd-v0.10.txt"))
			c.story(t, f)
			f.proves(t, c.missing)
		})
	}
}
