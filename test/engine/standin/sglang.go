package standin

import (
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

// The families of SGLang after May 2026 (bootstrap and inflight names), in the
// order its collectors declare them. SGLang always runs prometheus_client in
// multiprocess mode: no python_ or process_ families, no _created.
var (
	// sglangReport is what one report of a scheduler sets.
	sglangReport = []family{
		{typ: "gauge", name: "sglang:num_running_reqs", help: "The number of running requests."},
		{typ: "gauge", name: "sglang:num_queue_reqs", help: "The number of requests in the waiting queue."},
		{typ: "gauge", name: "sglang:num_grammar_queue_reqs", help: "The number of requests in the grammar waiting queue."},
		{typ: "gauge", name: "sglang:gen_throughput", help: "The generation throughput (token/s)."},
		{typ: "gauge", name: "sglang:cache_hit_rate", help: "The prefix cache hit rate."},
		{typ: "gauge", name: "sglang:decode_sum_seq_lens", help: "The sum of all sequence lengths in decode."},
		{typ: "gauge", name: "sglang:token_usage", help: "The token usage."},
		{typ: "gauge", name: "sglang:full_token_usage", help: "The token usage for full attention layers."},
		{typ: "gauge", name: "sglang:swa_token_usage", help: "The token usage for SWA layers."},
		{typ: "gauge", name: "sglang:mamba_usage", help: "The token usage for Mamba layers."},
		{typ: "gauge", name: "sglang:num_used_tokens", help: "The number of used tokens."},
		{typ: "gauge", name: "sglang:kv_available_tokens", help: "Number of free token slots in the KV cache pool."},
		{typ: "gauge", name: "sglang:kv_evictable_tokens", help: "Number of evictable (radix-cached) token slots in the KV cache pool."},
		{typ: "gauge", name: "sglang:kv_used_tokens", help: "Number of actively used token slots in the KV cache pool."},
		{typ: "gauge", name: "sglang:spec_accept_length", help: "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward)."},
		{typ: "gauge", name: "sglang:spec_accept_rate", help: "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch)."},
		{typ: "gauge", name: "sglang:spec_num_steps", help: "Currently active speculative_num_steps."},
		{typ: "gauge", name: "sglang:spec_num_draft_tokens", help: "Currently active speculative_num_draft_tokens (decouples from steps under topk>1)."},
		{typ: "gauge", name: "sglang:num_retracted_reqs", help: "The number of retracted requests."},
		{typ: "gauge", name: "sglang:num_paused_reqs", help: "The number of paused requests by async weight sync."},
		{typ: "gauge", name: "sglang:num_prefill_bootstrap_queue_reqs", help: "The number of requests in the prefill bootstrap queue."},
		{typ: "gauge", name: "sglang:num_prefill_inflight_queue_reqs", help: "The number of requests in the prefill inflight queue."},
		{typ: "gauge", name: "sglang:num_decode_prealloc_queue_reqs", help: "The number of requests in the decode prealloc queue."},
		{typ: "gauge", name: "sglang:num_decode_transfer_queue_reqs", help: "The number of requests in the decode transfer queue."},
		{typ: "gauge", name: "sglang:pending_prealloc_token_usage", help: "The token usage for pending preallocated tokens (not preallocated yet)."},
		{typ: "gauge", name: "sglang:utilization", help: "The utilization."},
		{typ: "gauge", name: "sglang:fwd_occupancy", help: "Forward pass GPU occupancy percentage."},
		{typ: "gauge", name: "sglang:new_token_ratio", help: "The new token ratio."},
		{typ: "gauge", name: "sglang:is_cuda_graph", help: "Whether the batch is using CUDA graph."},
		{typ: "gauge", name: "sglang:num_unique_running_routing_keys", help: "Number of unique routing keys in running batch."},
	}

	sglangRest = []family{
		{typ: "histogram", name: "sglang:kv_transfer_latency_ms", help: "Histogram of KV cache transfer latency in ms.", buckets: []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000}},
		{typ: "counter", name: "sglang:num_transfer_failed_reqs", help: "The number of transfer failed requests."},
		{typ: "histogram", name: "sglang:queue_time_seconds", help: "Histogram of queueing time in seconds.", buckets: []float64{0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000}},
		{typ: "histogram", name: "sglang:per_stage_req_latency_seconds", help: "The latency of each stage of requests.", buckets: exponential(0.001, 1.62, 30)},
		{typ: "counter", name: "sglang:realtime_tokens", help: "Total number of tokens processed (updated on each log interval). mode: prefill_compute, prefill_cache, decode."},
		{typ: "gauge", name: "sglang:max_total_num_tokens", help: "Maximum total number of tokens in the KV cache pool."},
		{typ: "gauge", name: "sglang:page_size", help: "KV cache page size in tokens."},
		{typ: "gauge", name: "sglang:num_pages", help: "Number of KV cache pages."},
		{typ: "gauge", name: "sglang:context_len", help: "Maximum context length."},
		{typ: "counter", name: "sglang:prompt_tokens", help: "Number of prefill tokens processed."},
		{typ: "counter", name: "sglang:generation_tokens", help: "Number of generation tokens processed."},
		{typ: "histogram", name: "sglang:prompt_tokens_histogram", help: "Histogram of prompt token length.", buckets: promptLengths},
		{typ: "histogram", name: "sglang:uncached_prompt_tokens_histogram", help: "Histogram of uncached (compute) prompt token length.", buckets: promptLengths},
		{typ: "histogram", name: "sglang:generation_tokens_histogram", help: "Histogram of generation token length.", buckets: promptLengths},
		{typ: "counter", name: "sglang:cached_tokens", help: "Number of cached prompt tokens by source (device/host/storage)."},
		{typ: "counter", name: "sglang:num_requests", help: "Number of requests processed."},
		{typ: "counter", name: "sglang:num_aborted_requests", help: "Number of requests aborted."},
		{typ: "histogram", name: "sglang:time_to_first_token_seconds", help: "Histogram of time to first token in seconds.", buckets: []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400}},
		{typ: "histogram", name: "sglang:inter_token_latency_seconds", help: "Histogram of inter-token latency in seconds.", buckets: []float64{0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8}},
		{typ: "histogram", name: "sglang:e2e_request_latency_seconds", help: "Histogram of End-to-end request latency in seconds", buckets: []float64{0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400}},
		{typ: "counter", name: "sglang:http_requests", help: "Total number of HTTP requests by endpoint and method"},
		{typ: "counter", name: "sglang:http_responses", help: "Total number of HTTP responses by endpoint and status code"},
		{typ: "gauge", name: "sglang:http_requests_active", help: "Number of currently active HTTP requests"},
	}
)

var promptLengths = []float64{
	100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500, 20000,
	22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000, 200000, 300000, 400000, 600000, 800000, 1000000, 1100000,
}

func exponential(start, factor float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = start * math.Pow(factor, float64(i))
	}
	return out
}

// idleReportEvery is how long after its last report an idle SGLang reports
// again; versions since July 2026 report at once when a gauge is not zero.
const idleReportEvery = 30 * time.Second

// sglangMetrics sets SGLang's gauges when SGLang does: after a prefill, on every
// DecodeLogInterval-th decode step, and when it reports itself idle.
type sglangMetrics struct {
	*registry
	options Options

	mu    sync.Mutex
	ranks []sglangRank
}

type sglangRank struct {
	steps      int
	lastReport time.Time
	shown      load
}

func newSGLangMetrics(o Options) *sglangMetrics {
	m := &sglangMetrics{registry: newRegistry(slices.Concat(sglangReport, sglangRest), true), options: o, ranks: make([]sglangRank, o.DataParallel)}
	for rank := range m.ranks {
		l := m.labels(rank)
		m.set("sglang:max_total_num_tokens", l, 442256)
		m.set("sglang:page_size", l, 1)
		m.set("sglang:num_pages", l, 442256)
		m.set("sglang:context_len", l, 32768)
		m.ranks[rank].lastReport = time.Now()
		if !o.SkipWarmup {
			m.report(rank, load{})
		}
	}
	return m
}

func (m *sglangMetrics) labels(rank int) labels {
	l := m.modelLabels().with("moe_ep_rank", "0", "pp_rank", "0", "tp_rank", "0")
	if m.options.DataParallel > 1 {
		l["dp_rank"] = strconv.Itoa(rank)
	}
	return l
}

func (m *sglangMetrics) modelLabels() labels {
	engineType := "unified"
	if m.options.Role != "" {
		engineType = string(m.options.Role)
	}
	return labels{"engine_type": engineType, "model_name": m.options.Models[0]}
}

// report sets every gauge of a rank. A prefill node's requests wait in its
// bootstrap queue and are in flight while their KV cache is sent; a decode
// node's wait for their cache to be allocated.
func (m *sglangMetrics) report(rank int, s load) {
	m.ranks[rank].lastReport, m.ranks[rank].shown = time.Now(), s
	l := m.labels(rank)
	for _, f := range sglangReport {
		switch f.name {
		case "sglang:num_retracted_reqs", "sglang:num_paused_reqs":
			m.set(f.name, l.with("pid", strconv.Itoa(os.Getpid())), 0)
		default:
			m.set(f.name, l, 0)
		}
	}
	m.set("sglang:fwd_occupancy", l, math.NaN())
	m.set("sglang:num_used_tokens", l, float64(s.running*512))
	m.set("sglang:kv_used_tokens", l, float64(s.running*512))
	m.set("sglang:kv_available_tokens", l, float64(442256-s.running*512))
	running, waiting := "sglang:num_running_reqs", "sglang:num_queue_reqs"
	switch m.options.Role {
	case Prefill:
		running, waiting = "sglang:num_prefill_inflight_queue_reqs", "sglang:num_prefill_bootstrap_queue_reqs"
	case Decode:
		waiting = "sglang:num_decode_prealloc_queue_reqs"
	}
	m.set(running, l, float64(s.running))
	m.set(waiting, l, float64(s.waiting))
}

// prefilled reports the batch as it was before the prefill's requests joined.
func (m *sglangMetrics) prefilled(rank int, before, after load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add("sglang:realtime_tokens", m.labels(rank).with("mode", "prefill_compute"), float64(after.tokens))
	m.report(rank, before)
}

// decoded counts a decode step. A prefill node decodes nothing and so reports
// nothing while it only sends caches.
func (m *sglangMetrics) decoded(rank int, after load) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.options.Role == Prefill {
		return
	}
	r := &m.ranks[rank]
	if r.steps++; r.steps%m.options.DecodeLogInterval == 0 {
		m.add("sglang:realtime_tokens", m.labels(rank).with("mode", "decode"), float64(after.running*m.options.DecodeLogInterval))
		m.report(rank, after)
	}
}

func (m *sglangMetrics) aborted(int, load) {}

// idle reports if it is time to and says when to come back.
func (m *sglangMetrics) idle(rank int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &m.ranks[rank]
	disagrees := r.shown.running+r.shown.waiting > 0
	if time.Since(r.lastReport) >= idleReportEvery || m.options.IdleReportNow && disagrees {
		m.report(rank, load{})
	}
	return idleReportEvery - time.Since(r.lastReport)
}

func (m *sglangMetrics) ended(rank int, r *request) {
	l := m.modelLabels()
	if r.finish == finishAbort {
		m.add("sglang:num_aborted_requests", l, 1)
		if m.options.Role != "" {
			m.add("sglang:num_transfer_failed_reqs", m.labels(rank), 1)
		}
		return
	}
	streaming := l.with("is_streaming", strconv.FormatBool(r.stream))
	m.add("sglang:num_requests", streaming, 1)
	m.add("sglang:prompt_tokens", streaming, float64(r.prompt))
	m.add("sglang:generation_tokens", streaming, float64(r.produced))
	m.add("sglang:cached_tokens", l.with("cache_source", "device"), 1) // the token every prompt begins with
	m.observe("sglang:prompt_tokens_histogram", l, float64(r.prompt))
	m.observe("sglang:uncached_prompt_tokens_histogram", l, float64(r.prompt))
	m.observe("sglang:generation_tokens_histogram", l, float64(r.produced))
	m.observe("sglang:time_to_first_token_seconds", streaming, r.firstToken.Sub(r.arrived).Seconds())
	m.observe("sglang:inter_token_latency_seconds", l, 1/r.rate)
	m.observe("sglang:e2e_request_latency_seconds", streaming, time.Since(r.arrived).Seconds())
	m.observe("sglang:queue_time_seconds", m.labels(rank), r.scheduled.Sub(r.arrived).Seconds())
	m.observe("sglang:per_stage_req_latency_seconds", m.labels(rank).with("stage", "prefill_forward"), r.firstToken.Sub(r.scheduled).Seconds())
	if m.options.Role != "" {
		m.observe("sglang:kv_transfer_latency_ms", m.labels(rank), time.Since(r.firstToken).Seconds()*1000)
	}
}

// active counts the HTTP requests inside, the scrape itself included.
func (m *sglangMetrics) active(method, path string, delta float64) {
	m.add("sglang:http_requests_active", labels{"endpoint": path, "method": method}, delta)
}

func (m *sglangMetrics) handled(method, path string, status int, _ time.Duration) {
	m.add("sglang:http_requests", labels{"endpoint": path, "method": method}, 1)
	m.add("sglang:http_responses", labels{"endpoint": path, "method": method, "status_code": strconv.Itoa(status)}, 1)
}
