package standin

import (
	"math"
	"os"
	"strconv"
	"time"
)

// The families of vLLM 0.20 and later (V1 engine) as its PrometheusStatLogger
// declares them, then those of prometheus_client's default collectors and of
// the FastAPI instrumentator, in the order a scrape shows them.
var vllmFamilies = []family{
	{typ: "gauge", name: "vllm:num_requests_running", help: "Number of requests in model execution batches."},
	{typ: "gauge", name: "vllm:num_requests_waiting", help: "Number of requests waiting to be processed."},
	{typ: "gauge", name: "vllm:num_requests_waiting_by_reason", help: "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting."},
	{typ: "gauge", name: "vllm:engine_sleep_state", help: "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2."},
	{typ: "gauge", name: "vllm:kv_cache_usage_perc", help: "KV-cache usage. 1 means 100 percent usage."},
	{typ: "counter", name: "vllm:prefix_cache_queries", help: "Prefix cache queries, in terms of number of queried tokens."},
	{typ: "counter", name: "vllm:prefix_cache_hits", help: "Prefix cache hits, in terms of number of cached tokens."},
	{typ: "counter", name: "vllm:external_prefix_cache_queries", help: "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens."},
	{typ: "counter", name: "vllm:external_prefix_cache_hits", help: "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens."},
	{typ: "counter", name: "vllm:mm_cache_queries", help: "Multi-modal cache queries, in terms of number of queried items."},
	{typ: "counter", name: "vllm:mm_cache_hits", help: "Multi-modal cache hits, in terms of number of cached items."},
	{typ: "counter", name: "vllm:num_preemptions", help: "Cumulative number of preemption from the engine."},
	{typ: "counter", name: "vllm:prompt_tokens", help: "Number of prefill tokens processed."},
	{typ: "counter", name: "vllm:prompt_tokens_by_source", help: "Number of prompt tokens by source."},
	{typ: "counter", name: "vllm:prompt_tokens_cached", help: "Number of cached prompt tokens (local + external)."},
	{typ: "counter", name: "vllm:generation_tokens", help: "Number of generation tokens processed."},
	{typ: "counter", name: "vllm:request_success", help: "Count of successfully processed requests."},
	{typ: "histogram", name: "vllm:request_prompt_tokens", help: "Number of prefill tokens processed.", buckets: lengths},
	{typ: "histogram", name: "vllm:request_generation_tokens", help: "Number of generation tokens processed.", buckets: lengths},
	{typ: "histogram", name: "vllm:iteration_tokens_total", help: "Histogram of number of tokens per engine_step.", buckets: []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}},
	{typ: "histogram", name: "vllm:request_max_num_generation_tokens", help: "Histogram of maximum number of requested generation tokens.", buckets: lengths},
	{typ: "histogram", name: "vllm:request_params_n", help: "Histogram of the n request parameter.", buckets: []float64{1, 2, 5, 10, 20}},
	{typ: "histogram", name: "vllm:request_params_max_tokens", help: "Histogram of the max_tokens request parameter.", buckets: lengths},
	{typ: "histogram", name: "vllm:time_to_first_token_seconds", help: "Histogram of time to first token in seconds.", buckets: []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}},
	{typ: "histogram", name: "vllm:inter_token_latency_seconds", help: "Histogram of inter-token latency in seconds.", buckets: tokenTimes},
	{typ: "histogram", name: "vllm:request_time_per_output_token_seconds", help: "Histogram of time_per_output_token_seconds per request.", buckets: tokenTimes},
	{typ: "histogram", name: "vllm:e2e_request_latency_seconds", help: "Histogram of e2e request latency in seconds.", buckets: requestTimes},
	{typ: "histogram", name: "vllm:request_queue_time_seconds", help: "Histogram of time spent in WAITING phase for request.", buckets: requestTimes},
	{typ: "histogram", name: "vllm:request_inference_time_seconds", help: "Histogram of time spent in RUNNING phase for request.", buckets: requestTimes},
	{typ: "histogram", name: "vllm:request_prefill_time_seconds", help: "Histogram of time spent in PREFILL phase for request.", buckets: requestTimes},
	{typ: "histogram", name: "vllm:request_decode_time_seconds", help: "Histogram of time spent in DECODE phase for request.", buckets: requestTimes},
	{typ: "histogram", name: "vllm:request_prefill_kv_computed_tokens", help: "Histogram of new KV tokens computed during prefill (excluding cached tokens).", buckets: lengths},
	{typ: "gauge", name: "vllm:lora_requests_info", help: "Running stats on lora requests."},
	{typ: "gauge", name: "vllm:cache_config_info", help: "Information of the LLMEngine CacheConfig"},
}

var pythonFamilies = []family{
	{typ: "counter", name: "python_gc_objects_collected", help: "Objects collected during gc"},
	{typ: "counter", name: "python_gc_objects_uncollectable", help: "Uncollectable objects found during GC"},
	{typ: "counter", name: "python_gc_collections", help: "Number of times this generation was collected"},
	{typ: "gauge", name: "python_info", help: "Python platform information"},
	{typ: "gauge", name: "process_virtual_memory_bytes", help: "Virtual memory size in bytes."},
	{typ: "gauge", name: "process_resident_memory_bytes", help: "Resident memory size in bytes."},
	{typ: "gauge", name: "process_start_time_seconds", help: "Start time of the process since unix epoch in seconds."},
	{typ: "counter", name: "process_cpu_seconds", help: "Total user and system CPU time spent in seconds."},
	{typ: "gauge", name: "process_open_fds", help: "Number of open file descriptors."},
	{typ: "gauge", name: "process_max_fds", help: "Maximum number of open file descriptors."},
}

var instrumentatorFamilies = []family{
	{typ: "counter", name: "http_requests", help: "Total number of requests by method, status and handler."},
	{typ: "histogram", name: "http_request_duration_highr_seconds", help: "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ", buckets: []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 7.5, 10, 30, 60}},
	{typ: "histogram", name: "http_request_duration_seconds", help: "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ", buckets: []float64{0.1, 0.5, 1}},
}

var (
	lengths      = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000}
	tokenTimes   = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestTimes = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// vllmMetrics sets vLLM's gauges from every engine step, as its API server does
// when it has the step's output.
type vllmMetrics struct {
	*registry
	options Options
}

func newVLLMMetrics(o Options) *vllmMetrics {
	var families []family
	if !o.Multiprocess {
		families = append(families, pythonFamilies...)
	}
	if !o.DisableLogStats {
		families = append(families, vllmFamilies...)
	}
	families = append(families, instrumentatorFamilies...)
	m := &vllmMetrics{newRegistry(families, o.Multiprocess), o}
	if !o.Multiprocess {
		m.python()
	}
	if !o.DisableLogStats {
		for rank := range o.DataParallel {
			m.bind(rank)
		}
	}
	return m
}

// bind makes the series of one engine, as vLLM does before any request. In
// multiprocess mode a "mostrecent" gauge shows no sample until it is first set.
func (m *vllmMetrics) bind(rank int) {
	l := m.labels(rank)
	for _, f := range vllmFamilies {
		switch f.name {
		case "vllm:num_requests_waiting_by_reason":
			m.start(f, l.with("reason", "capacity"))
			m.start(f, l.with("reason", "deferred"))
		case "vllm:engine_sleep_state":
			for state, v := range map[string]float64{"awake": 1, "discard_all": 0, "weights_offloaded": 0} {
				m.set(f.name, l.with("sleep_state", state), v)
			}
		case "vllm:prompt_tokens_by_source":
			for _, source := range []string{"local_compute", "local_cache_hit", "external_kv_transfer"} {
				m.start(f, l.with("source", source))
			}
		case "vllm:request_success":
			for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
				m.start(f, l.with("finished_reason", reason))
			}
		case "vllm:lora_requests_info":
			if m.options.EnableLoRA {
				m.set(f.name, labels{"max_lora": "1", "running_lora_adapters": "", "waiting_lora_adapters": ""}, unixSeconds(time.Now()))
			}
		case "vllm:cache_config_info":
			m.set(f.name, cacheConfig.with("engine", strconv.Itoa(rank)), 1)
		default:
			m.start(f, l)
		}
	}
}

func (m *vllmMetrics) start(f family, l labels) {
	if m.multiprocess && f.typ == "gauge" {
		m.declare(f.name, l)
		return
	}
	m.add(f.name, l, 0)
}

var cacheConfig = labels{
	"block_size": "16", "cache_dtype": "auto", "calculate_kv_scales": "False", "cpu_kvcache_space_bytes": "None",
	"enable_prefix_caching": "True", "gpu_memory_utilization": "0.9", "is_attention_free": "False",
	"kv_cache_memory_bytes": "None", "mamba_block_size": "None", "mamba_cache_dtype": "auto", "num_cpu_blocks": "None",
	"num_gpu_blocks": "27641", "num_gpu_blocks_override": "None", "prefix_caching_hash_algo": "sha256",
	"sliding_window": "None", "swap_space_bytes": "4294967296",
}

func (m *vllmMetrics) labels(rank int) labels {
	return labels{"engine": strconv.Itoa(rank), "model_name": m.options.Models[0]}
}

func (m *vllmMetrics) step(rank int, s load) {
	if m.options.DisableLogStats {
		return
	}
	l := m.labels(rank)
	m.set("vllm:num_requests_running", l, float64(s.running))
	m.set("vllm:num_requests_waiting", l, float64(s.waiting))
	m.set("vllm:num_requests_waiting_by_reason", l.with("reason", "capacity"), float64(s.waiting))
	m.set("vllm:num_requests_waiting_by_reason", l.with("reason", "deferred"), 0)
	m.set("vllm:kv_cache_usage_perc", l, math.Min(1, float64(s.running)*0.002))
	m.observe("vllm:iteration_tokens_total", l, float64(s.tokens))
	m.add("vllm:generation_tokens", l, float64(s.tokens))
}

func (m *vllmMetrics) prefilled(rank int, _, after load) { m.step(rank, after) }
func (m *vllmMetrics) decoded(rank int, after load)      { m.step(rank, after) }
func (m *vllmMetrics) aborted(rank int, after load)      { m.step(rank, after) }

// idle never reports: a vLLM that takes no step sets no gauge.
func (m *vllmMetrics) idle(int) time.Duration { return 0 }

func (m *vllmMetrics) ended(rank int, r *request) {
	if m.options.DisableLogStats {
		return
	}
	l := m.labels(rank)
	end := time.Now()
	m.add("vllm:request_success", l.with("finished_reason", r.finish), 1)
	m.observe("vllm:e2e_request_latency_seconds", l, end.Sub(r.arrived).Seconds())
	if r.produced == 0 {
		return
	}
	m.add("vllm:prompt_tokens", l, float64(r.prompt))
	m.add("vllm:prompt_tokens_by_source", l.with("source", "local_compute"), float64(r.prompt))
	m.add("vllm:prefix_cache_queries", l, float64(r.prompt))
	decode := end.Sub(r.firstToken).Seconds()
	for name, v := range map[string]float64{
		"vllm:request_prompt_tokens":                 float64(r.prompt),
		"vllm:request_prefill_kv_computed_tokens":    float64(r.prompt),
		"vllm:request_generation_tokens":             float64(r.produced),
		"vllm:request_max_num_generation_tokens":     float64(r.produced),
		"vllm:request_params_n":                      1,
		"vllm:request_params_max_tokens":             float64(r.limit),
		"vllm:time_to_first_token_seconds":           r.firstToken.Sub(r.arrived).Seconds(),
		"vllm:inter_token_latency_seconds":           1 / r.rate,
		"vllm:request_time_per_output_token_seconds": decode / math.Max(1, float64(r.produced-1)),
		"vllm:request_queue_time_seconds":            r.scheduled.Sub(r.arrived).Seconds(),
		"vllm:request_inference_time_seconds":        end.Sub(r.scheduled).Seconds(),
		"vllm:request_prefill_time_seconds":          r.firstToken.Sub(r.scheduled).Seconds(),
		"vllm:request_decode_time_seconds":           decode,
	} {
		m.observe(name, l, v)
	}
}

// handled counts an HTTP request as the instrumentator does; it leaves the
// probes and the scrape itself out.
func (m *vllmMetrics) handled(method, path string, status int, took time.Duration) {
	if path == "/metrics" || path == "/health" {
		return
	}
	class := strconv.Itoa(status/100) + "xx"
	m.add("http_requests", labels{"handler": path, "method": method, "status": class}, 1)
	m.observe("http_request_duration_highr_seconds", nil, took.Seconds())
	m.observe("http_request_duration_seconds", labels{"handler": path, "method": method}, took.Seconds())
}

func (m *vllmMetrics) python() {
	for generation, n := range []float64{14302, 2117, 1083} {
		l := labels{"generation": strconv.Itoa(generation)}
		m.add("python_gc_objects_collected", l, n)
		m.add("python_gc_objects_uncollectable", l, 0)
		m.add("python_gc_collections", l, math.Floor(n/9))
	}
	m.set("python_info", labels{"implementation": "CPython", "major": "3", "minor": "12", "patchlevel": "11", "version": "3.12.11"}, 1)
	m.set("process_virtual_memory_bytes", nil, 1.2884901888e+10)
	m.set("process_resident_memory_bytes", nil, 9.39524096e+08)
	m.set("process_start_time_seconds", nil, unixSeconds(time.Now()))
	m.add("process_cpu_seconds", nil, 23.6)
	m.set("process_open_fds", nil, float64(30+os.Getpid()%10))
	m.set("process_max_fds", nil, 1.048576e+06)
}
