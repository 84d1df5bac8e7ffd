package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func llmd(version string) Options { return Options{Family: LLMD, Version: version, Pool: "qwen"} }

func endpointSeries(e *engine) string {
	return fmt.Sprintf(`llm_d_epp_per_endpoint_queue_size{model_server_endpoint="%s-rank-0",name="qwen"}`, e.pod.Name)
}

func flightsOf(e *engine) string {
	return fmt.Sprintf(`llm_d_epp_inflight_requests{endpoint_name="%s-rank-0",fairness_id="default-flow",namespace="ns",priority="0",producer_name="inflight-load-producer"}`, e.pod.Name)
}

func picksOf(e *engine) string {
	_, port, _ := strings.Cut(e.host, ":")
	return fmt.Sprintf(`llm_d_epp_scheduler_attempts_total{endpoint_name=%q,namespace="ns",port=%q,status="success",target_model_name="unknown"}`, e.pod.Name, port)
}

func TestMembersOfThePoolAreReadFromTheDatastore(t *testing.T) {
	for what, change := range map[string]func(*corev1.Pod){
		"a label that goes":            unlabelled,
		"a Pod that is not Ready":      unready,
		"a Pod that begins to end":     terminating,
		"active ports that are none":   annotated(activePorts, "none"),
		"a readiness gate that is not": unready, // it makes the Pod not Ready, no more
	} {
		t.Run(what, func(t *testing.T) {
			r := play(t, llmd("0.10.0"), 2)
			e := r.engines[0]
			r.sample(endpointSeries(e))
			r.script.Apply(with(e.pod, change))
			_, there := r.metric(endpointSeries(e))
			assert.False(t, there)
			r.sample(endpointSeries(r.engines[1]))
			assert.Equal(t, "pod-1", r.served())
			r.script.Apply(e.pod)
			r.sample(endpointSeries(e))
		})
	}
}

func TestNoEndpointsAreNoSeries(t *testing.T) {
	r := play(t, llmd("0.10.0"), 1)
	r.script.Delete(r.engines[0].pod)
	assert.NotContains(t, r.text(), "per_endpoint_queue_size")
}

func TestARoleLeavesAnEndpointInThePoolAndUnchosen(t *testing.T) {
	o := llmd("0.10.0")
	o.RoleFilter = true
	r := play(t, o, 2)
	e := r.engines[0]
	for range 2 {
		r.served()
	}
	require.Len(t, e.got(), 1, "without the label it is taken for decode")
	r.script.Apply(with(e.pod, label(roleLabel, "retiring")))
	for range 4 {
		assert.Equal(t, "pod-1", r.served())
	}
	r.sample(endpointSeries(e))
	picks := r.sample(picksOf(e))
	assert.Equal(t, 1.0, picks, "only its picks tell")
	r.script.Apply(with(e.pod, label(roleLabel, "decode")))
	r.served()
	r.served()
	assert.Len(t, e.got(), 2)
}

func TestALabelSelectorFilterLeavesAnEndpointUnchosen(t *testing.T) {
	o := llmd("0.10.0")
	o.EndpointFilter = "!retiring"
	r := play(t, o, 2)
	r.script.Apply(with(r.engines[0].pod, label("retiring", "")))
	for range 3 {
		assert.Equal(t, "pod-1", r.served())
	}
	r.sample(endpointSeries(r.engines[0]))
}

func TestWhatEachVersionOfTheEPPCounts(t *testing.T) {
	for version, c := range map[string]struct{ endpoints, flights, oldPicks, newPicks bool }{
		"0.8.0":  {oldPicks: true},
		"0.9.0":  {endpoints: true, oldPicks: true, newPicks: true},
		"0.10.0": {endpoints: true, flights: true, oldPicks: true, newPicks: true},
		"main":   {endpoints: true, flights: true, newPicks: true},
	} {
		t.Run(version, func(t *testing.T) {
			r := play(t, llmd(version), 1)
			r.engines[0].stay()
			r.open()
			_, endpoints := r.metric(endpointSeries(r.engines[0]))
			_, flights := r.metric(flightsOf(r.engines[0]))
			_, newPicks := r.metric(picksOf(r.engines[0]))
			assert.Equal(t, []bool{c.endpoints, c.flights, c.newPicks}, []bool{endpoints, flights, newPicks})
			assert.Equal(t, c.oldPicks, strings.Contains(r.text(), "\n"+picksOld+"{"))
			assert.Contains(t, r.text(), `inference_pool_per_pod_queue_size{model_server_pod="pod-0-rank-0",name="qwen"}`)
			assert.Contains(t, r.text(), "\nprocess_start_time_seconds ")
		})
	}
}

func TestTheInFlightGaugeOfAnEndpointThatGoes(t *testing.T) {
	for version, c := range map[string]struct {
		removed, ended float64
		present        bool
	}{
		"0.10.0": {removed: 1, present: true, ended: 0},
		"main":   {present: false, ended: -1},
	} {
		t.Run(version, func(t *testing.T) {
			r := play(t, llmd(version), 2)
			e := r.engines[0]
			for _, one := range r.engines {
				one.stay()
			}
			streams := []*stream{r.open(), r.open()}
			require.Equal(t, 1.0, r.sample(flightsOf(e)))
			r.script.Apply(with(e.pod, unlabelled))
			v, present := r.metric(flightsOf(e))
			assert.Equal(t, c.present, present)
			assert.Equal(t, c.removed, v)
			for i, one := range r.engines {
				one.release()
				assert.True(t, streams[i].whole(), "streams go on")
			}
			r.eventually("it is counted out", func() bool { v, ok := r.metric(flightsOf(e)); return ok && v == c.ended })
			assert.Equal(t, 1.0, r.sample(picksOf(e)), "picks stay")
		})
	}
}

func TestThePrefillOfAPairIsInFlightUntilTheFirstChunk(t *testing.T) {
	o := llmd("0.10.0")
	o.PD = Sequential
	r := pairOf(t, o, 2)
	prefill, decode := r.engines[0], r.engines[1]
	decode.stay()
	r.fault(Fault{Name: PrefillHold})
	served := r.begin()
	r.eventually("the prefill", func() bool { return len(prefill.got()) == 1 })
	assert.Empty(t, decode.got(), "the engine reads 0, its sidecar holds the request")
	assert.Equal(t, 1.0, r.sample(flightsOf(decode)))
	assert.Equal(t, 1.0, r.sample(flightsOf(prefill)))
	assert.Equal(t, 1.0, r.sample(picksOf(decode)))
	_, counted := r.metric(picksOf(prefill))
	assert.False(t, counted, "prefill picks are not")
	assert.Contains(t, r.hostsText(), decode.host+"::rq_active::1")

	r.fault(Fault{Name: PrefillHold, Off: true})
	r.eventually("the first chunk", func() bool { return r.sample(flightsOf(prefill)) == 0 })
	assert.Equal(t, 1.0, r.sample(flightsOf(decode)))
	assert.Equal(t, prefill.host, decode.got()[0].header.Get("X-Prefiller-Host-Port"))
	decode.release()
	assert.Equal(t, "pod-1", <-served)
	r.eventually("it is over", func() bool { return r.sample(flightsOf(decode)) == 0 })
	assert.Contains(t, r.hostsText(), decode.host+"::rq_active::0")
	assert.Contains(t, r.hostsText(), decode.host+"::rq_total::1")
}

func (r *rig) hostsText() string {
	r.t.Helper()
	res, err := http.Get(r.AdminURL() + "/clusters")
	require.NoError(r.t, err)
	defer res.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return string(text)
}

func TestTwoRequestsWithOneIDEndEachOthersCount(t *testing.T) {
	r := play(t, llmd("0.10.0"), 2)
	for _, e := range r.engines {
		e.stay()
	}
	first := r.open("X-Request-Id", "same")
	r.open("X-Request-Id", "same")
	require.Equal(t, 1.0, r.sample(flightsOf(r.engines[1])))
	r.engines[0].release()
	assert.True(t, first.whole())
	r.eventually("the other's count goes too", func() bool { return r.sample(flightsOf(r.engines[1])) == 0 })
	assert.Equal(t, 1.0, r.sample(`llm_d_epp_request_running{fairness_id="default-flow",model_name="unknown",priority="0",target_model_name="unknown"}`))
}

func TestTwoRequestsWithOneIDAtOneEndpointAreCountedForEver(t *testing.T) {
	r := play(t, llmd("0.10.0"), 1)
	e := r.engines[0]
	e.stay()
	first, second := r.open("X-Request-Id", "same"), r.open("X-Request-Id", "same")
	e.release()
	first.whole()
	second.whole()
	r.eventually("both are over", func() bool {
		return r.sample(`llm_d_epp_request_running{fairness_id="default-flow",model_name="unknown",priority="0",target_model_name="unknown"}`) == 0
	})
	assert.Equal(t, 1.0, r.sample(flightsOf(e)))
}

func TestReadyEndpointsLag(t *testing.T) {
	const ready = `llm_d_epp_ready_endpoints{name="qwen"}`
	r := stopped(t, llmd("0.10.0"), 2)
	require.Equal(t, 2.0, r.sample(ready))
	r.script.Delete(r.engines[0].pod)
	assert.Equal(t, 2.0, r.sample(ready))
	r.step(readyLag)
	assert.Equal(t, 1.0, r.sample(ready))
}

func TestRanksOfAPodAreItsPorts(t *testing.T) {
	e := with(pod("pod-0", "127.0.0.1"))
	o := llmd("0.10.0")
	o.Ports, o.Selector = []int{9, 10}, "app=engine"
	script := NewScript(e)
	r := &rig{Router: Start(t, o, script, nil), t: t, script: script}
	both := func(text string) []bool {
		return []bool{strings.Contains(text, `"pod-0-rank-0"`), strings.Contains(text, `"pod-0-rank-1"`)}
	}
	assert.Equal(t, []bool{true, true}, both(r.text()))
	script.Apply(with(e, annotated(activePorts, "10")))
	assert.Equal(t, []bool{false, true}, both(r.text()))
	script.Apply(with(e, label("x", "y")))
	assert.Equal(t, []bool{true, true}, both(r.text()))
	r.served() // nothing listens there, but it is chosen
	r.served()
	for _, port := range []string{"9", "10"} {
		assert.Equal(t, 1.0, r.sample(`llm_d_epp_scheduler_attempts_total{endpoint_name="pod-0",namespace="ns",port="`+port+`",status="success",target_model_name="unknown"}`))
	}
}

func TestThePluginStateHasOnlyEndpointsThatAreRegistered(t *testing.T) {
	r := play(t, llmd("main"), 2)
	type endpoint struct {
		Endpoint string
		Requests int64
	}
	state := func() []endpoint {
		res, err := http.Get(r.MetricsURL() + "/debug/plugins/state")
		require.NoError(t, err)
		defer res.Body.Close() //nolint:errcheck // read below
		var producer struct{ Endpoints []endpoint }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&producer))
		return producer.Endpoints
	}
	r.engines[0].stay()
	r.open()
	assert.EqualValues(t, 1, state()[0].Requests)
	r.script.Delete(r.engines[0].pod)
	assert.Len(t, state(), 1)
}

func TestARequestThatListedAnEndpointCanStillChooseIt(t *testing.T) {
	r := stopped(t, llmd("0.10.0"), 1)
	r.fault(Fault{Name: StalePick, Value: "1s"})
	served := r.begin()
	r.eventually("it has listed", func() bool { return r.clock.HasWaiters() && r.current().picking() })
	r.script.Delete(r.engines[0].pod)
	r.eventually("it chose", func() bool { r.step(time.Second); return len(served) == 1 })
	assert.Equal(t, "pod-0", <-served)
}

// picking reports whether a timer besides the ticker runs: a request that waits to choose.
func (p *process) picking() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0
}
