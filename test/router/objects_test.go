package router

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

func TestCommandsAreWhatTheRouterReads(t *testing.T) {
	const selector = "app=engine,lastcall.dev/serving=true"
	for name, c := range map[string]struct {
		router Router
		want   func(*fake.Options)
	}{
		"vllm-router": {
			Router{Release: bundle.Release{Family: fake.VLLMRouter, Version: "0.1.15"}, Selector: selector, Policy: "round_robin"},
			func(o *fake.Options) { o.Selector, o.Policy = selector, "round_robin" },
		},
		"vllm-router, a pair": {
			Router{Release: bundle.Release{Family: fake.VLLMRouter, Version: "0.1.15"}, PrefillSelector: "role=p,x=y", DecodeSelector: "role=d"},
			func(o *fake.Options) {
				o.PD, o.PrefillSelector, o.DecodeSelector = fake.Sequential, "role=p,x=y", "role=d"
			},
		},
		"smg, a pair": {
			Router{Release: bundle.Release{Family: fake.SMG, Version: "1.9.0"}, PrefillSelector: "role=p", DecodeSelector: "role=d", Args: []string{"--drain-settle-secs", "60"}},
			func(o *fake.Options) { o.PD, o.PrefillSelector, o.DecodeSelector = fake.Dual, "role=p", "role=d" },
		},
		"sgl-model-gateway": {
			Router{Release: bundle.Release{Family: fake.SGLModelGateway, Version: "0.3.0"}, Selector: selector, EnginePort: 30000},
			func(o *fake.Options) { o.Selector, o.Ports = selector, []int{30000} },
		},
		"llm-d": {
			Router{Name: "epp", Release: bundle.Release{Family: fake.LLMD, Version: "0.10.0"}, Selector: selector, Args: []string{"--role-filter"}},
			func(o *fake.Options) {
				o.Selector, o.Pool, o.RoleFilter, o.Listen, o.Metrics, o.Admin = selector, "epp", true, ":8000", ":9090", ":19000"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fake.Parse(c.router.Command("team-a"))
			require.NoError(t, err)
			want := got // of what is not named the defaults stand, which package fake tests
			want.Family, want.Version, want.Namespace, want.Ports = c.router.Release.Family, c.router.Release.Version, "team-a", []int{8000}
			want.Listen, want.Metrics, want.Selector, want.PD, want.PrefillSelector, want.DecodeSelector = "0.0.0.0:8000", "0.0.0.0:29000", "", "", "", ""
			c.want(&want)
			assert.Equal(t, want, got)
		})
	}
}

func TestObjects(t *testing.T) {
	r := Router{Name: "gateway", Release: bundle.Release{Family: fake.SMG, Version: "1.9.0"}, Replicas: 3, Selector: "app=engine", Grace: 60}
	objects := r.Objects("team-a")
	require.Len(t, objects, 5)
	for _, o := range objects {
		assert.Equal(t, "gateway", o.GetName())
		assert.Equal(t, "team-a", o.GetNamespace())
	}
	deployment, ok := objects[3].(*appsv1.Deployment)
	require.True(t, ok)
	assert.EqualValues(t, 3, *deployment.Spec.Replicas)
	pod := deployment.Spec.Template.Spec
	assert.Equal(t, "gateway", pod.ServiceAccountName)
	assert.EqualValues(t, 60, *pod.TerminationGracePeriodSeconds)
	assert.Equal(t, "lastcall.dev/test/smg:v1.9.0", pod.Containers[0].Image)
	assert.Equal(t, "smg", pod.Containers[0].Command[0])
}
