package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every fault, and how it shows.
var faultTests = map[string]func(*testing.T){
	LoseDeletes: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		r.fault(Fault{Name: LoseDeletes})
		r.script.Delete(r.engines[0].pod)
		r.sample(endpointSeries(r.engines[0]))
		r.fault(Fault{Name: LoseDeletes, Off: true})
		r.script.Delete(r.engines[1].pod)
		_, there := r.metric(endpointSeries(r.engines[1]))
		assert.False(t, there)
	},
	IgnoreLabels: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		r.fault(Fault{Name: IgnoreLabels, Pod: "pod-0"})
		for _, e := range r.engines {
			r.script.Apply(with(e.pod, unlabelled))
		}
		r.sample(endpointSeries(r.engines[0]))
		_, there := r.metric(endpointSeries(r.engines[1]))
		assert.False(t, there, "the fault is the other's")
	},
	IgnoreReadiness: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		r.fault(Fault{Name: IgnoreReadiness})
		r.script.Apply(with(r.engines[0].pod, unready))
		r.sample(endpointSeries(r.engines[0]))
	},
	ResetLoad: func(t *testing.T) {
		r := play(t, smgMain, 1)
		r.engines[0].stay()
		s := r.open()
		require.EqualValues(t, 1, r.has(r.engines[0]).Load)
		r.fault(Fault{Name: ResetLoad})
		assert.Zero(t, r.has(r.engines[0]).Load)
		assert.Zero(t, r.sample(byWorker("smg_worker_requests_active", r.engines[0])))
		assert.Empty(t, r.faultsOn(), "it is over")
		r.engines[0].release()
		assert.True(t, s.whole())
	},
	LoadAlwaysZero: func(t *testing.T) {
		r := play(t, smgMain, 1)
		r.fault(Fault{Name: LoadAlwaysZero})
		r.engines[0].stay()
		r.open()
		assert.Zero(t, r.has(r.engines[0]).Load)
		assert.Zero(t, r.sample(byWorker("smg_worker_requests_active", r.engines[0])))
		r.fault(Fault{Name: LoadAlwaysZero, Off: true})
		assert.EqualValues(t, 1, r.has(r.engines[0]).Load)
	},
	CollapseDrain: func(t *testing.T) {
		r := stopped(t, smgMain, 2)
		r.fault(Fault{Name: CollapseDrain})
		r.do(http.MethodDelete, r.path(r.engines[0]), "")
		assert.Nil(t, r.has(r.engines[0]))
	},
	GaugeZeroed: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		r.fault(Fault{Name: GaugeZeroed})
		r.engines[0].stay()
		r.open()
		require.Equal(t, 1.0, r.sample(flightsOf(r.engines[0])))
		r.script.Delete(r.engines[0].pod)
		assert.Zero(t, r.sample(flightsOf(r.engines[0])))
	},
	GaugeDeleted: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		r.fault(Fault{Name: GaugeDeleted})
		r.engines[0].stay()
		r.open()
		r.script.Delete(r.engines[0].pod)
		_, there := r.metric(flightsOf(r.engines[0]))
		assert.False(t, there)
	},
	NegativeGauge: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		for _, e := range r.engines {
			e.stay()
			r.open()
		}
		r.fault(Fault{Name: NegativeGauge, Pod: "pod-0"})
		assert.Equal(t, -1.0, r.sample(flightsOf(r.engines[0])))
		assert.Equal(t, 1.0, r.sample(flightsOf(r.engines[1])))
	},
	AddAgain: func(t *testing.T) {
		r := stopped(t, vllm, 1)
		r.fault(Fault{Name: AddAgain, Value: "3s"})
		r.do(http.MethodDelete, r.path(r.engines[0]), "")
		assert.Nil(t, r.has(r.engines[0]))
		r.step(3 * time.Second)
		r.eventually("it is back", func() bool { return r.has(r.engines[0]) != nil })
	},
	SucceedForUnknown: func(t *testing.T) {
		const unknown = "/workers/00000000-0000-0000-0000-000000000000"
		r := play(t, smgMain, 1)
		status, _ := r.do(http.MethodDelete, unknown, "")
		require.Equal(t, http.StatusNotFound, status)
		r.fault(Fault{Name: SucceedForUnknown})
		status, _ = r.do(http.MethodDelete, unknown, "")
		assert.Equal(t, http.StatusOK, status)
		status, _ = r.do(http.MethodGet, unknown, "")
		assert.Equal(t, http.StatusOK, status)
	},
	AsyncRemoval: func(t *testing.T) {
		r := stopped(t, vllm, 1)
		r.fault(Fault{Name: AsyncRemoval, Value: "3s"})
		status, _ := r.do(http.MethodDelete, r.path(r.engines[0]), "")
		assert.Equal(t, http.StatusAccepted, status)
		assert.NotNil(t, r.has(r.engines[0]))
		r.step(3 * time.Second)
		r.eventually("it is removed", func() bool { return r.has(r.engines[0]) == nil })
	},
	TruncateList: func(t *testing.T) {
		r := play(t, vllm, 3)
		r.fault(Fault{Name: TruncateList, Value: "2"})
		assert.Len(t, r.list(), 2)
		_, body := r.do(http.MethodGet, "/workers", "")
		assert.Contains(t, body, `"total":3`)
	},
	Unauthorized: refusedWith(Unauthorized, http.StatusUnauthorized),
	Forbidden:    refusedWith(Forbidden, http.StatusForbidden),
	Disagree: func(t *testing.T) {
		r := play(t, smgMain, 2)
		other := &rig{Router: Start(t, r.options, r.script, nil), t: t}
		r.fault(Fault{Name: Disagree})
		for _, one := range []*rig{r, other} {
			status, _ := one.do(http.MethodDelete, one.path(r.engines[0]), "")
			assert.Equal(t, http.StatusAccepted, status)
		}
		assert.Equal(t, "draining", other.has(r.engines[0]).Status)
		assert.Equal(t, "ready", r.has(r.engines[0]).Status)
		r.script.Apply(with(r.engines[1].pod, terminating))
		r.current().lookAround()
		assert.Equal(t, "ready", r.has(r.engines[1]).Status)
	},
	Restart: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 1)
		r.fault(Fault{Name: IgnoreLabels})
		r.engines[0].stay()
		s := r.open()
		before := r.sample("process_start_time_seconds")
		require.Equal(t, 1.0, r.sample(picksOf(r.engines[0])))
		r.fault(Fault{Name: Restart})
		assert.False(t, s.whole(), "what was open is cut")
		assert.Greater(t, r.sample("process_start_time_seconds"), before)
		_, counted := r.metric(picksOf(r.engines[0]))
		assert.False(t, counted)
		r.sample(endpointSeries(r.engines[0]))
		assert.Empty(t, r.faultsOn(), "a process forgets its faults too")
	},
	StaleRetry: func(t *testing.T) {
		r := stopped(t, vllm, 2)
		r.fault(Fault{Name: StaleRetry})
		r.engines[0].set(func(e *engine) { e.status = http.StatusServiceUnavailable })
		served := r.begin()
		r.eventually("the first attempt", func() bool { return len(r.engines[0].got()) == 1 })
		r.do(http.MethodDelete, r.path(r.engines[1]), "")
		r.eventually("the second", func() bool { r.step(time.Second); return len(served) == 1 })
		assert.Equal(t, "pod-1", <-served, "which was removed")
	},
	PrefillHold: func(t *testing.T) {
		o := vllm
		o.PD = Sequential
		r := pairOf(t, o, 3)
		r.fault(Fault{Name: PrefillHold, Pod: "pod-1", Value: "20ms"})
		assert.Equal(t, "pod-1", <-r.begin())
		r.fault(Fault{Name: PrefillHold, Pod: "pod-1"})
		assert.Equal(t, "pod-2", <-r.begin(), "the other is not held")
		served := r.begin()
		r.eventually("the third prefill", func() bool { return len(r.engines[0].got()) == 3 })
		assert.Len(t, r.engines[1].got(), 1)
		r.fault(Fault{Name: All, Off: true})
		assert.Equal(t, "pod-1", <-served)
	},
	StalePick: TestARequestThatListedAnEndpointCanStillChooseIt,
	FailOpen: func(t *testing.T) {
		o := llmd("0.10.0")
		o.RoleFilter = true
		r := play(t, o, 1, label(roleLabel, "retiring"))
		assert.Empty(t, r.served())
		r.fault(Fault{Name: FailOpen})
		assert.Equal(t, "pod-0", r.served())
		_, counted := r.metric(picksOf(r.engines[0]))
		assert.False(t, counted, "its picker was not asked")
		assert.Contains(t, r.hostsText(), r.engines[0].host+"::rq_total::1")
		r.script.Apply(with(r.engines[0].pod, unlabelled))
		assert.Empty(t, r.served(), "the pool's selector is followed")
	},
	ReuseAddress: func(t *testing.T) {
		r := stopped(t, smgMain, 2)
		e := r.engines[0]
		r.script.Delete(e.pod)
		r.step(time.Second)
		r.eventually("it drains", func() bool { return r.has(e).Status == "draining" })
		r.step(5 * time.Second)
		r.eventually("it is removed", func() bool { return r.has(e) == nil })
		r.fault(Fault{Name: ReuseAddress, Pod: "pod-0"})
		r.eventually("another Pod is there", func() bool { r.step(time.Second); return r.has(e) != nil })
		assert.Equal(t, "successor-of-uid-of-pod-0", r.has(e).Labels[podUIDLabel])
		status, body := r.do(http.MethodPost, "/fault", `{"name":"reuse-address","pod":"nobody"}`)
		assert.Equal(t, http.StatusBadRequest, status, body)
	},
	EngineGaugeLag: func(t *testing.T) {
		r := play(t, smgMain, 1)
		r.fault(Fault{Name: EngineGaugeLag})
		r.current().readEngines()
		assert.NotContains(t, r.text(), "smg_engine_running_requests")
		r.fault(Fault{Name: EngineGaugeLag, Off: true})
		r.current().readEngines()
		assert.Contains(t, r.text(), "smg_engine_running_requests")
	},
	DataParallelRanks: func(t *testing.T) {
		r := play(t, vllm, 1)
		r.fault(Fault{Name: DataParallelRanks, Value: "3"})
		var urls []string
		for _, w := range r.list() {
			urls = append(urls, strings.TrimPrefix(w.URL, r.engines[0].url()))
		}
		assert.Equal(t, []string{"@0", "@1", "@2"}, urls)
		assert.Equal(t, "pod-0", r.served())
		assert.NotEmpty(t, r.engines[0].got()[0].header.Get("X-Data-Parallel-Rank"))
		r.do(http.MethodDelete, r.path(r.engines[0]), "")
		assert.Empty(t, r.list(), "without a rank, all of them")
	},
	DuplicateRequestID: func(t *testing.T) {
		r := play(t, llmd("0.10.0"), 2)
		r.fault(Fault{Name: DuplicateRequestID})
		for _, e := range r.engines {
			e.stay()
		}
		first := r.open()
		r.open()
		r.engines[0].release()
		first.whole()
		r.eventually("the other's count goes too", func() bool { return r.sample(flightsOf(r.engines[1])) == 0 })
	},
}

func TestFaults(t *testing.T) {
	require.ElementsMatch(t, slices.Collect(maps.Keys(Known)), slices.Collect(maps.Keys(faultTests)))
	for name, test := range faultTests {
		t.Run(name, test)
	}
}

func refusedWith(name string, status int) func(*testing.T) {
	return func(t *testing.T) {
		r := play(t, vllm, 1)
		r.fault(Fault{Name: name})
		for _, path := range []string{"/workers", "/list_workers"} {
			got, _ := r.do(http.MethodGet, path, "")
			assert.Equal(t, status, got)
		}
		got, _ := r.do(http.MethodDelete, "/workers/http%3A%2F%2Fx", "")
		assert.Equal(t, status, got)
		assert.Equal(t, "pod-0", r.served(), "clients are not refused")
		r.text()
		r.fault(Fault{Name: name, Off: true})
		assert.Len(t, r.list(), 1)

		epp := &rig{Router: Start(t, llmdOf(r), r.script, nil), t: t}
		epp.fault(Fault{Name: name})
		res, err := http.Get(epp.MetricsURL() + "/metrics")
		require.NoError(t, err)
		_ = res.Body.Close()
		assert.Equal(t, status, res.StatusCode)
	}
}

func llmdOf(r *rig) Options {
	o := llmd("0.10.0")
	o.Ports, o.Selector = r.options.Ports, r.options.Selector
	return o
}

func (r *rig) faultsOn() []Fault {
	r.t.Helper()
	status, body := r.do(http.MethodGet, "/fault", "")
	require.Equal(r.t, http.StatusOK, status)
	var answer struct {
		On    []Fault
		Known map[string]string
	}
	require.NoError(r.t, json.Unmarshal([]byte(body), &answer))
	require.Len(r.t, answer.Known, len(Known))
	return answer.On
}

func TestFaultsAreListedAndEnded(t *testing.T) {
	o := vllm
	o.Faults = []Fault{{Name: TruncateList, Value: "1"}}
	r := play(t, o, 2)
	assert.Equal(t, o.Faults, r.faultsOn())
	assert.Len(t, r.list(), 1)
	r.fault(Fault{Name: TruncateList, Value: "0"})
	assert.Equal(t, []Fault{{Name: TruncateList, Value: "0"}}, r.faultsOn(), "in the place of the one before")
	r.fault(Fault{Name: IgnoreLabels, Pod: "pod-0"})
	r.fault(Fault{Name: IgnoreLabels, Pod: "pod-1"})
	assert.Len(t, r.faultsOn(), 3)
	r.fault(Fault{Name: IgnoreLabels, Pod: "pod-1", Off: true})
	assert.Len(t, r.faultsOn(), 2)
	r.fault(Fault{Name: All, Off: true})
	assert.Empty(t, r.faultsOn())
}

func TestFaultsThatAreNone(t *testing.T) {
	r := play(t, vllm, 1)
	for body, message := range map[string]string{
		`{"name":"nonsense"}`:                    `fault "nonsense" is not known; want one of add-again, async-removal,`,
		`{"name":"all"}`:                         `fault "all" is not known`,
		`{"name":"prefill-hold","value":"long"}`: `fault prefill-hold: value "long" is not a duration`,
		`{"name":"truncate-list","value":"x"}`:   `fault truncate-list: value "x" is not a number`,
		`{"name":"disagree","value":"x"}`:        `fault disagree: value "x": it takes none`,
		`{"name":"disagree","pod":"x"}`:          `fault disagree: pod "x": it is about the whole process`,
		`{"name":"reuse-address"}`:               `fault reuse-address: pod must say whose address it is`,
		`{"fault":"disagree"}`:                   `unknown field "fault"`,
	} {
		status, text := r.do(http.MethodPost, "/fault", body)
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Contains(t, text, message)
	}
}

func TestARouterThatEndsFinishesWhatIsOpen(t *testing.T) {
	all := engines(t, 2)
	script := NewScript(all[0].pod, all[1].pod)
	o := vllm
	o.Ports, o.Selector, o.Listen, o.Metrics = []int{portOf(all)}, "app=engine", "127.0.0.1:0", "127.0.0.1:0"
	router, err := New(o, script, io.Discard, nil)
	require.NoError(t, err)
	require.NoError(t, router.listen())
	<-router.begin(t.Context())
	ctx, terminate := testContext(t)
	ended := make(chan error, 1)
	go func() { ended <- router.serve(ctx, t.Context()) }()
	r := &rig{Router: router, t: t, engines: all}
	all[0].stay()
	s := r.open()
	terminate()
	r.eventually("it takes no more connections", func() bool {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		res, err := client.Get(router.URL() + "/health")
		if err == nil {
			_ = res.Body.Close()
		}
		return err != nil
	})
	all[0].release()
	assert.True(t, s.whole())
	require.NoError(t, <-ended)
}

func TestTheModelsAreAnyWorkers(t *testing.T) {
	r := play(t, vllm, 1)
	status, body := r.do(http.MethodGet, "/v1/models", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "pod-0")
	r.do(http.MethodDelete, r.path(r.engines[0]), "")
	status, _ = r.do(http.MethodGet, "/v1/models", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	status, body = r.do(http.MethodGet, "/readiness", "")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.JSONEq(t, `{"status":"not ready","healthy_workers":0,"total_workers":0}`, body)
	status, _ = r.do(http.MethodGet, "/health", "")
	assert.Equal(t, http.StatusOK, status)
}

func TestAStreamComesAsItIsSent(t *testing.T) {
	r := play(t, vllm, 1)
	r.engines[0].stay()
	s := r.open() // returns with the first line, of a stream that stays open
	r.engines[0].release()
	assert.True(t, s.whole())
}

func TestAStreamThatBreaksIsSeenToBreak(t *testing.T) {
	all := engines(t, 1)
	r := playAt(t, vllm, nil, all)
	all[0].stay()
	s := r.open()
	all[0].breakOff()
	assert.False(t, s.whole())
	r.eventually("and is over", func() bool { return r.has(all[0]).Load == 0 })
}

func ExampleFault() {
	text, _ := json.Marshal(Fault{Name: PrefillHold, Pod: "qwen-decode-0", Value: "90s"})
	fmt.Println(string(text))
	// Output: {"name":"prefill-hold","pod":"qwen-decode-0","value":"90s"}
}
