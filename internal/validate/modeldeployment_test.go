package validate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

func TestExamplesAreValid(t *testing.T) {
	for _, name := range []string{"minimal", "full"} {
		errs, warnings := ModelDeployment(example(t, name))
		require.Empty(t, errs, name)
		require.Empty(t, warnings, name)
	}
}

// The rules that a CEL rule of the schema repeats are in schema_test.go.
func TestModelDeploymentErrors(t *testing.T) {
	tests := map[string]struct {
		edit func(md *v1alpha1.ModelDeployment, r *v1alpha1.Role)
		want string
	}{
		"no name": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Name = "" },
			"metadata.name: Required value: it is the first part of the names of all Pods and Services",
		},
		"a generated name without room for what the API server adds": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Name, md.GenerateName = "", strings.Repeat("q", 63-len("-server-1023")-4)
			},
			`spec.roles[0].name: Invalid value: "server": ` + podNameMessage,
		},
		"a namespace whose Pods the webhook never sees": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Namespace = "kube-system" },
			"metadata.namespace: Forbidden: the webhook is never asked about Pods in kube-system and kube-node-lease, so replicas would have no drain window; use another namespace",
		},
		"no model": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Model.Name = "" },
			"spec.model.name: Required value: it is the model that the engine loads",
		},
		"an engine in lower case": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Engine.Name = "vllm" },
			`spec.engine.name: Unsupported value: "vllm": supported values: "vLLM", "SGLang"`,
		},
		"a router lastcall cannot ask": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Router = router("nginx") },
			`spec.router.name: Unsupported value: "nginx": supported values: "llm-d-router", "vllm-router", "sglang-gateway"`,
		},
		"a router by a label that no Pod has": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.PodSelector.MatchLabels = map[string]string{"app": "my router"}
			},
			`spec.router.podSelector.matchLabels: Invalid value: "my router": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
		},
		"a router by an expression that cannot be": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}
			},
			"spec.router.podSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
		},
		"a router with metrics at no port": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.MetricsPort = new(int32(65536))
			},
			"spec.router.metricsPort: Invalid value: 65536: must be 1 to 65535",
		},
		"a namespace longer than any": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.Namespace = strings.Repeat("n", 64)
			},
			`spec.router.namespace: Invalid value: "` + strings.Repeat("n", 64) + `": ` + routerNamespaceMessage,
		},
		"a Secret in capitals": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.SecretName = "Token"
			},
			`spec.router.secretName: Invalid value: "Token": ` + secretNameMessage,
		},
		"a certificate for a host and port": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.TLS = &v1alpha1.RouterTLS{ServerName: "router:8443"}
			},
			`spec.router.tls.serverName: Invalid value: "router:8443": ` + serverNameMessage,
		},
		"a router without a port": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.Port = 0
			},
			"spec.router.port: Invalid value: 0: must be 1 to 65535",
		},
		"a direct withdrawal lastcall does not know": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Withdrawal.Direct = "Guess" },
			`spec.withdrawal.direct: Unsupported value: "Guess": supported values: "Hold", "Connections"`,
		},
		"a budget too short for two reads": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Retirement.DrainSeconds = new(int32(5)) },
			"spec.retirement.drainSeconds: Invalid value: 5: must be 15 to 86400 seconds",
		},
		"a whole of more than a day": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Retirement.TotalSeconds = new(int32(86401))
			},
			"spec.retirement.totalSeconds: Invalid value: 86401: must be 15 to 86400 seconds",
		},
		"no roles": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Roles = nil },
			"spec.roles: Invalid value: 0: must be 1 to 10 roles",
		},
		"two roles of one name": {
			func(md *v1alpha1.ModelDeployment, r *v1alpha1.Role) { md.Spec.Roles = append(md.Spec.Roles, *r) },
			`spec.roles[1].name: Duplicate value: "server"`,
		},
		"a role's name with a dash": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Name = "my-server" },
			`spec.roles[0].name: Invalid value: "my-server": must be a lower-case letter, then lower-case letters and digits, at most 32 in all: NAME-ROLE-ORDINAL must tell its parts apart`,
		},
		"a role without a name": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Name = "" },
			"spec.roles[0].name: Required value: it is part of the names of the role's Pods and its Service",
		},
		"a kind lastcall does not know": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Kind = "Encode" },
			`spec.roles[0].kind: Unsupported value: "Encode": supported values: "Server", "Prefill", "Decode"`,
		},
		"too many replicas": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Replicas = new(int32(1025)) },
			"spec.roles[0].replicas: Invalid value: 1025: must be 0 to 1024 replicas",
		},
		"a replica of no Pods": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Size = new(int32(0)) },
			"spec.roles[0].size: Invalid value: 0: must be 1 to 64 Pods for each replica",
		},
		"a pull policy Kubernetes does not know": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ImagePullPolicy = "Sometimes" },
			`spec.roles[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`,
		},
		"a grace period that overflows in the kubelet": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.TerminationGracePeriodSeconds = new(int64(9999999999))
			},
			"spec.roles[0].terminationGracePeriodSeconds: Invalid value: 9999999999: " + graceMessage,
		},
		"a grace period out of range of a take-over role": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Command, r.TerminationGracePeriodSeconds = []string{"/serve"}, new(int64(0))
			},
			"spec.roles[0].terminationGracePeriodSeconds: Invalid value: 0: " + graceMessage,
		},
		"port 0": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Port = new(int32(0)) },
			"spec.roles[0].port: Invalid value: 0: must be 1 to 65535",
		},
		"a proxy on the engine's default port": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Proxy = &v1alpha1.Proxy{Image: "proxy:1", Port: 8000}
			},
			"spec.roles[0].proxy.port: Invalid value: 8000: " + proxyPortMessage,
		},
		"a proxy on the port of extraArgs": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.ExtraArgs = []string{"--port=8200"}
				r.Proxy = &v1alpha1.Proxy{Image: "proxy:1", Port: 8200}
			},
			"spec.roles[0].proxy.port: Invalid value: 8200: " + proxyPortMessage,
		},
		"a proxy on the port of the command": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Command = []string{"sh", "-c", "exec vllm serve m --port 8200"}
				r.Proxy = &v1alpha1.Proxy{Image: "proxy:1", Port: 8200}
			},
			"spec.roles[0].proxy.port: Invalid value: 8200: " + proxyPortMessage,
		},
		"a proxy without an image": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Proxy = &v1alpha1.Proxy{Port: 8080} },
			"spec.roles[0].proxy.image: Required value: it is the image of the container in front of the engine",
		},
		"a label lastcall selects by": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Labels = map[string]string{"app.kubernetes.io/component": "x"}
			},
			"spec.roles[0].labels[app.kubernetes.io/component]: Forbidden: lastcall sets it",
		},
		"a label that keeps Pods away from the webhook": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Labels = map[string]string{"app.kubernetes.io/part-of": "lastcall"}
			},
			"spec.roles[0].labels[app.kubernetes.io/part-of]: Forbidden: lastcall sets it",
		},
		"a label no Pod can have": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Labels = map[string]string{"a b": "x"} },
			`spec.roles[0].labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		},
		"the grace period as an annotation": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Annotations = map[string]string{"lastcall.dev/grace-seconds": "60"}
			},
			"spec.roles[0].annotations[lastcall.dev/grace-seconds]: Forbidden: lastcall sets it; use terminationGracePeriodSeconds",
		},
		"take-over as an annotation": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Annotations = map[string]string{"lastcall.dev/take-over": "true"}
			},
			"spec.roles[0].annotations[lastcall.dev/take-over]: Forbidden: lastcall sets it",
		},
		"a malformed annotation": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Annotations = map[string]string{"lastcall.dev/metrics-scheme": "ftp"}
			},
			`spec.roles[0].annotations[lastcall.dev/metrics-scheme]: Unsupported value: "ftp": supported values: "http", "https"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			md := minimal(t)
			test.edit(md, &md.Spec.Roles[0])
			errs, _ := ModelDeployment(md)
			require.NotEmpty(t, errs)
			require.Equal(t, test.want, errs[0].Error())
		})
	}
}

func router(name v1alpha1.RouterName) *v1alpha1.Router {
	return &v1alpha1.Router{Name: name, Port: 9090, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "epp"}}}
}

func TestModelDeploymentWarnings(t *testing.T) {
	tests := map[string]struct {
		edit func(md *v1alpha1.ModelDeployment, r *v1alpha1.Role)
		want []string
	}{
		"--port and port differ": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Port, r.ExtraArgs = new(int32(8000)), []string{"--port", "8001", "--port=8002"}
			},
			[]string{"spec.roles[0].port: 8000 is not used: --port 8002 in extraArgs goes first, for the Services and probes too; keep one of the two"},
		},
		"--port from a variable and port differ": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Port, r.ExtraArgs = new(int32(8000)), []string{"--port=$(PORT)"}
				r.Env = []corev1.EnvVar{{Name: "PORT", Value: "9000"}}
			},
			[]string{"spec.roles[0].port: 8000 is not used: --port 9000 in extraArgs goes first, for the Services and probes too; keep one of the two"},
		},
		"--port from a variable nobody knows": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Port, r.ExtraArgs = new(int32(9000)), []string{"--port=$(PORT)"}
				r.Env = []corev1.EnvVar{{Name: "PORT", ValueFrom: &corev1.EnvVarSource{}}}
			},
			nil,
		},
		"--port from a variable nobody knows, and no port": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ExtraArgs = []string{"--port=$(PORT)"} },
			[]string{"spec.roles[0].extraArgs: the value of --port is not known here, and 8000 is assumed for the Services and probes: set port to the same value"},
		},
		"--port and port agree": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Port, r.ExtraArgs = new(int32(8001)), []string{"--port", "8001"}
			},
			nil,
		},
		"--port alone": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ExtraArgs = []string{"--port", "8001"} },
			nil,
		},
		"an SGLang decode role with the default grace": {
			func(md *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				md.Spec.Engine.Name, r.Kind = v1alpha1.SGLang, v1alpha1.Decode
			},
			[]string{"spec.roles[0].terminationGracePeriodSeconds: SGLang Decode takes about 20 s to exit even when idle; set at least 45, not 30"},
		},
		"an SGLang prefill role with enough": {
			func(md *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				md.Spec.Engine.Name, r.Kind, r.TerminationGracePeriodSeconds = v1alpha1.SGLang, v1alpha1.Prefill, new(int64(45))
			},
			nil,
		},
		"a vLLM decode role with the default grace": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.Kind = v1alpha1.Decode },
			nil,
		},
		"an SGLang server role": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Engine.Name = v1alpha1.SGLang },
			nil,
		},
		"an engine that cannot be measured": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ExtraArgs = []string{"--disable-log-stats"} },
			[]string{"spec.roles[0].extraArgs: " + engine.StatsDisabled.Advice()},
		},
		"an address of loopback": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ExtraArgs = []string{"--host=127.0.0.1"} },
			[]string{"spec.roles[0].extraArgs: no replica would ever be Ready: --host 127.0.0.1 is loopback, and the kubelet probes the Pod's address, which Services use too; remove --host or set it to 0.0.0.0"},
		},
		"an address of loopback from a variable": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.ExtraArgs, r.Env = []string{"--host", "$(HOST)"}, []corev1.EnvVar{{Name: "HOST", Value: "localhost"}}
			},
			[]string{"spec.roles[0].extraArgs: no replica would ever be Ready: --host localhost is loopback, and the kubelet probes the Pod's address, which Services use too; remove --host or set it to 0.0.0.0"},
		},
		"an address of loopback, and another after it": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.ExtraArgs = []string{"--host=127.0.0.1", "--host=::"}
			},
			nil,
		},
		"a Unix socket": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ExtraArgs = []string{"--uds=/run/vllm.sock"} },
			[]string{"spec.roles[0].extraArgs: no replica would ever be Ready: with --uds the engine listens on a Unix socket, which the kubelet cannot probe; remove --uds"},
		},
		"a Unix socket, and a port where it can be measured": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.ExtraArgs, r.Annotations = []string{"--uds=/run/vllm.sock"}, map[string]string{"lastcall.dev/metrics-port": "9100"}
			},
			[]string{"spec.roles[0].extraArgs: no replica would ever be Ready: with --uds the engine listens on a Unix socket, which the kubelet cannot probe; remove --uds"},
		},
		"gRPC only": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) { r.ExtraArgs = []string{"--grpc"} },
			[]string{"spec.roles[0].extraArgs: no replica would ever be Ready: the engine serves gRPC only, and the kubelet probes it over HTTP; start its HTTP server"},
		},
		"a client certificate": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.ExtraArgs = []string{"--ssl-keyfile=k", "--ssl-certfile=c", "--ssl-cert-reqs=2"}
			},
			[]string{"spec.roles[0].extraArgs: no replica would ever be Ready: --ssl-cert-reqs demands a client certificate, and the kubelet's probes have none; set it to 0 or 1"},
		},
		"neither probes nor gauges": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.ExtraArgs = []string{"--uds=/run/vllm.sock", "--disable-log-stats"}
			},
			[]string{
				"spec.roles[0].extraArgs: no replica would ever be Ready: with --uds the engine listens on a Unix socket, which the kubelet cannot probe; remove --uds",
				"spec.roles[0].extraArgs: " + engine.StatsDisabled.Advice(),
			},
		},
		"a take-over role, which has no probes": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Command = []string{"vllm", "serve", "m", "--host=127.0.0.1", "--uds=/run/vllm.sock"}
			},
			nil,
		},
		"an SGLang drain shorter than its gauges lag": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Engine.Name, md.Spec.Retirement.DrainSeconds = v1alpha1.SGLang, new(int32(30))
			},
			[]string{"spec.retirement.drainSeconds: 30 is too short to prove a replica idle: the gauges of SGLang can lag by 31 s; set at least 62, and more for long generations"},
		},
		"a whole retirement shorter than any proof": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Retirement.TotalSeconds = new(int32(18)) },
			[]string{"spec.retirement.totalSeconds: 18 is too short for any proof: to show that no client reaches a replica and that its engine is idle takes 18 s at the least; set at least 36, and more for long generations"},
		},
		"a whole retirement that a proof fits into": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) { md.Spec.Retirement.TotalSeconds = new(int32(19)) },
			nil,
		},
		"any certificate of a router": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.TLS = &v1alpha1.RouterTLS{InsecureSkipVerify: true}
			},
			[]string{"spec.router.tls.insecureSkipVerify: any certificate is taken, so whoever can answer in the router's place is sent the token and can say that a replica is out of reach; name the Secret with the router's CA in secretName instead"},
		},
		"a token in the clear": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("sglang-gateway")
				md.Spec.Router.SecretName = "token"
			},
			[]string{"spec.router.secretName: its token is sent over plain HTTP, for all to read who see that traffic; where the router serves HTTPS set tls: {}"},
		},
		"metrics of llm-d at another port": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("llm-d-router")
				md.Spec.Router.Port, md.Spec.Router.MetricsPort = 9002, new(int32(9090))
			},
			[]string{"spec.router.metricsPort: llm-d-router is asked for its metrics alone, so port 9002 is not used, nor are tls and secretName: set port to 9090 and remove metricsPort"},
		},
		"a router, its Secret and certificate, and metrics at another port": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router = router("vllm-router")
				md.Spec.Router.TLS, md.Spec.Router.SecretName, md.Spec.Router.MetricsPort = &v1alpha1.RouterTLS{}, "token", new(int32(29000))
			},
			nil,
		},
		"a whole retirement shorter than any proof through llm-d": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router, md.Spec.Retirement.TotalSeconds = router("llm-d-router"), new(int32(15))
			},
			[]string{"spec.retirement.totalSeconds: 15 is too short for any proof: to show that no client reaches a replica and that its engine is idle takes 15 s at the least; set at least 30, and more for long generations"},
		},
		"a whole retirement shorter than any proof through another router": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router, md.Spec.Retirement.TotalSeconds = router("vllm-router"), new(int32(21))
			},
			[]string{"spec.retirement.totalSeconds: 21 is too short for any proof: to show that no client reaches a replica and that its engine is idle takes 21 s at the least; set at least 42, and more for long generations"},
		},
		"a whole retirement that a proof through a router fits into": {
			func(md *v1alpha1.ModelDeployment, _ *v1alpha1.Role) {
				md.Spec.Router, md.Spec.Retirement.TotalSeconds = router("vllm-router"), new(int32(22))
			},
			nil,
		},
		"extraArgs of a take-over role": {
			func(_ *v1alpha1.ModelDeployment, r *v1alpha1.Role) {
				r.Command, r.ExtraArgs, r.Port = []string{"/serve"}, []string{"--port=1"}, new(int32(8000))
			},
			[]string{"spec.roles[0].extraArgs: not used: command is the whole command line; move them there"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			md := minimal(t)
			test.edit(md, &md.Spec.Roles[0])
			errs, warnings := ModelDeployment(md)
			require.Empty(t, errs)
			require.Equal(t, test.want, warnings)
		})
	}
}
