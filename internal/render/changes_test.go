package render_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// notRendered are the fields of a role that are rightly not part of its Pods.
var notRendered = []string{"Replicas"}

// A field that is forgotten would be accepted and never take effect.
func TestEveryFieldOfARoleReachesItsPods(t *testing.T) {
	everything := given(t, "everything")
	for i := range reflect.TypeFor[v1alpha1.Role]().NumField() {
		field := reflect.TypeFor[v1alpha1.Role]().Field(i)
		from := 0
		if field.Name == "Command" {
			from = 1 // nothing else of the command line is used beside it
		}
		value := reflect.ValueOf(everything.Spec.Roles[from]).Field(i)
		require.False(t, value.IsZero(), "%s: set it in everything.yaml, and say here whether the Pods show it", field.Name)

		before, after := given(t, "vllm"), given(t, "vllm")
		reflect.ValueOf(&after.Spec.Roles[0]).Elem().Field(i).Set(value)
		changed := changes(t, before, after)
		if slices.Contains(notRendered, field.Name) {
			require.Empty(t, changed, field.Name)
		} else {
			require.NotEmpty(t, changed, field.Name)
		}
	}
}

// The paths are of the leader's Pod; the digest is checked apart from them.
func TestAChangeChangesOnlyWhatItShould(t *testing.T) {
	type role = v1alpha1.Role
	tests := map[string]struct {
		of   string // the case; vllm if empty
		edit func(md *v1alpha1.ModelDeployment, r *role)
		want []string
	}{
		"a number of replicas": {edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Replicas = new(int32(7)) }},
		"what is the default": {edit: func(_ *v1alpha1.ModelDeployment, r *role) {
			r.Kind, r.Replicas, r.Size = v1alpha1.Server, new(int32(1)), new(int32(1))
			r.TerminationGracePeriodSeconds = new(int64(30))
		}},
		"another role":         {edit: func(md *v1alpha1.ModelDeployment, _ *role) { md.Spec.Roles = append(md.Spec.Roles, role{Name: "b"}) }},
		"the engine's version": {edit: func(md *v1alpha1.ModelDeployment, _ *role) { md.Spec.Engine.Version = "0.30.0" }},
		"how replicas are retired": {edit: func(md *v1alpha1.ModelDeployment, _ *role) {
			md.Spec.Router = &v1alpha1.Router{Name: v1alpha1.VLLMRouter, Port: 1}
			md.Spec.Withdrawal.Direct = v1alpha1.DirectConnections
			md.Spec.Retirement.DrainSeconds = new(int32(600))
		}},
		"what is not the user's": {edit: func(md *v1alpha1.ModelDeployment, _ *role) {
			md.Generation, md.ResourceVersion, md.Labels = 7, "7", map[string]string{"a": "b"}
			md.Status.Phase = v1alpha1.PhaseReady
		}},
		"an affinity that says nothing": {edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Affinity = &corev1.Affinity{} }},
		"the engine's image under the role's own": {
			of:   "everything",
			edit: func(md *v1alpha1.ModelDeployment, _ *role) { md.Spec.Engine.Image = "other:1" },
		},
		"a label that is lastcall's": {edit: func(_ *v1alpha1.ModelDeployment, r *role) {
			r.Labels = map[string]string{names.LabelServing: names.Withdrawn, names.LabelInstance: "other", names.LabelName: "other"}
		}},
		"an annotation that is lastcall's": {edit: func(_ *v1alpha1.ModelDeployment, r *role) {
			r.Annotations = map[string]string{names.AnnotationEngine: "sglang", names.AnnotationPrometheusPort: "1"}
		}},
		"30 seconds for a take-over role": {
			of:   "take-over",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.TerminationGracePeriodSeconds = new(int64(30)) },
		},
		"extraArgs of a take-over role": {
			of:   "take-over",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.ExtraArgs = []string{"--port=1"} },
		},
		"60 seconds for a take-over role": {
			of:   "take-over",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.TerminationGracePeriodSeconds = new(int64(60)) },
			want: []string{"metadata.annotations[lastcall.dev/grace-seconds]"},
		},
		"a grace period": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.TerminationGracePeriodSeconds = new(int64(60)) },
			want: []string{"metadata.annotations[lastcall.dev/grace-seconds]"},
		},
		"the model": {
			edit: func(md *v1alpha1.ModelDeployment, _ *role) { md.Spec.Model.Name = "other" },
			want: []string{"spec.containers[0].command[2]"},
		},
		"the image": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Image = "other:1" },
			want: []string{"spec.containers[0].image"},
		},
		"an argument": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.ExtraArgs = []string{"--max-model-len=1"} },
			want: []string{"spec.containers[0].command[7]"},
		},
		"the port": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Port = new(int32(9000)) },
			want: []string{
				"metadata.annotations[prometheus.io/port]",
				"spec.containers[0].command[6]",
				"spec.containers[0].ports[0].containerPort",
			},
		},
		"where the metrics are": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) {
				r.Annotations = map[string]string{names.AnnotationMetricsPort: "9100", names.AnnotationMetricsPath: "/m", names.AnnotationMetricsScheme: "https"}
			},
			want: []string{
				"metadata.annotations[lastcall.dev/metrics-path]", "metadata.annotations[lastcall.dev/metrics-port]", "metadata.annotations[lastcall.dev/metrics-scheme]",
				"metadata.annotations[prometheus.io/path]", "metadata.annotations[prometheus.io/port]", "metadata.annotations[prometheus.io/scheme]",
			},
		},
		"TLS": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.ExtraArgs = []string{"--ssl_keyfile=/k"} },
			want: []string{
				"metadata.annotations[prometheus.io/scheme]",
				"spec.containers[0].command[7]",
				"spec.containers[0].livenessProbe.httpGet.scheme",
				"spec.containers[0].readinessProbe.httpGet.scheme",
				"spec.containers[0].startupProbe.httpGet.scheme",
			},
		},
		"the proxy's arguments": {
			of:   "everything",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Proxy.Args[0] = "--port=8001" },
			want: []string{"spec.initContainers[0].args[0]"},
		},
		"the proxy's image": {
			of:   "everything",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Proxy.Image = "other:1" },
			want: []string{"spec.initContainers[0].image"},
		},
		"the proxy's port": {
			of:   "everything",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Proxy.Port = 8001 },
			want: []string{
				"spec.containers[0].ports[0].containerPort",
				"spec.initContainers[0].readinessProbe.tcpSocket.port",
				"spec.initContainers[0].startupProbe.tcpSocket.port",
			},
		},
		"a queue of Kueue's": {
			edit: func(_ *v1alpha1.ModelDeployment, r *role) {
				r.Labels = map[string]string{names.LabelKueueQueue: "gpus"}
			},
			want: []string{"metadata.labels[kueue.x-k8s.io/queue-name]"},
		},
		"a queue of Kueue's for a larger replica": {
			of: "two-pods-vllm",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) {
				r.Labels = map[string]string{names.LabelKueueQueue: "gpus"}
			},
			want: []string{
				"metadata.annotations[kueue.x-k8s.io/pod-group-serving]",
				"metadata.annotations[kueue.x-k8s.io/pod-group-total-count]",
				"metadata.labels[kueue.x-k8s.io/pod-group-name]",
				"metadata.labels[kueue.x-k8s.io/queue-name]",
			},
		},
		"the size of a larger replica": {
			of:   "two-pods-vllm",
			edit: func(_ *v1alpha1.ModelDeployment, r *role) { r.Size = new(int32(3)) },
			want: []string{
				"metadata.labels[lastcall.dev/size]",
				"spec.containers[0].command[8]",
				"spec.containers[0].env[1].value",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			of := test.of
			if of == "" {
				of = "vllm"
			}
			before, after := given(t, of), given(t, of)
			test.edit(after, &after.Spec.Roles[0])
			require.Equal(t, test.want, changes(t, before, after))
		})
	}
}

func TestOneHashForARole(t *testing.T) {
	md := given(t, "everything")
	role := &md.Spec.Roles[0]
	for _, ordinal := range []int32{0, 1, 1023} {
		for _, pod := range render.Replica(md, role, ordinal) {
			require.Equal(t, render.Hash(md, role), pod.Annotations[names.AnnotationSpecHash], pod.Name)
		}
	}
	require.Regexp(t, "^[0-9a-f]{16}$", render.Hash(md, role))
}

func TestNilAndEmptyHaveOneHash(t *testing.T) {
	for i := range reflect.TypeFor[v1alpha1.Role]().NumField() {
		md := given(t, "vllm")
		want := render.Hash(md, &md.Spec.Roles[0])
		field := reflect.ValueOf(&md.Spec.Roles[0]).Elem().Field(i)
		switch field.Kind() {
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 0, 0))
		case reflect.Map:
			field.Set(reflect.MakeMap(field.Type()))
		}
		require.Equal(t, want, render.Hash(md, &md.Spec.Roles[0]), reflect.TypeFor[v1alpha1.Role]().Field(i).Name)
	}
}

func TestOneQuantityHasOneHash(t *testing.T) {
	hash := func(cpu, memory string) string {
		md := given(t, "vllm")
		md.Spec.Roles[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
		return render.Hash(md, &md.Spec.Roles[0])
	}
	require.Equal(t, hash("1", "1Gi"), hash("1000m", "1024Mi"))
	require.Equal(t, hash("1", "1Gi"), hash("1", "1073741824"))
	require.NotEqual(t, hash("1", "1Gi"), hash("1", "1G"))
	require.NotEqual(t, hash("1", "1Gi"), hash("1001m", "1Gi"))
}

// What validation would refuse must not stop the operator.
func TestAnythingRenders(t *testing.T) {
	for name, role := range map[string]v1alpha1.Role{
		"nothing":       {},
		"no Pods":       {Name: "a", Size: new(int32(0))},
		"negative Pods": {Name: "a", Size: new(int32(-1))},
		"empty words":   {Name: "a", Command: []string{""}, Proxy: &v1alpha1.Proxy{}},
	} {
		md := &v1alpha1.ModelDeployment{Spec: v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{role}}}
		require.NotPanics(t, func() {
			pods(md)
			render.Services(md)
			render.Budget(md, &md.Spec.Roles[0], -1)
		}, name)
	}
	require.NotPanics(t, func() { render.Services(&v1alpha1.ModelDeployment{}) })
}

// changes are the paths that differ between the leaders of two deployments, sorted.
// The digest must differ where one of them does, and nowhere else.
func changes(t *testing.T, before, after *v1alpha1.ModelDeployment) []string {
	t.Helper()
	was, is := leader(t, before), leader(t, after)
	var changed []string
	for path, value := range was {
		if is[path] != value {
			changed = append(changed, path)
		}
	}
	for path := range is {
		if _, both := was[path]; !both {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	digest := slices.Index(changed, "metadata.annotations["+names.AnnotationSpecHash+"]")
	require.Equal(t, len(changed) > 0, digest >= 0, "the digest and %v", changed)
	if digest >= 0 {
		changed = slices.Delete(changed, digest, digest+1)
		require.NotEmpty(t, changed, "only the digest changed")
	}
	return changed
}

// leader is the leader's Pod as values by path.
func leader(t *testing.T, md *v1alpha1.ModelDeployment) map[string]any {
	t.Helper()
	text, err := json.Marshal(render.Replica(md, &md.Spec.Roles[0], 0)[0])
	require.NoError(t, err)
	var root any
	require.NoError(t, json.Unmarshal(text, &root))
	leaves := map[string]any{}
	flatten("", root, leaves)
	return leaves
}

func flatten(path string, node any, leaves map[string]any) {
	switch node := node.(type) {
	case map[string]any:
		for key, child := range node {
			if strings.Contains(key, "/") {
				flatten(path+"["+key+"]", child, leaves)
			} else {
				flatten(strings.TrimPrefix(path+"."+key, "."), child, leaves)
			}
		}
	case []any:
		for i, child := range node {
			flatten(fmt.Sprintf("%s[%d]", path, i), child, leaves)
		}
	default:
		leaves[path] = node
	}
}
