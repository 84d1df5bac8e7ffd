package standin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bubbled starts an engine without ports, for a synctest bubble.
func bubbled(t *testing.T, o Options) *Engine {
	t.Helper()
	e, err := New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	e.start(ctx)
	go e.leave(ctx)
	return e
}

// send serves one streaming request of n tokens at the rate in a goroutine of
// its own. The result receives whether the answer was whole.
func send(t *testing.T, e *Engine, n int, rate float64) <-chan bool {
	t.Helper()
	body := `{"prompt": "x", "stream": true, "max_tokens": ` + strconv.Itoa(n) + `, "tokens_per_second": ` + pythonFloat(rate) + `}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/completions", strings.NewReader(body))
	w := httptest.NewRecorder()
	whole := make(chan bool, 1)
	go func() {
		defer func() {
			if recover() == nil {
				whole <- strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n")
				return
			}
			whole <- false
		}()
		e.handler().ServeHTTP(w, r)
	}()
	return whole
}

// gauge sums a family's samples; -1 if it has none.
func gauge(e *Engine, name string) float64 {
	sum, found := 0.0, false
	for line := range strings.Lines(string(e.metricsText())) {
		family, rest, ok := strings.Cut(line, "{")
		if !ok || family != name {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndex(rest, " "):]), 64)
		if err != nil {
			panic(err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return -1
	}
	return sum
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestVLLMGaugesMoveWithEachStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: VLLM, MaxRunning: 2, PrefillTime: 100 * time.Millisecond})
		first := send(t, e, 11, 10)
		settle(50 * time.Millisecond)
		assert.Equal(t, 0.0, gauge(e, "vllm:num_requests_running"), "before the prefill's step is done")
		settle(100 * time.Millisecond)
		assert.Equal(t, 1.0, gauge(e, "vllm:num_requests_running"))

		second, third := send(t, e, 51, 10), send(t, e, 11, 10)
		settle(300 * time.Millisecond)
		assert.Equal(t, 2.0, gauge(e, "vllm:num_requests_running"))
		assert.Equal(t, 1.0, gauge(e, "vllm:num_requests_waiting"), "the batch holds two")
		assert.Equal(t, 1.0, gauge(e, "vllm:num_requests_waiting_by_reason"))

		assert.True(t, <-first)
		synctest.Wait()
		assert.True(t, <-third)
		assert.True(t, <-second)
		synctest.Wait()
		assert.Equal(t, 0.0, gauge(e, "vllm:num_requests_running"), "with the last step's output")
		assert.Equal(t, 0.0, gauge(e, "vllm:num_requests_waiting"))
		assert.Equal(t, State{Started: 3, Completed: 3, LastRequestEnd: e.State().LastRequestEnd}, e.State())
	})
}

func TestARequestTakesItsTokensOverItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: VLLM})
		began := time.Now()
		slow, fast := send(t, e, 11, 2), send(t, e, 101, 50)
		assert.True(t, <-fast)
		assert.InDelta(t, 2.0, time.Since(began).Seconds(), 0.1)
		assert.True(t, <-slow)
		assert.InDelta(t, 5.0, time.Since(began).Seconds(), 0.1)
	})
}

func TestSGLangReadsIdleUntilTheFortiethDecodeStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang, EnableMetrics: true})
		whole := send(t, e, 101, 10)
		settle(3900 * time.Millisecond)
		assert.Equal(t, 0.0, gauge(e, "sglang:num_running_reqs"), "false idle: the prefill's report does not count the request")
		settle(300 * time.Millisecond)
		assert.Equal(t, 1.0, gauge(e, "sglang:num_running_reqs"), "the 40th step reports")
		assert.True(t, <-whole)
		synctest.Wait()
		assert.Equal(t, 1.0, gauge(e, "sglang:num_running_reqs"), "false busy: no report since the 80th step")
		settle(27 * time.Second)
		assert.Equal(t, 1.0, gauge(e, "sglang:num_running_reqs"))
		settle(2 * time.Second)
		assert.Equal(t, 0.0, gauge(e, "sglang:num_running_reqs"), "30 s after the last report the idle engine reports")
	})
}

func TestSGLangReportsIdlenessAtOnceInNewerVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang, EnableMetrics: true, IdleReportNow: true})
		whole := send(t, e, 61, 10)
		settle(5 * time.Second)
		assert.Equal(t, 1.0, gauge(e, "sglang:num_running_reqs"))
		assert.True(t, <-whole)
		synctest.Wait()
		assert.Equal(t, 0.0, gauge(e, "sglang:num_running_reqs"))
	})
}

func TestSGLangHealthProbeIsAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang, EnableMetrics: true})
		assert.True(t, <-send(t, e, 61, 10))
		synctest.Wait()
		require.Equal(t, 1.0, gauge(e, "sglang:num_running_reqs"))
		w := httptest.NewRecorder()
		e.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		assert.Equal(t, http.StatusOK, w.Code)
		synctest.Wait()
		assert.Equal(t, 0.0, gauge(e, "sglang:num_running_reqs"))
	})
}

func TestSGLangSeriesAppearWithTheIdleReportWithoutAWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang, EnableMetrics: true, SkipWarmup: true})
		settle(29 * time.Second)
		assert.Equal(t, -1.0, gauge(e, "sglang:num_running_reqs"))
		settle(2 * time.Second)
		assert.Equal(t, 0.0, gauge(e, "sglang:num_running_reqs"))
	})
}

func TestSplitRolesQueueInTheirOwnGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang, EnableMetrics: true, Role: Decode, MaxRunning: 1})
		first := send(t, e, 61, 10)
		settle(time.Millisecond)
		second := send(t, e, 2, 10)
		settle(5 * time.Second)
		assert.Equal(t, 1.0, gauge(e, "sglang:num_running_reqs"))
		assert.Equal(t, 1.0, gauge(e, "sglang:num_decode_prealloc_queue_reqs"))
		assert.True(t, <-first)
		assert.True(t, <-second)
	})
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang, EnableMetrics: true, Role: Prefill, MaxRunning: 2})
		first := send(t, e, 101, 10)
		settle(5 * time.Second)
		second := send(t, e, 101, 10)
		settle(time.Millisecond)
		third := send(t, e, 11, 10)
		settle(time.Second)
		assert.Equal(t, 0.0, gauge(e, "sglang:num_running_reqs"), "a prefill node runs nothing")
		assert.Equal(t, 1.0, gauge(e, "sglang:num_prefill_inflight_queue_reqs"), "as it was before the second prefill")
		fourth := send(t, e, 11, 10)
		settle(4500 * time.Millisecond)
		assert.Equal(t, 1.0, gauge(e, "sglang:num_prefill_bootstrap_queue_reqs"), "as the third left the queue")
		for _, whole := range []<-chan bool{first, second, third, fourth} {
			assert.True(t, <-whole)
		}
	})
}

func TestDataParallelSpreadsRequestsOverItsEngines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: VLLM, DataParallel: 2, PrefillTime: time.Millisecond})
		first := send(t, e, 11, 10)
		settle(100 * time.Millisecond)
		second := send(t, e, 11, 10)
		settle(100 * time.Millisecond)
		text := string(e.metricsText())
		for _, rank := range []string{"0", "1"} {
			assert.Contains(t, text, `vllm:num_requests_running{engine="`+rank+`",model_name="Qwen/Qwen2.5-7B-Instruct"} 1.0`)
		}
		assert.True(t, <-first)
		assert.True(t, <-second)
	})
}
