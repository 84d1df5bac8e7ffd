package engine

import "time"

// Name is an engine's name as annotations, flags and records write it.
type Name string

// The engines lastcall can measure.
const (
	VLLM   Name = "vllm"
	SGLang Name = "sglang"
)

// Gauge is one gauge of an engine that counts requests in flight.
type Gauge struct {
	// Name is the exact family name. A prefix is not a match:
	// vllm:num_requests_waiting_by_reason repeats vllm:num_requests_waiting.
	Name string
	// Formerly are the names older versions give the same gauge.
	Formerly []string
	// Optional gauges are added where they are present; some versions lack them
	// rightly, so their absence says nothing.
	Optional bool
}

// Engine is one row of the table.
type Engine struct {
	Name Name
	// DefaultPort is where the engine listens when no flag says otherwise.
	DefaultPort int32
	// Gauges count the requests in flight between them; their sum is the answer.
	Gauges []Gauge
	// BreakdownLabels mark a sample as part of another one: where one of them has
	// a value, the sample is skipped.
	BreakdownLabels []string
	// CopyLabels tell copies of one value apart: of samples that differ in nothing
	// else, the largest counts.
	CopyLabels []string
	// Refresh is how long the gauges can lag behind the truth. Source: measured
	// reports; vllm#49538 (3 to 6 s), SGLang's idle report (every 30 s).
	Refresh time.Duration
}

var table = []Engine{
	{
		Name:        VLLM,
		DefaultPort: 8000,
		Gauges: []Gauge{
			{Name: "vllm:num_requests_running"},
			{Name: "vllm:num_requests_waiting"},
			{Name: "vllm:num_requests_swapped", Optional: true},
		},
		Refresh: 6 * time.Second,
	},
	{
		Name:        SGLang,
		DefaultPort: 30000,
		Gauges: []Gauge{
			{Name: "sglang:num_running_reqs"},
			{Name: "sglang:num_queue_reqs"},
			{Name: "sglang:num_prefill_bootstrap_queue_reqs", Formerly: []string{"sglang:num_prefill_prealloc_queue_reqs"}},
			{Name: "sglang:num_prefill_inflight_queue_reqs", Formerly: []string{"sglang:num_prefill_infight_queue_reqs"}},
			{Name: "sglang:num_decode_prealloc_queue_reqs"},
			{Name: "sglang:num_decode_transfer_queue_reqs"},
			{Name: "sglang:num_grammar_queue_reqs", Optional: true},
			{Name: "sglang:num_decode_host_receive_queue_reqs", Optional: true},
		},
		BreakdownLabels: []string{"priority"},
		CopyLabels:      []string{"tp_rank"},
		Refresh:         31 * time.Second,
	},
}

// All returns every engine, in the order of the table.
func All() []Engine { return append([]Engine(nil), table...) }

// Lookup returns the engine of that name.
func Lookup(name Name) (Engine, bool) {
	for _, e := range table {
		if e.Name == name {
			return e, true
		}
	}
	return Engine{}, false
}
