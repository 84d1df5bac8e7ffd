package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lastcall-dev/lastcall/api/names"
)

// noEngine is how told writes that nothing was recognized.
const noEngine = "none"

// told is a match in one line: engine, what it was recognized by, URL, and where
// they apply the third address, the role and why it cannot be measured.
func told(m Match, ok bool) string {
	if !ok {
		return noEngine
	}
	parts := []string{string(m.Engine.Name), "by", m.From, m.Endpoint.URL()}
	parts = append(parts, m.Endpoint.Hosts[2:]...)
	if m.Role != RoleServer {
		parts = append(parts, string(m.Role))
	}
	if m.Unmeasurable != "" {
		parts = append(parts, string(m.Unmeasurable))
	}
	return strings.Join(parts, " ")
}

func argv(text string) []string { return strings.Fields(text) }

func sh(text string) []string { return []string{"/bin/sh", "-c", text} }

func env(pairs ...string) map[string]string {
	all := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}

const (
	vllm8000    = "vllm by command http://127.0.0.1:8000/metrics"
	vllm8080    = "vllm by command http://127.0.0.1:8080/metrics"
	sglang30000 = "sglang by command http://127.0.0.1:30000/metrics"
)

type row struct {
	why  string
	c    Container
	want string
}

func run(t *testing.T, rows []row) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.why, func(t *testing.T) {
			assert.Equal(t, r.want, told(Recognize(r.c, Source{})))
		})
	}
}

func TestStartForms(t *testing.T) {
	metrics := " --enable-metrics"
	for command, want := range map[string]string{
		"vllm serve x":        vllm8000,
		"vllm serve x --omni": vllm8000,
		"python -m vllm.entrypoints.openai.api_server --model x":                       vllm8000,
		"python3 -u -m vllm.entrypoints.openai.api_server":                             vllm8000,
		"python3 /usr/lib/python3/dist-packages/vllm/entrypoints/openai/api_server.py": vllm8000,
		"python3 -mvllm.entrypoints.openai.api_server --model x":                       vllm8000,
		"python3 -um vllm.entrypoints.openai.api_server":                               vllm8000,
		"python3 -umsglang.launch_server" + metrics:                                    sglang30000,
		"python3 -mvllm.entrypoints.openai.run_batch":                                  noEngine,
		"python3 -m vllm.entrypoints.cli.main serve x":                                 vllm8000,
		"python3 -m vllm.entrypoints.grpc_server --model x":                            vllm8000 + " GRPCOnly",
		"vllm serve x --grpc":                                                          vllm8000 + " GRPCOnly",
		"sglang serve --model-path x" + metrics:                                        sglang30000,
		"python3 -m sglang.launch_server" + metrics:                                    sglang30000,
		"python3 /sgl-workspace/sglang/python/sglang/launch_server.py" + metrics:       sglang30000,
		"env A=b vllm serve x":                                                         vllm8000,
		"tini -g -- numactl -N 0 /opt/venv/bin/vllm serve x":                           vllm8000,
		"opentelemetry-instrument vllm serve x":                                        vllm8000,

		"vllm launch render x":                                noEngine,
		"vllm bench serve --port 8000":                        noEngine,
		"vllm run-batch -i in.jsonl -o out.jsonl":             noEngine,
		"python3 -m vllm.entrypoints.openai.run_batch":        noEngine,
		"vllm-router --policy consistent_hash":                noEngine,
		"smg launch --worker-urls http://a:8000":              noEngine,
		"python3 -m sglang_router.launch_router --port 30000": noEngine,
		"python3 -m sglang_router.launch_server --dp-size 4":  noEngine,
		"python3 -m sglang.bench_serving --backend sglang":    noEngine,
		"python3 -m dynamo.vllm --model x":                    noEngine,
		"aibrix_runtime --port 8080":                          noEngine,
		"ray start --head --block":                            noEngine,
		"trtllm-serve serve x":                                noEngine,
		"echo vllm serve x":                                   noEngine,
		"sleep infinity":                                      noEngine,
	} {
		t.Run(command, func(t *testing.T) {
			list := Container{Command: argv(command)}
			assert.Equal(t, want, told(Recognize(list, Source{})), "as a list")
			split := Container{Command: list.Command[:1], Args: list.Command[1:]}
			assert.Equal(t, want, told(Recognize(split, Source{})), "as command and args")
			assert.Equal(t, want, told(Recognize(Container{Args: list.Command}, Source{})), "as args alone")
			assert.Equal(t, want, told(Recognize(Container{Command: sh("exec " + command)}, Source{})), "in a shell")
		})
	}
}

func TestEngineInShellText(t *testing.T) {
	rows := map[string]string{
		"vllm serve x --port 8080":                                                       vllm8080,
		"exec vllm serve x --port 8080":                                                  vllm8080,
		"PORT=8080; vllm serve x --port $PORT":                                           vllm8080,
		"export PORT=8080\nvllm serve x --port=${PORT}":                                  vllm8080,
		"vllm serve x --port ${HTTP_PORT:-8080}":                                         vllm8080,
		"VLLM_PORT=9000 vllm serve x --port 8080":                                        vllm8080,
		"VLLM_PORT=8080 vllm serve x":                                                    vllm8000,
		"set -ex && cd / && vllm serve x --port 8080 2>&1 | tee -a /var/log/vllm":        vllm8080,
		"vllm serve x --port 8080 > >(tee /log) 2>/dev/null":                             vllm8080,
		"vllm serve x --port 8080 &>/log":                                                vllm8080,
		"# vllm serve x --port 9000\nvllm serve x \\\n --port 8080 # the port":           vllm8080,
		"if [ -n \"$A\" ]; then vllm serve x --port 8080; fi":                            vllm8080,
		"while true; do vllm serve x --port 8080; sleep 1; done":                         vllm8080,
		"(sleep 1; curl localhost) & vllm serve x --port 8080":                           vllm8080,
		"ray start --head && vllm serve x --port 8080":                                   vllm8080,
		"bash -lc 'vllm serve x --port 8080'":                                            vllm8080,
		"nohup bash -c \"vllm serve x --port 8080\" & wait":                              vllm8080,
		"cat <<'EOF' > /c\nvllm serve x --port 9000\nEOF\nvllm serve x --port 8080":      vllm8080,
		"vllm serve a --port 9000 & vllm serve b --port 8080":                            vllm8080 + " SeveralPorts",
		"vllm serve b --port 8080; echo vllm serve c":                                    vllm8080,
		"vllm serve a --port 8080 & python3 -m sglang_router.launch_router":              vllm8080,
		"vllm serve b --port 8080 || sglang serve --enable-metrics & sleep infinity":     "sglang by command http://127.0.0.1:30000/metrics",
		"if [ $R = 0 ]; then vllm serve x --port 8080; else vllm serve x --headless; fi": vllm8080,
		"vllm serve x --headless & vllm serve x --port 8080":                             vllm8080,
		"vllm serve x --port 9000 & vllm serve x --headless":                             vllm8000 + " ServesNoMetrics",
		"echo 'vllm serve x'; sleep infinity":                                            noEngine,
		"pkill -f vllm serve; sleep infinity":                                            noEngine,
	}
	for text, want := range rows {
		t.Run(text, func(t *testing.T) {
			assert.Equal(t, want, told(Recognize(Container{Command: sh(text)}, Source{})))
		})
	}
}

func TestSeveralServersInAContainer(t *testing.T) {
	several := map[string]bool{
		"vllm serve m --port 8000 & vllm serve m --port 8001 & wait":                                      true,
		"vllm serve m --port 8000 & P=$!; vllm serve m --port 8001 & wait $P":                             true,
		"vllm serve m & sglang serve --enable-metrics":                                                    true,
		"for i in 0 1; do vllm serve m --port $((8000+i)) & done; wait":                                   true,
		"for i in 0 1\ndo\n  CUDA_VISIBLE_DEVICES=$i vllm serve m --port 800$i > /log 2>&1 &\ndone\nwait": true,
		"bash -c 'vllm serve m & vllm serve m --port 8001 & wait' & wait":                                 true,
		"(vllm serve m & vllm serve m --port 8001 & wait)":                                                true,
		"if [ $A ]; then vllm serve m & vllm serve m --port 8001 & fi; wait":                              true,
		"if [ $A ]; then vllm serve m & else sleep 1; fi; vllm serve m --port 8001":                       true,

		"vllm serve m & wait": false,
		"vllm serve m || vllm serve m --enforce-eager & wait":              false,
		"vllm serve m --headless & vllm serve m":                           false,
		"vllm serve m; vllm serve m":                                       false,
		"while true; do vllm serve m; sleep 1; done":                       false,
		"while true; do vllm serve m & wait $!; done":                      false,
		"while sleep 1; do curl localhost; done & vllm serve m":            false,
		"vllm serve m & P=$!; ./warm-up; kill $P; vllm serve m":            false,
		"if [ $A ]; then vllm serve m & else vllm serve m & fi; wait":      false,
		"if [ $A ]; then vllm serve m; elif [ $B ]; then vllm serve m; fi": false,
		"case $A in a) vllm serve m & ;; b) vllm serve m & ;; esac; wait":  false,
	}
	for text, want := range several {
		t.Run(text, func(t *testing.T) {
			m, ok := Recognize(Container{Command: []string{"bash", "-c", text}}, Source{})
			assert.True(t, ok)
			assert.Equal(t, want, m.Unmeasurable == SeveralPorts, m.Unmeasurable)
		})
	}
}

func TestShellsAndTheirOptions(t *testing.T) {
	text := "vllm serve x --port 8080"
	for _, c := range []Container{
		{Command: []string{"sh", "-c", text}},
		{Command: []string{"/bin/bash", "-lc", text}},
		{Command: []string{"bash", "-l", "-c", "--", text}},
		{Command: []string{"bash", "-euo", "pipefail", "-c", text}},
		{Command: []string{"bash", "-o", "pipefail", "-c"}, Args: []string{text}},
		{Command: []string{"bash", "--norc", "--rcfile", "/rc", "-c", text}},
		{Command: []string{"tini", "--", "/usr/bin/env", "bash", "-c", text}},
		{Args: []string{"bash", "-c", text}, Image: "vllm/vllm-openai:v0.20.0"},
		{Command: []string{"sh", "-c", `exec "$@"`, "sh"}, Args: argv(text)},
		{Command: []string{"sh", "-c", `vllm serve "$0" --port $1`, "x", "8080"}},
		{Command: []string{"sh", "-c", `$START --port ${PORT}`}, Env: env("START", "vllm serve x", "PORT", "8080")},
	} {
		assert.Equal(t, vllm8080, told(Recognize(c, Source{})), "%q %q", c.Command, c.Args)
	}
}

func TestVariables(t *testing.T) {
	for _, r := range []struct {
		why  string
		env  map[string]string
		port string
		want string
	}{
		{"the kubelet expands $(NAME)", env("P", "8080"), "$(P)", vllm8080},
		{"env entries refer to others", env("P", "$(Q)80", "Q", "80"), "$(P)", vllm8080},
		{"a cycle is not known", env("P", "$(Q)", "Q", "$(P)"), "$(P)", vllm8000},
		{"$$ is a dollar: a program sees $(P), not the value", env("P", "8080"), "$$(P)", vllm8000},
		{"without a shell $P is text", env("P", "8080"), "$P", vllm8000},
		{"from a ConfigMap: not known", nil, "$(P)", vllm8000},
	} {
		c := Container{Command: append(argv("vllm serve x --port"), r.port), Env: r.env}
		assert.Equal(t, r.want, told(Recognize(c, Source{})), r.why)
	}
	inShell := Container{Command: sh("vllm serve x --port $$P"), Env: env("P", "8080")}
	assert.Equal(t, vllm8080, told(Recognize(inShell, Source{})), "$$P is $P to the shell")
}

func TestVariablesCannotExplode(t *testing.T) {
	c := Container{
		Command: sh(strings.Repeat("$(A) ", 10_000) + "; vllm serve x --port 8080"),
		Env:     env("A", strings.Repeat("$(B)", 10_000), "B", strings.Repeat("b", 10_000)),
	}
	assert.Equal(t, vllm8080, told(Recognize(c, Source{})))
	c = Container{Command: append(sh(strings.Repeat("$@ ", 10_000)+"; vllm serve x --port 8080"), make([]string, 10_000)...)}
	assert.Equal(t, vllm8080, told(Recognize(c, Source{})))
}

func TestAnnotationNamesTheEngine(t *testing.T) {
	annotated := func(engine string) Source {
		return Source{Annotations: map[string]string{names.AnnotationEngine: engine}}
	}
	for _, r := range []struct {
		why    string
		engine string
		c      Container
		want   string
	}{
		{"an unknown program's flags are believed where they look like the engine's", "vllm", Container{Command: argv("python3 serve.py --port 9000")}, "vllm by annotation http://127.0.0.1:9000/metrics"},
		{"a script's port is the declared one", "vllm", Container{Command: argv("./start.sh"), Ports: []Port{{"", 9000}}}, "vllm by annotation http://127.0.0.1:9000/metrics"},
		{"of an unknown program no flag is called missing", "sglang", Container{Command: argv("./start.sh")}, "sglang by annotation http://127.0.0.1:30000/metrics"},
		{"of the engine itself one is", "sglang", Container{Command: argv("python3 -m sglang.launch_server")}, "sglang by annotation http://127.0.0.1:30000/metrics MetricsDisabled"},
		{"it wins over the command", "sglang", Container{Command: argv("vllm serve x --port 9000 --enable-metrics")}, "sglang by annotation http://127.0.0.1:9000/metrics"},
		{"it wins over the image", "sglang", Container{Image: "vllm/vllm-openai", Args: argv("--enable-metrics")}, "sglang by annotation http://127.0.0.1:30000/metrics"},
		{"an unknown value is no match, and refused elsewhere", "tgi", Container{Command: argv("sleep 1")}, noEngine},
		{"nor does it hide the command", "tgi", Container{Command: argv("vllm serve x")}, vllm8000},
		{"values are exact", "vLLM", Container{Command: argv("sleep 1")}, noEngine},
	} {
		assert.Equal(t, r.want, told(Recognize(r.c, annotated(r.engine))), r.why)
	}
}

func TestImages(t *testing.T) {
	flags := Container{Args: argv("--model x --port 8080")}
	for image, want := range map[string]string{
		"vllm/vllm-openai":                                        "vllm",
		"vllm/vllm-openai:v0.29.0":                                "vllm",
		"docker.io/vllm/vllm-openai@sha256:0123456789abcdef":      "vllm",
		"registry.example:5000/mirror/vllm-openai:v1@sha256:0123": "vllm",
		"rocm/vllm:latest":                                        "vllm",
		"rocm/vllm-dev:nightly":                                   "vllm",
		"quay.io/ascend/vllm-ascend:v0.13.0":                      "vllm",
		"lmcache/vllm-openai:latest":                              "vllm",
		"registry.redhat.io/rhaiis/vllm-cuda-rhel9:3":             "vllm",
		"lmsysorg/sglang:v0.5.2-cu126":                            "sglang",
		"rocm/sgl-dev:v0.5.2":                                     noEngine,
		"lmsysorg/sglang-router":                                  noEngine,
		"lmsysorg/sgl-model-gateway:v0.3":                         noEngine,
		"vllm-router:v1":                                          noEngine,
		"nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0":               noEngine,
		"mirror/vllm-client:1":                                    noEngine,
		"ghcr.io/llm-d/llm-d-inference-sim:v0.6":                  noEngine,
		"vllm.example.com/tools/busybox":                          noEngine,
		"nginx":                                                   noEngine,
		"":                                                        noEngine,
	} {
		flags.Image = image
		if want != noEngine {
			want = fmt.Sprintf("%s by image http://127.0.0.1:8080/metrics", want)
		}
		if strings.HasPrefix(want, "sglang") {
			want += " MetricsDisabled"
		}
		assert.Equal(t, want, told(Recognize(flags, Source{})), "image %q", image)
	}
}

func TestWhatAnImageIsBelieved(t *testing.T) {
	const (
		openai = "vllm/vllm-openai:v0.29.0"
		lmsys  = "lmsysorg/sglang:v0.5.2"
	)
	byImage := "vllm by image http://127.0.0.1:8000/metrics"
	run(t, []row{
		{"no command, no args: vLLM's entrypoint", Container{Image: openai}, byImage},
		{"no command, no args: SGLang's image starts a shell", Container{Image: lmsys}, noEngine},
		{"a model as the first of args", Container{Image: openai, Args: argv("Qwen/Qwen3-8B --port 8000")}, byImage},
		{"args of the older entrypoint", Container{Image: openai, Args: argv("--model Qwen/Qwen3-8B")}, byImage},
		{"headless by args", Container{Image: openai, Args: argv("Qwen/Qwen3-8B --headless")}, byImage + " ServesNoMetrics"},
		{"role by args", Container{Image: openai, Args: []string{"x", "--kv-transfer-config.kv_role", "kv_producer"}}, byImage + " Prefill"},
		{"args that start an engine on an image without entrypoint", Container{Image: lmsys, Args: argv("python3 -m sglang.launch_server --enable-metrics")}, sglang30000},
		{"a script may start anything; its flags may be the engine's", Container{Image: openai, Command: argv("/scripts/start.sh --port 8000")}, byImage},
		{"a script of another shell", Container{Image: openai, Command: argv("bash -e /scripts/start")}, byImage},
		{"a sourced script", Container{Image: openai, Command: sh(". /scripts/start")}, byImage},
		{"an entrypoint of the image", Container{Image: openai, Command: argv("/usr/local/bin/vllm-nonroot-entrypoint.sh")}, byImage},
		{"of an SGLang script no flag is called missing", Container{Image: lmsys, Command: argv("/start.sh")}, "sglang by image http://127.0.0.1:30000/metrics"},
		{"a script of an unknown image", Container{Image: "mirror/tools", Command: argv("/start.sh")}, noEngine},
		{"offline inference is a program of its own", Container{Image: openai, Command: argv("python3 batch.py")}, noEngine},
		{"offline inference after a script", Container{Image: openai, Command: sh("./prepare.sh && python3 batch.py")}, noEngine},
		{"a debug Pod", Container{Image: openai, Command: argv("sleep infinity")}, noEngine},
		{"a script and then sleep", Container{Image: openai, Command: sh("./prepare.sh; sleep infinity")}, noEngine},
		{"a shell with nothing to do", Container{Image: openai, Command: argv("bash")}, noEngine},
		{"a benchmark client", Container{Image: openai, Command: argv("vllm bench serve --model x")}, noEngine},
		{"a router on the engine's image", Container{Image: lmsys, Command: argv("python3 -m sglang_router.launch_router")}, noEngine},
	})
}
