package render

import (
	"slices"
	"strconv"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// distInitPort is where the members of an SGLang replica find each other. SGLang
// has no default for it; this is the port of its own multi-node examples.
const distInitPort = "20000"

// multiNodeFlags are, per engine, the flags that say how the members of a replica
// form one engine. A user who gives any of them has chosen a way, and a flag of
// another way beside it would keep the engine from starting.
var multiNodeFlags = map[engine.Name][]string{
	engine.VLLM: {
		"nnodes", "node-rank", "master-addr", "headless",
		"data-parallel-address", "data-parallel-rank", "data-parallel-start-rank",
		"data-parallel-hybrid-lb", "data-parallel-external-lb",
	},
	engine.SGLang: {"nnodes", "node-rank", "dist-init-addr", "nccl-init-addr"},
}

// CommandLine is the argument vector of a member's engine: the role's command,
// or lastcall's own with extraArgs after it. A flag that extraArgs have is not
// given a second time.
func CommandLine(spec *v1alpha1.ModelDeploymentSpec, role *v1alpha1.Role, member int32) []string {
	if TakenOver(role) {
		return slices.Clone(role.Command)
	}
	c := commandLine{extra: role.ExtraArgs, env: LiteralEnv(role)}
	if Engine(spec).Name == engine.SGLang {
		c.sglang(spec, role, member)
	} else {
		c.vllm(spec, role, member)
	}
	return append(c.words, role.ExtraArgs...)
}

type commandLine struct {
	words []string
	extra []string
	env   map[string]string
}

// add adds a flag that the user did not give.
func (c *commandLine) add(flag string, value ...string) {
	if !c.given(flag) {
		c.words = append(append(c.words, "--"+flag), value...)
	}
}

func (c *commandLine) given(flags ...string) bool {
	return slices.ContainsFunc(flags, func(flag string) bool { return engine.HasFlag(c.extra, c.env, flag) })
}

func (c *commandLine) listen(port int32) {
	c.add("host", "0.0.0.0")
	c.add("port", strconv.Itoa(int(port)))
}

func (c *commandLine) vllm(spec *v1alpha1.ModelDeploymentSpec, role *v1alpha1.Role, member int32) {
	c.words = []string{"vllm", "serve", spec.Model.Name}
	c.listen(EnginePort(spec, role))
	switch Kind(role) {
	case v1alpha1.Prefill:
		c.add("kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_producer"}`)
	case v1alpha1.Decode:
		c.add("kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}`)
	}
	if Size(role) <= 1 || c.given(multiNodeFlags[engine.VLLM]...) {
		return
	}
	c.ranks(role, member)
	c.add("master-addr", "$("+names.EnvLeaderAddress+")")
	if member > 0 {
		c.add("headless")
	}
}

func (c *commandLine) sglang(spec *v1alpha1.ModelDeploymentSpec, role *v1alpha1.Role, member int32) {
	c.words = []string{"python3", "-m", "sglang.launch_server", "--model-path", spec.Model.Name}
	c.listen(EnginePort(spec, role))
	c.add("enable-metrics")
	switch Kind(role) {
	case v1alpha1.Prefill:
		c.add("disaggregation-mode", "prefill")
	case v1alpha1.Decode:
		c.add("disaggregation-mode", "decode")
	}
	if Size(role) <= 1 || c.given(multiNodeFlags[engine.SGLang]...) {
		return
	}
	c.ranks(role, member)
	c.add("dist-init-addr", "$("+names.EnvLeaderAddress+"):"+distInitPort)
}

// ranks are literal: admission must see which member serves no metrics.
func (c *commandLine) ranks(role *v1alpha1.Role, member int32) {
	c.add("nnodes", strconv.Itoa(int(Size(role))))
	c.add("node-rank", strconv.Itoa(int(member)))
}
