package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

func TestAFlagTheUserGaveIsNotGivenAgain(t *testing.T) {
	tests := map[string]struct {
		engine v1alpha1.EngineName
		kind   v1alpha1.RoleKind
		size   int32
		extra  string
		env    string // the value of X
		want   string // without what every command line starts with, "…" for extra
	}{
		"nothing": {
			engine: v1alpha1.VLLM, want: "--host 0.0.0.0 --port 8000 …",
		},
		"the host": {
			engine: v1alpha1.VLLM, extra: "--host ::", want: "--port 8000 …",
		},
		"the port in one word": {
			engine: v1alpha1.VLLM, extra: "--port=8001", want: "--host 0.0.0.0 …",
		},
		"a port from a variable nobody knows": {
			engine: v1alpha1.VLLM, extra: "--port $(UNKNOWN)", want: "--host 0.0.0.0 …",
		},
		"a host in a variable": {
			engine: v1alpha1.VLLM, extra: "$(X)", env: "--host=::", want: "--port 8000 …",
		},
		"the transfer of a vLLM Decode role": {
			engine: v1alpha1.VLLM, kind: v1alpha1.Decode, extra: `--kv_transfer_config={"kv_role":"kv_both"}`,
			want: "--host 0.0.0.0 --port 8000 …",
		},
		"the transfer in the dotted form": {
			engine: v1alpha1.VLLM, kind: v1alpha1.Prefill, extra: "--kv-transfer-config.kv_role kv_both",
			want: "--host 0.0.0.0 --port 8000 …",
		},
		"SGLang's metrics": {
			engine: v1alpha1.SGLang, extra: "--enable_metrics", want: "--host 0.0.0.0 --port 30000 …",
		},
		"SGLang's disaggregation": {
			engine: v1alpha1.SGLang, kind: v1alpha1.Prefill, extra: "--disaggregation-mode=null",
			want: "--host 0.0.0.0 --port 30000 --enable-metrics …",
		},
		"how vLLM's members find each other": {
			engine: v1alpha1.VLLM, size: 2, extra: "--data_parallel_address=$(LASTCALL_LEADER_ADDRESS)",
			want: "--host 0.0.0.0 --port 8000 …",
		},
		"a flag that only tunes how vLLM's members work together": {
			engine: v1alpha1.VLLM, size: 2, extra: "--master-port=29600",
			want: "--host 0.0.0.0 --port 8000 --nnodes 2 --node-rank 1 --master-addr $(LASTCALL_LEADER_ADDRESS) --headless …",
		},
		"how SGLang's members find each other": {
			engine: v1alpha1.SGLang, size: 2, extra: "--nnodes 2 --node_rank $(LASTCALL_MEMBER_INDEX) --dist-init-addr $(LASTCALL_LEADER_ADDRESS):5000",
			want: "--host 0.0.0.0 --port 30000 --enable-metrics …",
		},
		"a multi-node flag of one Pod": {
			engine: v1alpha1.VLLM, extra: "--headless", want: "--host 0.0.0.0 --port 8000 …",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.ModelDeploymentSpec{Model: v1alpha1.Model{Name: "m"}, Engine: v1alpha1.Engine{Name: test.engine}}
			role := &v1alpha1.Role{Kind: test.kind, ExtraArgs: strings.Fields(test.extra)}
			if test.size > 0 {
				role.Size = &test.size
			}
			if test.env != "" {
				role.Env = []corev1.EnvVar{{Name: "X", Value: test.env}}
			}
			start := "vllm serve m "
			if test.engine == v1alpha1.SGLang {
				start = "python3 -m sglang.launch_server --model-path m "
			}
			got := strings.Join(render.CommandLine(spec, role, 1), " ")
			want := strings.TrimSpace(start + strings.Replace(test.want, "…", test.extra, 1))
			require.Equal(t, want, got)
		})
	}
}

func TestEnginePort(t *testing.T) {
	tests := map[string]struct {
		engine v1alpha1.EngineName
		role   v1alpha1.Role
		want   int32
	}{
		"vLLM's default":                        {v1alpha1.VLLM, v1alpha1.Role{}, 8000},
		"SGLang's default":                      {v1alpha1.SGLang, v1alpha1.Role{}, 30000},
		"the field":                             {v1alpha1.VLLM, v1alpha1.Role{Port: new(int32(9000))}, 9000},
		"the last flag before the field":        {v1alpha1.VLLM, v1alpha1.Role{Port: new(int32(9000)), ExtraArgs: []string{"--port=1", "--port", "9001"}}, 9001},
		"the field for a flag that is unknown":  {v1alpha1.VLLM, v1alpha1.Role{Port: new(int32(9000)), ExtraArgs: []string{"--port=$(X)"}}, 9000},
		"a command's flag":                      {v1alpha1.VLLM, v1alpha1.Role{Command: []string{"/serve", "--port=9002"}, ExtraArgs: []string{"--port=1"}}, 9002},
		"the field for a command without one":   {v1alpha1.VLLM, v1alpha1.Role{Command: []string{"/serve"}, Port: new(int32(9003))}, 9003},
		"a flag in a shell's text":              {v1alpha1.SGLang, v1alpha1.Role{Command: []string{"sh", "-c", "sglang serve --port 9004"}}, 9004},
		"the field before a flag in such a one": {v1alpha1.SGLang, v1alpha1.Role{Command: []string{"sh", "-c", "sglang serve --port 9004"}, Port: new(int32(9005))}, 9005},
		"the default for a command":             {v1alpha1.SGLang, v1alpha1.Role{Command: []string{"/serve"}}, 30000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.ModelDeploymentSpec{Engine: v1alpha1.Engine{Name: test.engine}}
			require.Equal(t, test.want, render.EnginePort(spec, &test.role))
		})
	}
}
