package standin

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a real engine served must be in the stand-in's text with the same TYPE,
// HELP and label names. These are the differences there may be, each with why:
// the fixtures are of many versions, and the stand-in plays a recent one.
var (
	allowedMissing = map[string]string{
		"vllm:num_requests_swapped":      "V0 engine only",
		"vllm:gpu_cache_usage_perc":      "kv_cache_usage_perc since V1",
		"vllm:cpu_cache_usage_perc":      "V0 engine only",
		"vllm:cpu_prefix_cache_hit_rate": "V0 engine only",
		"vllm:gpu_prefix_cache_hit_rate": "two counters since V1",

		"sglang:func_latency_seconds":          "left SGLang in 2025",
		"sglang:time_per_output_token_seconds": "inter_token_latency_seconds since 2025",
	}
	allowedHelp = map[string]string{
		"vllm:num_requests_running":           "V0 said: running on GPU",
		"vllm:num_requests_waiting_by_reason": "the fixture has its first sentence only",
		"sglang:cache_hit_rate":               "reworded in 2025",
		"sglang:gen_throughput":               "reworded in 2025",
		"sglang:num_running_reqs":             "a full stop since 2025",
		"sglang:num_used_tokens":              "a full stop since 2025",
		"sglang:num_queue_reqs":               "a full stop since 2025",
		"sglang:token_usage":                  "a full stop since 2025",
		"sglang:cached_tokens_total":          "names its sources since 2026",
	}
	// Label names that came or went: a fixture may lack the first ones and have
	// the others.
	newerLabels = map[string]string{
		"engine":       "vLLM 0.8.3",
		"engine_type":  "SGLang, by March 2025",
		"tp_rank":      "SGLang, July 2025",
		"pp_rank":      "SGLang, July 2025",
		"moe_ep_rank":  "SGLang, December 2025",
		"is_streaming": "SGLang, 2026",
		"cache_source": "SGLang, 2026",
		"stage":        "SGLang, 2025",
	}
	olderLabels = map[string]string{
		"priority": "SGLang with --enable-priority-scheduling only",
	}
	// Info families have the configuration as labels, which differs by version.
	infoFamilies = []string{"vllm:cache_config_info"}
)

var fixturesOf = map[Kind][]string{
	VLLM: {
		"vllm_v0_idle", "vllm_v1_docs_running8", "vllm_v1_by_reason_test_waiting6_running3", "vllm_v1_lora_info",
		"vllm_v1_multiproc_before_first_request",
	},
	SGLang: {
		"sglang_plain_docs_162_2826", "sglang_pd_prefill_0_1_2", "sglang_pd_decode_pr7317_excerpt",
		"sglang_pd_node_labelled_unified_idle", "sglang_priority_breakdown_reconstructed",
	},
}

// described is what a text says about its families, apart from values.
type described struct {
	typ, help map[string]string
	labels    map[string][]string // of a family's first sample, without le, sorted
}

var labelName = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="`)

func describe(text string) described {
	d := described{map[string]string{}, map[string]string{}, map[string][]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "# HELP "):
			name, help, _ := strings.Cut(strings.TrimPrefix(line, "# HELP "), " ")
			d.help[name] = help
		case strings.HasPrefix(line, "# TYPE "):
			name, typ, _ := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " ")
			d.typ[name] = typ
		case line != "":
			name := line[:strings.IndexAny(line, "{ ")]
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base := strings.TrimSuffix(name, suffix); base != name && (d.typ[base] == "histogram" || d.typ[base] == "summary") {
					name = base
				}
			}
			var names []string
			for _, match := range labelName.FindAllStringSubmatch(line[:strings.LastIndex(line, " ")], -1) {
				if match[1] != "le" {
					names = append(names, match[1])
				}
			}
			if _, seen := d.labels[name]; !seen {
				slices.Sort(names)
				d.labels[name] = names
			}
		}
	}
	return d
}

// played is the text after a request and an abort, so that every family that
// needs one has a sample.
func played(t *testing.T, o Options) string {
	t.Helper()
	e := Start(t, o)
	post(t, e, `{"prompt": "a", "max_tokens": 2, "tokens_per_second": 1000}`)
	s := e.scheduler()
	r := &request{limit: 1000, rate: 1, prompt: 1, progress: make(chan struct{}, 1)}
	s.submit(r)
	s.abort(r)
	return string(e.metricsText())
}

func TestMetricsAreThoseOfRealEngines(t *testing.T) {
	texts := map[Kind]described{
		VLLM:   describe(played(t, Options{Kind: VLLM, EnableLoRA: true})),
		SGLang: describe(played(t, Options{Kind: SGLang, EnableMetrics: true, Role: Prefill})),
	}
	for kind, fixtures := range fixturesOf {
		ours := texts[kind]
		for _, fixture := range fixtures {
			t.Run(fixture, func(t *testing.T) {
				text, err := os.ReadFile(filepath.Join("../testdata", fixture+".prom"))
				require.NoError(t, err)
				theirs := describe(string(text))
				names := slices.Sorted(maps.Keys(theirs.labels))
				for name := range theirs.typ {
					names = append(names, name)
				}
				require.NotEmpty(t, names)
				for _, name := range names {
					compare(t, name, theirs, ours)
				}
			})
		}
	}
}

func compare(t *testing.T, name string, theirs, ours described) {
	t.Helper()
	if _, present := ours.typ[name]; !present {
		// A counter of a single process has its name in the fixture with _total too.
		assert.NotEmpty(t, allowedMissing[name], "%s is in the fixture, the stand-in has no such family", name)
		return
	}
	if typ := theirs.typ[name]; typ != "" {
		assert.Equal(t, typ, ours.typ[name], "TYPE of %s", name)
	}
	if help := theirs.help[name]; help != "" && allowedHelp[name] == "" {
		assert.Equal(t, help, ours.help[name], "HELP of %s", name)
	}
	if slices.Contains(infoFamilies, name) {
		return
	}
	theirNames, sampled := theirs.labels[name]
	if !sampled {
		return
	}
	for _, label := range theirNames {
		if olderLabels[label] == "" {
			assert.Contains(t, ours.labels[name], label, "label of %s", name)
		}
	}
	for _, label := range ours.labels[name] {
		if newerLabels[label] == "" {
			assert.Contains(t, theirNames, label, "%s: the stand-in has a label that the fixture has not", name)
		}
	}
}

func TestMetricsParseAsPrometheusText(t *testing.T) {
	for name, o := range map[string]Options{
		"vLLM":                                {Kind: VLLM, EnableLoRA: true},
		"vLLM with two engines, padded":       {Kind: VLLM, DataParallel: 2, MetricsBytes: 300_000},
		"vLLM in multiprocess mode":           {Kind: VLLM, Multiprocess: true},
		"SGLang":                              {Kind: SGLang, EnableMetrics: true},
		"SGLang, decode, two engines":         {Kind: SGLang, EnableMetrics: true, Role: Decode, DataParallel: 2},
		"a model name with quotes and braces": {Kind: VLLM, Models: []string{`a"b\c{d}`}},
	} {
		t.Run(name, func(t *testing.T) {
			text := played(t, o)
			parser := expfmt.NewTextParser(model.UTF8Validation)
			families, err := parser.TextToMetricFamilies(strings.NewReader(text))
			require.NoError(t, err)
			assert.Greater(t, len(families), 30)
			assert.GreaterOrEqual(t, len(text), max(o.MetricsBytes, 10_000))
			if o.DataParallel > 1 {
				assert.Len(t, families[runningGauge[o.Kind]].Metric, o.DataParallel)
			}
		})
	}
}

func TestMultiprocessGaugesHaveNoSampleBeforeTheFirstStep(t *testing.T) {
	fixture, err := os.ReadFile("../testdata/vllm_v1_multiproc_before_first_request.prom")
	require.NoError(t, err)
	e, err := New(Options{Kind: VLLM, Multiprocess: true})
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(e.metricsText(), fixture), "the text before the first request must begin as the fixture")
	assert.NotContains(t, string(e.metricsText()), "python_info")
}

func TestFlagsThatTakeMetricsAway(t *testing.T) {
	t.Run("vLLM with --disable-log-stats has no vllm: family", func(t *testing.T) {
		e, err := New(Options{Kind: VLLM, DisableLogStats: true})
		require.NoError(t, err)
		assert.NotContains(t, string(e.metricsText()), "vllm:")
		assert.Contains(t, string(e.metricsText()), "process_open_fds")
	})
	t.Run("SGLang with --skip-server-warmup has no gauges at first", func(t *testing.T) {
		e, err := New(Options{Kind: SGLang, EnableMetrics: true, SkipWarmup: true})
		require.NoError(t, err)
		assert.NotContains(t, string(e.metricsText()), "sglang:num_running_reqs")
	})
}

func TestPythonFloat(t *testing.T) {
	// From the fixtures.
	for want, v := range map[string]float64{
		"0.0": 0, "8.0": 8, "27453.0": 27453, "1.7382173358407154e+09": 1738217335.8407154, "8.128902e+06": 8128902,
		"0.007507552643049313": 0.007507552643049313, "0.28": 0.28, "1e+06": 1_000_000, "999999.5": 999999.5, "1e-05": 0.00001,
		"0.0001": 0.0001,
	} {
		assert.Equal(t, want, pythonFloat(v))
	}
}
