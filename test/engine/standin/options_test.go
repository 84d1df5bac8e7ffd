package standin

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Options{
		"/usr/local/bin/vllm serve Qwen/Q --port 8001": {Kind: VLLM, Models: []string{"Qwen/Q"}, Port: 8001, ControlPort: 9901},
		"vllm serve Qwen/Q --port=8001 --max_num_seqs=4 --kv-transfer-config {} --enforce-eager --data_parallel_size 2": {
			Kind: VLLM, Models: []string{"Qwen/Q"}, Port: 8001, MaxRunning: 4, DataParallel: 2, ControlPort: 9901,
		},
		"vllm serve --model Qwen/Q --served-model-name a b --disable-log-stats": {
			Kind: VLLM, Models: []string{"a", "b"}, DisableLogStats: true, Port: 8000, ControlPort: 9901,
		},
		"vllm.entrypoints.openai.api_server --served-model-name a --model Qwen/Q --port 1 --port 2 --shutdown-timeout 30": {
			Kind: VLLM, Models: []string{"a"}, Port: 2, ShutdownTimeout: 30 * time.Second, ControlPort: 9901,
		},
		"vllm serve m --ssl-keyfile k --ssl-certfile c --ssl-cert-reqs 2 --ssl-ca-certs ca --api-server-count 4": {
			Kind: VLLM, Models: []string{"m"}, Port: 8000, KeyFile: "k", CertFile: "c", CAFile: "ca", DemandClientCert: true,
			Multiprocess: true, ControlPort: 9901,
		},
		"sglang.launch_server --model-path Qwen/Q --host 0.0.0.0 --enable-metrics --disaggregation-mode decode": {
			Kind: SGLang, Models: []string{"Qwen/Q"}, Host: "0.0.0.0", Port: 30000, EnableMetrics: true, Role: Decode, ControlPort: 9901,
		},
		"sglang serve --model-path Qwen/Q": {Kind: SGLang, Models: []string{"Qwen/Q"}, Host: "127.0.0.1", Port: 30000, ControlPort: 9901},
		"engine --engine sglang --sglang-idle-report now --control-port 0 --start-delay 3s --tokens-per-second 2.5": {
			Kind: SGLang, Host: "127.0.0.1", Port: 30000, IdleReportNow: true, StartDelay: 3 * time.Second, TokensPerSecond: 2.5,
		},
	} {
		t.Run(line, func(t *testing.T) {
			got, err := Parse(strings.Fields(line), func(string) string { return "" })
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

func TestParseReadsItsOwnFlagsFromTheEnvironment(t *testing.T) {
	env := map[string]string{
		"STANDIN_TOKENS_PER_SECOND": "5", "STANDIN_IGNORE_SIGTERM": "true", "STANDIN_CONTROL_PORT": "1", "PROMETHEUS_MULTIPROC_DIR": "/tmp",
	}
	got, err := Parse([]string{"vllm", "serve", "m", "--control-port", "2"}, func(name string) string { return env[name] })
	require.NoError(t, err)
	assert.Equal(t, Options{
		Kind: VLLM, Models: []string{"m"}, Port: 8000, TokensPerSecond: 5, IgnoreSIGTERM: true, ControlPort: 2, Multiprocess: true,
	}, got)

	env["STANDIN_START_DELAY"] = "soon"
	_, err = Parse([]string{"vllm", "serve", "m"}, func(name string) string { return env[name] })
	require.EqualError(t, err, `STANDIN_START_DELAY: "soon" is not a duration such as 30s`)
}

func TestParseNamesTheFlagItCannotUse(t *testing.T) {
	for line, want := range map[string]string{
		"vllm bench":                              `vllm bench: only "vllm serve MODEL" is played`,
		"engine":                                  `--engine "": want vllm or sglang`,
		"vllm serve m --port":                     "--port: a value must follow",
		"vllm serve m --port=70000":               `--port: "70000" is not a number from 0 to 65535`,
		"sglang serve --enable-metrics=si":        `--enable-metrics: "si" is neither true nor false`,
		"sglang serve --disaggregation-mode both": `--disaggregation-mode: "both": want one of [decode null prefill]`,
		"vllm serve m --tokens-per-second 0":      `--tokens-per-second: "0" is not a rate above 0`,
	} {
		t.Run(line, func(t *testing.T) {
			_, err := Parse(strings.Fields(line), func(string) string { return "" })
			require.EqualError(t, err, want)
		})
	}
}
