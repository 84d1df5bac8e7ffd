package fake

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

var vllm = Options{Family: VLLMRouter, Version: "0.1.15", Policy: "round_robin"}

func policy(o Options, name string) Options {
	o.Policy = name
	return o
}

func TestVLLMRouterKeepsSendingToAPodThatLeftItsSelector(t *testing.T) {
	r := play(t, vllm, 1)
	r.script.Apply(with(r.engines[0].pod, unlabelled))
	assert.Equal(t, "pod-0", r.served())
	r.script.Apply(with(r.engines[0].pod, unlabelled, unready))
	assert.Equal(t, "pod-0", r.served())
	assert.NotNil(t, r.has(r.engines[0]))
}

func TestVLLMRouterRemovesAtOnceAndInOneProcess(t *testing.T) {
	r := play(t, vllm, 2)
	other := Start(t, r.options, r.script, nil)
	for name, remove := range map[*engine]func(e *engine) int{
		r.engines[0]: func(e *engine) int { status, _ := r.do(http.MethodDelete, r.path(e), ""); return status },
		r.engines[1]: func(e *engine) int {
			status, _ := r.do(http.MethodPost, "/remove_worker?url="+url.QueryEscape(e.url()), "")
			return status
		},
	} {
		require.NotNil(t, r.has(name))
		assert.Equal(t, http.StatusOK, remove(name))
		assert.Nil(t, r.has(name))
		assert.Equal(t, http.StatusOK, remove(name), "also where there is none")
		status, body := r.do(http.MethodGet, r.path(name), "")
		assert.Equal(t, http.StatusNotFound, status)
		assert.JSONEq(t, fmt.Sprintf(`{"error":"Worker %s not found","code":"WORKER_NOT_FOUND"}`, name.url()), body)
	}
	res, err := r.post(t.Context(), `{}`)
	require.NoError(t, err)
	_ = res.Body.Close()
	assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	here := &rig{Router: other, t: t}
	assert.Len(t, here.list(), 2, "the other process was not told")
}

func TestVLLMRouterAddsBackOnlyWhenItIsToldOrRestarts(t *testing.T) {
	r := play(t, vllm, 2)
	e := r.engines[0]
	r.do(http.MethodDelete, r.path(e), "")
	r.script.Apply(e.pod)
	assert.Nil(t, r.has(e), "discovery tracks the Pod and leaves it")
	status, body := r.do(http.MethodPost, "/workers", fmt.Sprintf(`{"url":%q}`, e.url()))
	assert.Equal(t, http.StatusOK, status, body)
	assert.NotNil(t, r.has(e))
	status, body = r.do(http.MethodPost, "/add_worker?url="+url.QueryEscape(e.url()), "")
	assert.Equal(t, http.StatusBadRequest, status, "it is there: %s", body)

	r.do(http.MethodDelete, r.path(e), "")
	r.fault(Fault{Name: Restart})
	assert.NotNil(t, r.has(e), "the label is still there")
	r.do(http.MethodDelete, r.path(e), "")
	r.script.Apply(with(e.pod, unlabelled))
	r.fault(Fault{Name: Restart})
	assert.Nil(t, r.has(e))
}

func TestVLLMRouterLetsStreamsOfARemovedWorkerEnd(t *testing.T) {
	r := play(t, vllm, 1)
	e := r.engines[0]
	e.stay()
	s := r.open()
	r.do(http.MethodDelete, r.path(e), "")
	e.release()
	assert.True(t, s.whole())
}

func TestVLLMRouterDoesNotSendToASickWorker(t *testing.T) {
	r := stopped(t, vllm, 2)
	e := r.engines[0]
	e.set(func(e *engine) { e.sick = true })
	for n := range healthFailures {
		assert.True(t, r.has(e).Is, "after %d failures", n)
		cycles := r.current().cyclesDone()
		r.step(time.Minute)
		r.eventually("a health check", func() bool { return r.current().cyclesDone() > cycles })
	}
	assert.False(t, r.has(e).Is, "it is listed all the same")
	for range 4 {
		assert.Equal(t, "pod-1", r.served())
	}
	e.set(func(e *engine) { e.sick = false })
	r.step(time.Minute)
	r.eventually("it comes back by itself", func() bool { return r.has(e).Is })
}

func (p *process) cyclesDone() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cycles
}

func TestABreakerOpensAndClosesByItself(t *testing.T) {
	o := vllm
	o.Retries = 1
	r := stopped(t, o, 2)
	e := r.engines[0]
	e.set(func(e *engine) { e.status = http.StatusInternalServerError })
	for range 2 * breakerFailures {
		r.served()
	}
	before := len(e.got())
	assert.Equal(t, breakerFailures, before)
	for range 4 {
		assert.Equal(t, "pod-1", r.served())
	}
	assert.True(t, r.has(e).Is, "a breaker does not show in the list")
	assert.Equal(t, float64(breakerFailures), r.sample(fmt.Sprintf("vllm_router_cb_outcomes_total{worker=%q,outcome=\"failure\"}", e.url())))
	r.step(breakerOpen)
	e.set(func(e *engine) { e.status = 0 })
	r.served()
	r.served()
	assert.Len(t, e.got(), before+1)
}

func TestVLLMRouterLoad(t *testing.T) {
	running := func(r *rig) float64 { return r.sample(byWorker("vllm_router_running_requests", r.engines[0])) }
	t.Run("counts cache_aware only", func(t *testing.T) {
		r := play(t, policy(vllm, "round_robin"), 1)
		r.engines[0].stay()
		r.open()
		assert.Zero(t, r.has(r.engines[0]).Load)
	})
	t.Run("is counted to the end of a stream", func(t *testing.T) {
		r := play(t, policy(vllm, "cache_aware"), 1)
		r.engines[0].stay()
		s := r.open()
		assert.EqualValues(t, 1, r.has(r.engines[0]).Load)
		assert.Equal(t, 1.0, running(r))
		r.engines[0].release()
		s.whole()
		r.eventually("load 0", func() bool { return r.has(r.engines[0]).Load == 0 })
	})
	t.Run("is set back every ten health checks, with streams open", func(t *testing.T) {
		r := stopped(t, policy(vllm, "cache_aware"), 1)
		r.engines[0].stay()
		r.open()
		for n := 1; n <= loadCycles; n++ {
			require.EqualValues(t, 1, r.has(r.engines[0]).Load, n)
			r.step(time.Minute)
			r.eventually("a health check", func() bool { return r.current().cyclesDone() == n })
		}
		assert.Zero(t, r.has(r.engines[0]).Load)
		assert.Zero(t, running(r))
		p := r.current()
		p.mu.Lock()
		p.books.ended(&choice{worker: p.workers[0]}, false)
		p.mu.Unlock()
		assert.Zero(t, r.has(r.engines[0]).Load, "a count does not fall below 0")
	})
	t.Run("stays as it was when the worker is removed", func(t *testing.T) {
		r := play(t, policy(vllm, "cache_aware"), 2)
		for _, e := range r.engines {
			e.stay()
		}
		first, second := r.open(), r.open()
		for _, e := range r.engines {
			r.do(http.MethodDelete, r.path(e), "")
			e.release()
		}
		assert.True(t, first.whole() && second.whole())
		r.eventually("the requests end", func() bool { return running(r) == 1 })
	})
	t.Run("leaks when a client leaves", func(t *testing.T) {
		r := play(t, policy(vllm, "cache_aware"), 1)
		r.engines[0].stay()
		r.open().leave()
		r.open()
		r.eventually("both are counted", func() bool { return r.has(r.engines[0]).Load == 2 })
	})
	t.Run("is taken back twice for a request that could not be sent", func(t *testing.T) {
		o := policy(vllm, "cache_aware")
		o.Retries = 1
		r := play(t, o, 1)
		r.engines[0].stay()
		r.open()
		r.engines[0].set(func(e *engine) { e.resets = 1 })
		r.served()
		assert.Zero(t, r.has(r.engines[0]).Load, "a stream is open")
	})
}

func TestVLLMRouterCountsChoices(t *testing.T) {
	r := play(t, vllm, 1)
	e := r.engines[0]
	e.stay()
	r.open()
	assert.Equal(t, 1.0, r.sample(byWorker("vllm_router_processed_requests_total", e)), "at the choice, not at the end")
	assert.Equal(t, 1.0, r.sample(fmt.Sprintf("vllm_router_policy_decisions_total{policy=\"round_robin\",worker=%q}", e.url())))
	assert.Equal(t, 1.0, r.sample("vllm_router_active_workers"))
}

func TestRetriesTakeAnotherWorker(t *testing.T) {
	for name, fail := range map[string]func(*engine){
		"a status":              func(e *engine) { e.status = http.StatusServiceUnavailable },
		"a closed connection":   func(e *engine) { e.resets = 1 },
		"a gateway's own error": func(e *engine) { e.status = http.StatusBadGateway },
	} {
		t.Run(name, func(t *testing.T) {
			r := play(t, vllm, 2)
			r.engines[0].set(fail)
			assert.Equal(t, "pod-1", r.served())
			assert.Equal(t, 1.0, r.sample(`vllm_router_retries_total{route="/v1/completions"}`))
		})
	}
	t.Run("which is chosen anew, so never one that was removed", func(t *testing.T) {
		r := stopped(t, vllm, 2)
		r.engines[0].set(func(e *engine) { e.status = http.StatusServiceUnavailable })
		done := r.begin()
		r.eventually("the first attempt", func() bool { return len(r.engines[0].got()) == 1 })
		r.do(http.MethodDelete, r.path(r.engines[1]), "")
		r.eventually("the others", func() bool {
			r.step(time.Second)
			return len(done) == 1
		})
		assert.Empty(t, r.engines[1].got())
		assert.Len(t, r.engines[0].got(), 5)
	})
	t.Run("and end with the last one's answer", func(t *testing.T) {
		r := play(t, vllm, 1)
		r.engines[0].set(func(e *engine) { e.status = http.StatusServiceUnavailable })
		res, err := r.post(t.Context(), `{}`)
		require.NoError(t, err)
		_ = res.Body.Close()
		assert.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		assert.Len(t, r.engines[0].got(), 5)
	})
	t.Run("and not after the answer has begun", func(t *testing.T) {
		r := play(t, vllm, 2)
		r.engines[0].stay()
		s := r.open()
		r.engines[0].set(func(e *engine) { close(e.stays); e.stays = nil })
		s.whole()
		assert.Empty(t, r.engines[1].got())
	})
}

// The counter-example of a proof that looks at lists and engines only: the process holds a
// request for a decode worker that is in no list and idle.
func TestVLLMRouterHoldsARequestForItsDecodeWorker(t *testing.T) {
	o := vllm
	o.PD = Sequential
	r := pairOf(t, o, 2)
	prefill, decode := r.engines[0], r.engines[1]
	r.fault(Fault{Name: PrefillHold})
	served := r.begin()
	r.eventually("the prefill", func() bool { return len(prefill.got()) == 1 })
	assert.EqualValues(t, 1, prefill.got()[0].body["max_tokens"])
	assert.Equal(t, false, prefill.got()[0].body["stream"])

	r.do(http.MethodDelete, r.path(decode), "")
	r.script.Apply(with(decode.pod, func(p *corev1.Pod) { delete(p.Labels, "role") }))
	assert.Nil(t, r.has(decode))
	assert.Empty(t, decode.got(), "the engine is idle")
	load, shown := r.metric(byWorker("vllm_router_running_requests", decode))
	assert.True(t, !shown || load == 0)

	r.fault(Fault{Name: PrefillHold, Off: true})
	assert.Equal(t, decode.pod.Name, <-served)
	require.Len(t, decode.got(), 1)
	assert.Contains(t, decode.got()[0].header.Get("X-Request-Id"),
		"___prefill_addr_"+prefill.host+"___decode_addr_"+decode.host)
}

func TestVLLMRouterCountsADecodeRequestOnlyUntilItIsAnswered(t *testing.T) {
	o := vllm
	o.PD = Sequential
	r := pairOf(t, o, 2)
	decode := r.engines[1]
	decode.stay()
	s := r.open()
	assert.Zero(t, r.has(decode).Load, "the stream is open")
	assert.Equal(t, 1.0, r.sample(byWorker("vllm_router_processed_requests_total", decode)))
	assert.Equal(t, 1.0, r.sample(byWorker("vllm_router_pd_decode_requests_total", decode)))
	decode.release()
	assert.True(t, s.whole())
}

func TestAPrefillTakesAsLongAsItIsTold(t *testing.T) {
	o := vllm
	o.PD, o.PrefillTime = Sequential, time.Hour
	r := pairOf(t, o, 2)
	served := r.begin(PrefillTimeHeader, "20ms")
	assert.Equal(t, "pod-1", <-served)
	r.begin()
	r.eventually("the second prefill", func() bool { return len(r.engines[0].got()) == 2 })
	assert.Len(t, r.engines[1].got(), 1)
}

func TestAFailedPrefillIsNotTriedAgain(t *testing.T) {
	o := vllm
	o.PD = Sequential
	r := pairOf(t, o, 2)
	r.engines[0].set(func(e *engine) { e.status = http.StatusServiceUnavailable })
	res, err := r.post(t.Context(), `{}`)
	require.NoError(t, err)
	body, _ := io.ReadAll(res.Body)
	_ = res.Body.Close()
	assert.Equal(t, http.StatusInternalServerError, res.StatusCode)
	assert.Contains(t, string(body), "prefill: 503")
	assert.Len(t, r.engines[0].got(), 1)
	assert.Empty(t, r.engines[1].got())
}
