package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lastcall-dev/lastcall/api/names"
)

func TestPortOfTheCommandLine(t *testing.T) {
	const guessed = " by guess"
	for flags, want := range map[string]string{
		"":                                     vllm8000,
		"--port 8080":                          vllm8080,
		"--port=8080":                          vllm8080,
		"--port 9000 --port 8080":              vllm8080,
		"--port=9000 --port 8080":              vllm8080,
		"--port 8080 --tensor_parallel_size 2": vllm8080,
		"--port":                               vllm8000 + guessed,
		"--port 0":                             vllm8000 + guessed,
		"--port 65536":                         vllm8000 + guessed,
		"--port -1":                            vllm8000 + guessed,
		"--port http":                          vllm8000 + guessed,
		"--port $(PORT)":                       vllm8000 + guessed,
		"--config /c.yaml":                     vllm8000 + guessed,
		"--config /c.yaml --port 8080":         vllm8080,
		"--dtype auto $(EXTRA_ARGS)":           vllm8000 + guessed,
		"--dtype $(DTYPE)":                     vllm8000,
		"--data-parallel-supervisor-port 9256 --metrics-port 1": vllm8000,
	} {
		c := Container{Command: argv("vllm serve x " + flags)}
		m, ok := Recognize(c, Source{})
		got := told(m, ok)
		if m.PortGuessed {
			got += guessed
		}
		assert.Equal(t, want, got, "flags %q", flags)
	}
}

func TestAGuessedPort(t *testing.T) {
	hidden := "vllm serve x --port $PORT"
	for _, r := range []struct {
		why     string
		text    string
		port    int32
		source  Source
		guessed bool
	}{
		{why: "a variable that the container does not set", text: hidden, guessed: true},
		{why: "one that a file sets", text: ". /env; " + hidden, guessed: true},
		{why: "arithmetic", text: "vllm serve x --port $((8000+1))", guessed: true},
		{why: "a default is no guess", text: "vllm serve x --port ${PORT:-8000}"},
		{why: "a declared port decides", text: hidden, port: 9000},
		{why: "so does an annotation", text: hidden, source: Source{Annotations: map[string]string{names.AnnotationMetricsPort: "9000"}}},
		{why: "or prometheus.io", text: hidden, source: Source{Annotations: map[string]string{names.AnnotationPrometheusPort: "9000"}}},
	} {
		c := Container{Command: sh(r.text)}
		if r.port != 0 {
			c.Ports = []Port{{Number: r.port}}
		}
		m, ok := Recognize(c, r.source)
		assert.True(t, ok, r.why)
		assert.Equal(t, r.guessed, m.PortGuessed, r.why)
	}
}

// TestWhereTheListenerIs has a row for each step of the order that
// Engine.endpoint documents.
func TestWhereTheListenerIs(t *testing.T) {
	type set = map[string]string
	prometheus := set{names.AnnotationPrometheusPort: "15020", names.AnnotationPrometheusPath: "/stats/prometheus", names.AnnotationPrometheusScheme: "https"}
	for _, r := range []struct {
		why         string
		flags       string
		annotations set
		operator    bool
		ports       []Port
		want        string
	}{
		{why: "metrics-port wins over all", flags: "--port 9000", annotations: set{names.AnnotationMetricsPort: "7000", names.AnnotationPrometheusPort: "15020"}, operator: true, want: "http://127.0.0.1:7000/metrics"},
		{why: "metrics-scheme and metrics-path too", flags: "--ssl-keyfile k", annotations: set{names.AnnotationMetricsScheme: "http", names.AnnotationMetricsPath: "/m"}, want: "http://127.0.0.1:8000/m"},
		{why: "on a Pod the operator built prometheus.io wins over --port", flags: "--port 9000", annotations: prometheus, operator: true, want: "https://127.0.0.1:15020/stats/prometheus"},
		{why: "on another Pod --port wins, and what a mesh wrote is not the engine's", flags: "--port 9000", annotations: prometheus, want: "http://127.0.0.1:9000/metrics"},
		{why: "prometheus.io that names the same port is about it", flags: "--port 15020", annotations: prometheus, want: "https://127.0.0.1:15020/stats/prometheus"},
		{why: "prometheus.io without a port is about the engine's", annotations: set{names.AnnotationPrometheusPath: "/m"}, want: "http://127.0.0.1:8000/m"},
		{why: "without --port the default is known, and what a mesh wrote is not the engine's", annotations: prometheus, ports: []Port{{"", 8000}}, want: "http://127.0.0.1:8000/metrics"},
		{why: "unless the container declares the port of prometheus.io", annotations: prometheus, ports: []Port{{"http", 8000}, {"", 15020}}, want: "https://127.0.0.1:15020/stats/prometheus"},
		{why: "a port that is not known: the declared one before what a mesh may have written", flags: "--port $(P)", annotations: prometheus, ports: []Port{{"", 9000}}, want: "http://127.0.0.1:9000/metrics"},
		{why: "with none declared prometheus.io is next", flags: "--port $(P)", annotations: prometheus, want: "https://127.0.0.1:15020/stats/prometheus"},
		{why: "prometheus.io belongs to its port, not to the one of metrics-port", annotations: set{names.AnnotationMetricsPort: "7000", names.AnnotationPrometheusPort: "15020", names.AnnotationPrometheusPath: "/stats"}, want: "http://127.0.0.1:7000/metrics"},
		{why: "flags that are all known leave the default, whatever is declared", ports: []Port{{"", 9000}}, want: "http://127.0.0.1:8000/metrics"},
		{why: "a --port that is not known: the only declared port", flags: "--port $(P)", ports: []Port{{"web", 9000}}, want: "http://127.0.0.1:9000/metrics"},
		{why: "of several the one named metrics", flags: "--port $(P)", ports: []Port{{"http", 9000}, {"metrics", 9001}}, want: "http://127.0.0.1:9001/metrics"},
		{why: "or http", flags: "--port $(P)", ports: []Port{{"ray", 6379}, {"http", 9000}}, want: "http://127.0.0.1:9000/metrics"},
		{why: "or none", flags: "--port $(P)", ports: []Port{{"ray", 6379}, {"web", 9000}}, want: "http://127.0.0.1:8000/metrics"},
		{why: "a configuration file may hold the port", flags: "--config /c.yaml", ports: []Port{{"", 9000}}, want: "http://127.0.0.1:9000/metrics"},
		{why: "but a flag wins over the file", flags: "--config /c.yaml --port 9100", ports: []Port{{"", 9000}}, want: "http://127.0.0.1:9100/metrics"},
		{why: "a variable that stands alone may hold the port", flags: "--dtype auto --tp 2 $(EXTRA_ARGS)", ports: []Port{{"", 9000}}, want: "http://127.0.0.1:9000/metrics"},
		{why: "a variable that is a flag's value holds no port", flags: "--dtype $(DTYPE)", ports: []Port{{"", 9000}}, want: "http://127.0.0.1:8000/metrics"},
		{why: "a key makes it https", flags: "--ssl-keyfile /k", want: "https://127.0.0.1:8000/metrics"},
		{why: "so does a certificate", flags: "--ssl_certfile=/c", want: "https://127.0.0.1:8000/metrics"},
		{why: "--root-path is no prefix of /metrics", flags: "--root-path /v2", want: "http://127.0.0.1:8000/metrics"},
		{why: "malformed annotations say nothing; admission refuses them elsewhere", flags: "--port 9000", annotations: set{names.AnnotationMetricsPort: "0", names.AnnotationMetricsScheme: "ftp", names.AnnotationMetricsPath: "m", names.AnnotationPrometheusPort: "x"}, want: "http://127.0.0.1:9000/metrics"},
		{why: "a path that does not fit into a request line is none", annotations: set{names.AnnotationPrometheusPath: "/m HTTP/1.1\r\nX: y"}, want: "http://127.0.0.1:8000/metrics"},
	} {
		t.Run(r.why, func(t *testing.T) {
			c := Container{Command: argv("vllm serve x " + r.flags), Ports: r.ports}
			m, ok := Recognize(c, Source{Annotations: r.annotations, OperatorBuilt: r.operator})
			assert.True(t, ok)
			assert.Equal(t, r.want, m.Endpoint.URL())
		})
	}
}

func TestHosts(t *testing.T) {
	for host, want := range map[string][]string{
		"":                 nil,
		"0.0.0.0":          nil,
		"::":               nil,
		"[::]":             nil,
		"127.0.0.1":        nil,
		"127.0.0.2":        nil,
		"::1":              nil,
		"::ffff:127.0.0.1": nil,
		"localhost":        nil,
		"10.0.0.7":         {"10.0.0.7"},
		"::ffff:10.0.0.7":  {"10.0.0.7"},
		"fd00::7":          {"fd00::7"},
		"[fd00::7]":        {"fd00::7"},
		"evil.example":     nil,
		"10.0.0.7.evil":    nil,
		"fe80::1%eth0":     nil,
		"$(POD_IP)":        nil,
	} {
		c := Container{Command: argv("vllm serve x --host " + host)}
		m, ok := Recognize(c, Source{Annotations: map[string]string{names.AnnotationMetricsPort: "1"}})
		assert.True(t, ok)
		assert.Equal(t, append([]string{"127.0.0.1", "::1"}, want...), m.Endpoint.Hosts, "host %q", host)
	}
}

func TestURLBracketsAddresses(t *testing.T) {
	assert.Equal(t, "https://[::1]:8000/metrics", Endpoint{"https", []string{"::1"}, 8000, "/metrics"}.URL())
}

func TestWhatCannotBeMeasured(t *testing.T) {
	const (
		v = "vllm serve x "
		s = "python3 -m sglang.launch_server --model-path x "
	)
	withPort := map[string]string{names.AnnotationMetricsPort: "9100"}
	for _, r := range []struct {
		why         string
		command     string
		annotations map[string]string
		want        Unmeasurable
	}{
		{why: "vLLM as it is", command: v},
		{why: "SGLang with metrics", command: s + "--enable-metrics"},
		{why: "SGLang without", command: s, want: MetricsDisabled},
		{why: "underscores", command: s + "--enable_metrics"},
		{why: "another flag that begins alike", command: s + "--enable-metrics-for-all-schedulers", want: MetricsDisabled},
		{why: "flags in a file may hold --enable-metrics", command: s + "--config /c.yaml"},
		{why: "a port annotation does not make SGLang keep gauges", command: s, annotations: withPort, want: MetricsDisabled},
		{why: "no statistics", command: v + "--disable-log-stats", want: StatsDisabled},
		{why: "statistics on again", command: v + "--disable-log-stats --no-disable-log-stats"},
		{why: "a port annotation does not make vLLM keep statistics", command: v + "--disable_log_stats", annotations: withPort, want: StatsDisabled},
		{why: "requests not logged is not statistics", command: v + "--disable-log-requests"},
		{why: "a Unix socket", command: v + "--uds /run/vllm.sock", want: UnixSocket},
		{why: "a Unix socket with a proxy the user names", command: v + "--uds /run/vllm.sock", annotations: withPort},
		{why: "gRPC", command: v + "--grpc", want: GRPCOnly},
		{why: "gRPC of SGLang", command: s + "--enable-metrics --smg-grpc-mode", want: GRPCOnly},
		{why: "gRPC of SGLang by its old name", command: s + "--enable-metrics --grpc-mode", want: GRPCOnly},
		{why: "gRPC of SGLang with the HTTP side port named", command: s + "--enable-metrics --smg-grpc-mode", annotations: withPort},
		{why: "gRPC beside HTTP", command: s + "--enable-metrics --grpc-port 40000"},
		{why: "a client certificate by number", command: v + "--ssl-keyfile k --ssl-certfile c --ssl-cert-reqs 2", want: ClientCertificate},
		{why: "a client certificate by name", command: v + "--ssl-keyfile k --ssl-cert-reqs=ssl.CERT_REQUIRED", want: ClientCertificate},
		{why: "an optional client certificate", command: v + "--ssl-keyfile k --ssl-cert-reqs 1"},
		{why: "a client certificate without TLS", command: v + "--ssl-cert-reqs 2"},
		{why: "headless", command: v + "--headless", want: ServesNoMetrics},
		{why: "a worker's rank", command: v + "--node-rank 1", want: ServesNoMetrics},
		{why: "a worker's rank of two digits", command: s + "--enable-metrics --node_rank=10", want: ServesNoMetrics},
		{why: "the leader's rank", command: s + "--enable-metrics --node-rank 0"},
		{why: "a rank known only in the Pod is taken for the leader's", command: v + "--node-rank $(LWS_WORKER_INDEX)"},
		{why: "a worker's dummy server is not asked, wherever it listens", command: s + "--node-rank 1", annotations: withPort, want: ServesNoMetrics},
		{why: "a data-parallel rank of its own", command: v + "--data-parallel-rank 3"},
		{why: "one port for each rank", command: v + "--data-parallel-multi-port-external-lb", want: SeveralPorts},
		{why: "all addresses", command: v + "--host 0.0.0.0"},
		{why: "a literal address", command: v + "--host 10.0.0.7"},
		{why: "an address known only in the Pod", command: v + "--host $(POD_IP)", want: AddressUnknown},
		{why: "a name", command: v + "--host engine.svc", want: AddressUnknown},
	} {
		t.Run(r.why, func(t *testing.T) {
			m, ok := Recognize(Container{Command: argv(r.command)}, Source{Annotations: r.annotations})
			assert.True(t, ok)
			assert.Equal(t, r.want, m.Unmeasurable)
		})
	}
}

func TestWhatTheKubeletCannotProbe(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                   "",
		"--host 0.0.0.0":                     "",
		"--host ::":                          "",
		"--host 10.0.0.7":                    "",
		"--host 128.0.0.1":                   "",
		"--host $(POD_IP)":                   "",
		"--host localhost.svc":               "",
		"--host 127.0.0.1":                   "--host 127.0.0.1 is loopback",
		"--host 127.8.9.10":                  "--host 127.8.9.10 is loopback",
		"--host ::1":                         "--host ::1 is loopback",
		"--host [::1]":                       "--host [::1] is loopback",
		"--host ::ffff:127.0.0.1":            "--host ::ffff:127.0.0.1 is loopback",
		"--host LocalHost":                   "--host LocalHost is loopback",
		"--host ::1 --host ::":               "",
		"--host :: --host=::1":               "--host ::1 is loopback",
		"--uds /run/vllm.sock":               "Unix socket",
		"--grpc":                             "gRPC only",
		"--smg_grpc_mode":                    "gRPC only",
		"--grpc-port 40000":                  "",
		"--ssl-cert-reqs 2":                  "", // without TLS it says nothing
		"--ssl-certfile c --ssl-cert-reqs 2": "client certificate",
		"--ssl-keyfile k --ssl_cert_reqs=ssl.CERT_REQUIRED": "client certificate",
		"--ssl-keyfile k --ssl-cert-reqs 1":                 "",
		"--ssl-keyfile k":                                   "",
	} {
		for _, port := range []string{"", "9100"} { // the annotation is lastcall's, not the kubelet's
			c := Container{Command: argv("vllm serve x " + flags)}
			m, ok := Recognize(c, Source{Annotations: map[string]string{names.AnnotationMetricsPort: port}})
			assert.True(t, ok)
			if want == "" {
				assert.Empty(t, m.Unprobeable, flags)
				continue
			}
			assert.Contains(t, m.Unprobeable, want, flags)
		}
	}
}

func TestEveryReasonHasAdviceThatFitsAWarning(t *testing.T) {
	for _, u := range Unmeasurables() {
		assert.NotEmpty(t, u.Advice(), u)
		assert.Less(t, len(u.Advice()), 120, u)
		assert.NotEmpty(t, u.When(), u)
	}
	assert.Empty(t, Unmeasurable("").Advice())
}

func TestRoles(t *testing.T) {
	for command, want := range map[string]Role{
		"python3 -m sglang.launch_server --disaggregation-mode prefill": RolePrefill,
		"python3 -m sglang.launch_server --disaggregation-mode=decode":  RoleDecode,
		"python3 -m sglang.launch_server --disaggregation_mode null":    RoleServer,
		"python3 -m sglang.launch_server":                               RoleServer,
		`vllm serve x --kv-transfer-config {"kv_role":"kv_producer"}`:   RolePrefill,
		`vllm serve x --kv_transfer_config={"kv_role":"kv_consumer"}`:   RoleDecode,
		`vllm serve x --kv-transfer-config {"kv_role":"kv_both"}`:       RoleServer,
		`vllm serve x --kv-transfer-config {"kv_role":`:                 RoleServer,
		`vllm serve x --kv-transfer-config.kv_role kv_producer`:         RolePrefill,
		"vllm serve x --disaggregation-mode prefill":                    RoleServer,
	} {
		m, ok := Recognize(Container{Command: argv(command)}, Source{})
		assert.True(t, ok)
		assert.Equal(t, want, m.Role, command)
	}
}

func TestSplitsWork(t *testing.T) {
	for command, want := range map[string]bool{
		"python3 -m sglang.launch_server --disaggregation-mode prefill":                                     true,
		"python3 -m sglang.launch_server --disaggregation-mode=decode":                                      true,
		"python3 -m sglang.launch_server --disaggregation-mode null":                                        false,
		"python3 -m sglang.launch_server":                                                                   false,
		"vllm serve x":                                                                                      false,
		`vllm serve x --kv-transfer-config {"kv_role":"kv_producer"}`:                                       true,
		`vllm serve x --kv-transfer-config {"kv_connector":"LMCacheConnectorV1","kv_role":"kv_consumer"}`:   true,
		`vllm serve x --kv-transfer-config {"kv_connector":"NixlConnector","kv_role":"kv_both"}`:            true,
		`vllm serve x --kv-transfer-config {"kv_connector":"P2pNcclConnector","kv_role":"kv_both"}`:         true,
		`vllm serve x --kv-transfer-config {"kv_connector":"MooncakeConnector","kv_role":"kv_both"}`:        true,
		`vllm serve x --kv-transfer-config {"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both"}`:   false,
		`vllm serve x --kv-transfer-config {"kv_connector":"OffloadingConnector","kv_role":"kv_both"}`:      false,
		`vllm serve x --kv-transfer-config {"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}`:       false,
		`vllm serve x --kv-transfer-config.kv_connector NixlConnector --kv-transfer-config.kv_role kv_both`: true,
		`vllm serve x --kv-transfer-config {"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":[{"kv_connector":"OffloadingConnector","kv_role":"kv_both"},{"kv_connector":"NixlConnector","kv_role":"kv_both"}]}}`: true,
		`vllm serve x --kv-transfer-config {"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":[{"kv_connector":"OffloadingConnector","kv_role":"kv_both"}]}}`:                                                      false,
		"vllm serve x --data-parallel-size 4":                                 false,
		"vllm serve x --data-parallel-size 4 --data-parallel-hybrid-lb":       true,
		"vllm serve x --data_parallel_external_lb":                            true,
		"vllm serve x --data-parallel-hybrid-lb --no-data-parallel-hybrid-lb": false,
		"vllm serve x --data-parallel-rank 1":                                 true,
		"vllm serve x -dpe":                                                   true,
		"vllm serve x --disaggregation-mode prefill":                          false,
	} {
		m, ok := Recognize(Container{Command: argv(command)}, Source{})
		assert.True(t, ok)
		assert.Equal(t, want, m.SplitsWork, command)
	}
}
