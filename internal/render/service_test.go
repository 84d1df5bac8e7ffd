package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

func TestTheServiceForClients(t *testing.T) {
	tls := []string{"--ssl-keyfile=/k"}
	proxy := &v1alpha1.Proxy{Image: "proxy:1", Port: 8443}
	tests := map[string]struct {
		roles    []v1alpha1.Role
		wantKind string
		wantPort int32
	}{
		"one role":                         {[]v1alpha1.Role{{}}, "Server", 80},
		"two roles of one kind":            {[]v1alpha1.Role{{Kind: v1alpha1.Server}, {}}, "Server", 80},
		"only Prefill roles":               {[]v1alpha1.Role{{Kind: v1alpha1.Prefill}}, "Prefill", 80},
		"Prefill and Decode":               {[]v1alpha1.Role{{Kind: v1alpha1.Prefill}, {Kind: v1alpha1.Decode}}, "Decode", 80},
		"all three kinds":                  {[]v1alpha1.Role{{Kind: v1alpha1.Prefill}, {Kind: v1alpha1.Decode}, {}}, "Server", 80},
		"TLS":                              {[]v1alpha1.Role{{ExtraArgs: tls}}, "Server", 443},
		"TLS behind a proxy":               {[]v1alpha1.Role{{ExtraArgs: tls, Proxy: proxy}}, "Server", 80},
		"TLS in one of two roles":          {[]v1alpha1.Role{{ExtraArgs: tls}, {}}, "Server", 80},
		"TLS of those that clients reach":  {[]v1alpha1.Role{{Kind: v1alpha1.Prefill}, {Kind: v1alpha1.Decode, ExtraArgs: tls}}, "Decode", 443},
		"TLS of those that they do not":    {[]v1alpha1.Role{{Kind: v1alpha1.Prefill, ExtraArgs: tls}, {Kind: v1alpha1.Decode}}, "Decode", 80},
		"TLS in a shell's text of a user":  {[]v1alpha1.Role{{Command: []string{"sh", "-c", "vllm serve m --ssl-certfile c"}}}, "Server", 443},
		"TLS flags a command does not use": {[]v1alpha1.Role{{Command: []string{"/serve"}, ExtraArgs: tls}}, "Server", 80},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			md := &v1alpha1.ModelDeployment{Spec: v1alpha1.ModelDeploymentSpec{Engine: v1alpha1.Engine{Name: v1alpha1.VLLM}, Roles: test.roles}}
			md.Name = "qwen"
			service := render.Services(md)[0]
			require.Equal(t, "qwen", service.Name)
			require.Equal(t, test.wantKind, service.Spec.Selector[names.LabelRoleKind])
			require.Len(t, service.Spec.Ports, 1)
			require.Equal(t, test.wantPort, service.Spec.Ports[0].Port)
		})
	}
}

// The operator writes a Service or a budget only when its digest changed.
func TestTheDigestOfAService(t *testing.T) {
	digests := func(md *v1alpha1.ModelDeployment) []string {
		var all []string
		for _, s := range render.Services(md) {
			all = append(all, s.Annotations[names.AnnotationSpecHash])
		}
		return all
	}
	before, scaled, secured := given(t, "vllm"), given(t, "vllm"), given(t, "vllm")
	scaled.Spec.Roles[0].Replicas, scaled.Spec.Roles[0].Image, scaled.UID = new(int32(9)), "other:1", "restored"
	require.Equal(t, digests(before), digests(scaled))
	secured.Spec.Roles[0].ExtraArgs = []string{"--ssl-keyfile=/k"}
	for i, digest := range digests(secured) {
		require.NotEqual(t, digests(before)[i], digest)
	}
	budget := func(pods int32) string {
		return render.Budget(before, &before.Spec.Roles[0], pods).Annotations[names.AnnotationSpecHash]
	}
	require.NotEqual(t, budget(1), budget(2))
	require.NotEqual(t, budget(0), budget(1))
}
