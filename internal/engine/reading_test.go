package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
)

func vllm(t testing.TB) Engine {
	t.Helper()
	e, ok := Lookup(VLLM)
	require.True(t, ok)
	return e
}

func sglang(t testing.TB) Engine {
	t.Helper()
	e, ok := Lookup(SGLang)
	require.True(t, ok)
	return e
}

const idleVLLM = "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"

func TestBodyOverTheLimitIsUnknown(t *testing.T) {
	padding := func(bytes int) []byte {
		line := "vllm:prompt_tokens_total 1\n"
		body := idleVLLM + strings.Repeat(line, (bytes-len(idleVLLM))/len(line))
		return []byte(body + strings.Repeat("\n", bytes-len(body)))
	}
	assert.Equal(t, Idle, vllm(t).Read(padding(MaxBody)).Verdict)
	r := vllm(t).Read(padding(MaxBody + 1))
	assert.Equal(t, Unknown, r.Verdict)
	assert.Equal(t, names.ReadTooLarge, r.Reason)
	assert.Equal(t, "the body has 1048577 bytes, more than 1048576", r.Detail)
}

func TestDetailNamesWhatIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		idleVLLM:                        "",
		"":                              "the body is empty",
		"[]":                            "the body is not Prometheus text",
		"vllm:num_requests_running 0\n": "vllm:num_requests_waiting is missing",
		"vllm:num_requests_running 3\n": "vllm:num_requests_waiting is missing",
		"vllm:num_requests_running 0\n# TYPE vllm:num_requests_waiting gauge\n":    "vllm:num_requests_waiting has no sample",
		"vllm:num_requests_running NaN\n":                                          "vllm:num_requests_running is NaN",
		"vllm:num_requests_running -4\n":                                           "vllm:num_requests_running is -4",
		"vllm:num_requests_running +Inf\n":                                         "vllm:num_requests_running is +Inf",
		idleVLLM + "vllm:num_requests_running\n":                                   "vllm:num_requests_running has a line that cannot be read: it has no value",
		"vllm:num_requests_running 0 soon\n":                                       `vllm:num_requests_running has a line that cannot be read: "soon" after the value`,
		"# TYPE vllm:num_requests_running counter\nvllm:num_requests_running 12\n": "vllm:num_requests_running is declared as counter, not as gauge",
	} {
		assert.Equal(t, want, vllm(t).Read([]byte(body)).Detail, "body %q", body)
	}
}

func TestDetailOfAnEndlessLineIsShort(t *testing.T) {
	r := vllm(t).Read([]byte("vllm:num_requests_running " + strings.Repeat("é", 100_000)))
	assert.Equal(t, names.ReadInvalidValue, r.Reason)
	assert.LessOrEqual(t, len([]rune(r.Detail)), 200)
}

func TestGaugesAreInTableOrderUnderTheTablesNames(t *testing.T) {
	r := sglang(t).Read([]byte(`sglang:num_prefill_infight_queue_reqs 2
sglang:num_queue_reqs NaN
sglang:num_running_reqs{dp_rank="0"} 1
sglang:num_running_reqs{dp_rank="1"} 3
`))
	assert.Equal(t, Busy, r.Verdict)
	assert.InDelta(t, 6, r.InFlight, 0)
	assert.Equal(t, []GaugeValue{
		{Name: "sglang:num_running_reqs", Value: 4, Present: true},
		{Name: "sglang:num_queue_reqs"},
		{Name: "sglang:num_prefill_bootstrap_queue_reqs"},
		{Name: "sglang:num_prefill_inflight_queue_reqs", Value: 2, Present: true},
		{Name: "sglang:num_decode_prealloc_queue_reqs"},
		{Name: "sglang:num_decode_transfer_queue_reqs"},
		{Name: "sglang:num_grammar_queue_reqs"},
		{Name: "sglang:num_decode_host_receive_queue_reqs"},
	}, r.Gauges)
}

func TestEveryReadingNamesEveryGauge(t *testing.T) {
	for _, e := range All() {
		for _, body := range []string{"", "[]", strings.Repeat("x", MaxBody+1)} {
			r := e.Read([]byte(body))
			require.Len(t, r.Gauges, len(e.Gauges))
			for i, g := range e.Gauges {
				assert.Equal(t, GaugeValue{Name: g.Name}, r.Gauges[i])
			}
		}
	}
}

func TestHugeValuesStayNumbers(t *testing.T) {
	r := vllm(t).Read(fmt.Appendf(nil, "vllm:num_requests_running{a=\"1\"} %v\nvllm:num_requests_running{a=\"2\"} %[1]v\n", math.MaxFloat64))
	assert.Equal(t, Busy, r.Verdict)
	_, err := json.Marshal(r)
	assert.NoError(t, err, "JSON has no infinity")
}

func TestReadLeavesTheBodyAlone(t *testing.T) {
	body := []byte("vllm:num_requests_running 0 17 # {a=\"b\"} 1\nvllm:num_requests_waiting 0\n")
	before := string(body)
	vllm(t).Read(body)
	assert.Equal(t, before, string(body))
}

func TestLookupKnowsTheTableOnly(t *testing.T) {
	for _, e := range All() {
		found, ok := Lookup(e.Name)
		assert.True(t, ok)
		assert.Equal(t, e, found)
	}
	_, ok := Lookup("tgi")
	assert.False(t, ok)
}
