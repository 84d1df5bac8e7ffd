package fake

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The files in testdata are written after what is known of the real routers' answers, and
// not by the fakes: a fake that differs is wrong.

// pairAt is a pair that time passes for only when the test says so.
func pairAt(t *testing.T, o Options) *rig {
	t.Helper()
	all := engines(t, 2)
	for i, role := range []string{"prefill", "decode"} {
		all[i].pod = with(all[i].pod, label("role", role), label(roleLabel, role), annotated("vllm.ai/bootstrap-port", "8998"))
	}
	if o.Family != LLMD {
		o.PrefillSelector, o.DecodeSelector = "role=prefill", "role=decode"
	}
	return playAt(t, o, fakeClock(), all)
}

func TestBodies(t *testing.T) {
	for family, c := range map[Family]struct {
		pd    string
		paths map[string]string
	}{
		VLLMRouter:      {Sequential, map[string]string{"/workers": "workers", "/list_workers": "list_workers", "/readiness": "readiness"}},
		SMG:             {Sequential, map[string]string{"/workers": "workers"}},
		SGLModelGateway: {Dual, map[string]string{"/workers": "workers"}},
	} {
		t.Run(string(family), func(t *testing.T) {
			r := pairAt(t, Options{Family: family, PD: c.pd})
			if family == SMG {
				r.do(http.MethodDelete, r.path(r.engines[1]), "")
			}
			for path, name := range c.paths {
				status, body := r.do(http.MethodGet, path, "")
				require.Equal(t, http.StatusOK, status)
				assert.JSONEq(t, testdata(t, string(family)+"_"+name+".json"), r.neutral(body), path)
			}
		})
	}
	t.Run("llm-d", func(t *testing.T) {
		r := playAt(t, llmd("0.10.0"), fakeClock(), engines(t, 2))
		r.served()
		r.engines[1].stay()
		r.open()
		res, err := http.Get(r.MetricsURL() + "/debug/plugins/state")
		require.NoError(t, err)
		assert.JSONEq(t, testdata(t, "llm-d_plugins_state.json"), readAll(t, res))
	})
}

var (
	anyUUID      = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyTimestamp = regexp.MustCompile(`"timestamp":\d+`)
)

// neutral puts the n-th engine's address and its worker's id into words.
func (r *rig) neutral(body string) string {
	n := 0
	body = anyUUID.ReplaceAllStringFunc(body, func(string) string { n++; return "ID-" + string(rune('0'+n-1)) })
	for i, e := range r.engines {
		body = strings.ReplaceAll(body, e.url(), "URL-"+string(rune('0'+i)))
	}
	return anyTimestamp.ReplaceAllString(body, `"timestamp":1`)
}

func TestSeries(t *testing.T) {
	for _, c := range []Options{
		{Family: VLLMRouter, Version: "0.1.15", PD: Sequential}, {Family: SGLModelGateway, Version: "0.3.0", PD: Sequential},
		{Family: SMG, Version: "1.9.0", PD: Dual}, {Family: SMG, Version: "main", PD: Sequential},
		{Family: LLMD, Version: "0.8.0", PD: Sequential}, {Family: LLMD, Version: "0.9.0", PD: Sequential},
		{Family: LLMD, Version: "0.10.0", PD: Sequential}, {Family: LLMD, Version: "main", PD: Sequential},
	} {
		name := string(c.Family) + "_" + c.Version
		t.Run(name, func(t *testing.T) {
			r := pairAt(t, c)
			r.current().readEngines()
			r.engines[1].stay()
			s := r.open()
			parser := expfmt.NewTextParser(model.UTF8Validation)
			families, err := parser.TextToMetricFamilies(strings.NewReader(r.text()))
			require.NoError(t, err)
			r.engines[1].release()
			require.True(t, s.whole())
			var lines []string
			for _, f := range families {
				var labels []string
				for _, pair := range f.GetMetric()[0].GetLabel() {
					labels = append(labels, pair.GetName())
				}
				slices.Sort(labels)
				lines = append(lines, strings.TrimSpace(f.GetName()+" "+strings.ToLower(f.GetType().String())+" "+strings.Join(labels, ",")))
			}
			want := strings.Split(strings.TrimSpace(testdata(t, name+".series")), "\n")
			assert.ElementsMatch(t, want, lines)
		})
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return string(text)
}

func TestLabelValuesAreEscaped(t *testing.T) {
	x := newExposition()
	x.count("a_total", labelled("l", "q\"b\\n\n"))
	assert.Equal(t, "# TYPE a_total counter\na_total{l=\"q\\\"b\\\\n\\n\"} 1\n\n", string(x.text()))
}

func TestVersions(t *testing.T) {
	for version, at := range map[string]bool{"0.9.9": false, "0.10.0": true, "v0.10.0": true, "0.11.2": true, "main": true} {
		r, err := parseRelease(version)
		require.NoError(t, err)
		assert.Equal(t, at, r.since("0.10.0"), version)
	}
	_, err := parseRelease("latest")
	assert.EqualError(t, err, `--version "latest": want main or such as 0.10.0`)
}

func TestParse(t *testing.T) {
	for line, want := range map[string]func(*Options){
		"--family vllm-router --version 0.1.15 --host 0.0.0.0 --port 8000 --prometheus-port 29001 --prometheus-host 0.0.0.0 --service-discovery --selector app=engine tier=gpu --service-discovery-port 8001 --service-discovery-namespace ns --log-level debug": func(o *Options) {
			o.Family, o.Version, o.Listen, o.Metrics = VLLMRouter, "0.1.15", "0.0.0.0:8000", "0.0.0.0:29001"
			o.Selector, o.Ports, o.Namespace = "app=engine,tier=gpu", []int{8001}, "ns"
		},
		"--family vllm-router --vllm-pd-disaggregation --prefill-selector role=p --decode-selector=role=d --prefill-time 3s --request-timeout-secs 60": func(o *Options) {
			o.Family, o.PD, o.PrefillSelector, o.DecodeSelector, o.PrefillTime, o.Timeout = VLLMRouter, Sequential, "role=p", "role=d", 3*time.Second, time.Minute
			o.Listen, o.Metrics = "127.0.0.1:30000", "127.0.0.1:29000"
		},
		"--family smg --version 1.9.0 --policy cache_aware --drain-settle-secs 60 --pd-disaggregation --fault reset-load --fault prefill-hold=9s": func(o *Options) {
			o.Family, o.Version, o.PD, o.DrainSettle = SMG, "1.9.0", Dual, time.Minute
			o.Faults = []Fault{{Name: ResetLoad}, {Name: PrefillHold, Value: "9s"}}
		},
		"/usr/local/bin/smg --drain-settle 0s": func(o *Options) { o.Family, o.DrainSettle = SMG, -1 },
		"epp --listen :8000 --metrics :9091 --endpoint-selector app=engine --endpoint-target-ports 8000,8001 --pool-name qwen --pd sequential --admin :19000": func(o *Options) {
			o.Family, o.Listen, o.Metrics, o.Admin, o.Policy = LLMD, ":8000", ":9091", ":19000", "round_robin"
			o.Selector, o.Ports, o.Pool, o.PD = "app=engine", []int{8000, 8001}, "qwen", Sequential
		},
	} {
		want2 := Options{
			Version: "main", Listen: "0.0.0.0:30000", Metrics: "0.0.0.0:29000", Policy: "cache_aware", Pool: "pool", Model: "unknown", Ports: []int{80},
			DrainSettle: 5 * time.Second, Timeout: 30 * time.Minute, Retries: 5, HealthEvery: time.Minute,
		}
		want(&want2)
		if strings.HasPrefix(line, "--") {
			line = "router " + line
		}
		got, err := Parse(strings.Fields(line))
		require.NoError(t, err, line)
		assert.Equal(t, want2, got, line)
	}
	for line, message := range map[string]string{
		"":                      `--family "": want one of [vllm-router smg sgl-model-gateway llm-d]`,
		"--family smg --policy": "--policy: a value must follow",
		"--family smg --version 1.9.0 --pd sequential": `--pd "sequential": smg 1.9.0 does it dual`,
		"--family smg --selector a=b=c":                "--selector: ",
		"--family smg --port x":                        `--port: "x" is not a number from 0 to 65535`,
		"--family smg --drain-settle long":             `--drain-settle: "long" is not a duration such as 30s`,
		"--family smg --fault nonsense":                `--fault: fault "nonsense" is not known`,
	} {
		_, err := Parse(strings.Fields("router " + line))
		assert.ErrorContains(t, err, message, line)
	}
}
