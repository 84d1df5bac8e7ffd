package render_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

var update = flag.Bool("update", false, "rewrite what is expected in testdata; read the diff before you commit it: a new spec-hash replaces every replica of such a role")

// Each file of testdata is a ModelDeployment and, after "---", what is rendered
// for it: the Services, then for each role its budget and its first replica. Write
// the first part and run with -update.
func TestCases(t *testing.T) {
	for name, md := range cases(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", name+".yaml")
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			given, want, _ := bytes.Cut(text, []byte("---\n"))
			got := rendered(t, md)
			if *update {
				require.NoError(t, os.WriteFile(file, bytes.Join([][]byte{given, got}, []byte("---\n")), 0o644))
				return
			}
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestCasesAreValid(t *testing.T) {
	for name, md := range cases(t) {
		errs, warnings := validate.ModelDeployment(md)
		require.Empty(t, errs, name)
		require.Empty(t, warnings, name)
	}
}

// What admission makes of the Pods: the hook on every one but those the user took
// over, and a reading of every leader.
func TestAdmissionInjectsWhatIsManaged(t *testing.T) {
	for name, md := range cases(t) {
		for i := range md.Spec.Roles {
			role := &md.Spec.Roles[i]
			for member, pod := range render.Replica(md, role, 0) {
				result, errs := mutate.Pod(pod)
				require.Empty(t, errs)
				got, at := result.Record, name+": "+pod.Name
				require.Equal(t, names.MainContainer, got.Container, at)
				require.Equal(t, strings.ToLower(string(md.Spec.Engine.Name)), got.Engine, at)
				seconds, _ := render.GraceSeconds(role)
				require.Equal(t, seconds, got.GraceSeconds, at)
				switch {
				case render.TakenOver(role):
					require.Equal(t, [2]string{names.OutcomeSkipped, names.ReasonTakenOver}, [2]string{got.Outcome, got.Reason}, at)
				case member == 0:
					require.Equal(t, [2]string{names.OutcomeInjected, names.ReasonEngineRecognized}, [2]string{got.Outcome, got.Reason}, at)
					require.Equal(t, scraped(pod), got.MetricsURL, at)
					require.Empty(t, result.Warnings, at)
				default:
					require.Equal(t, [2]string{names.OutcomeInjected, names.ReasonNotMeasurable}, [2]string{got.Outcome, got.Reason}, at)
					require.Empty(t, got.MetricsURL, at)
				}
			}
		}
	}
}

func scraped(pod *corev1.Pod) string {
	a := pod.Annotations
	return a[names.AnnotationPrometheusScheme] + "://127.0.0.1:" + a[names.AnnotationPrometheusPort] + a[names.AnnotationPrometheusPath]
}

// The names that Services and probes use must be found where Kubernetes looks.
func TestPortsAreFoundByName(t *testing.T) {
	for name, md := range cases(t) {
		for _, service := range render.Services(md) {
			found := 0
			for _, pod := range pods(md) {
				if !selects(service.Spec.Selector, pod) {
					continue
				}
				found++
				for _, port := range service.Spec.Ports {
					require.Contains(t, portNames(pod), port.TargetPort.StrVal, "%s: %s sends to %s", name, service.Name, pod.Name)
				}
				if pod.Spec.Subdomain != "" && service.Spec.ClusterIP == corev1.ClusterIPNone {
					require.Equal(t, service.Name, pod.Spec.Subdomain, name)
				}
			}
			require.NotZero(t, found, "%s: %s selects nothing", name, service.Name)
		}
		for _, pod := range pods(md) {
			c := pod.Spec.Containers[0]
			for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
				if probe != nil {
					require.Contains(t, portNames(pod), probe.HTTPGet.Port.StrVal, name)
				}
			}
		}
	}
}

func TestBudgetsSelectTheirRoleAlone(t *testing.T) {
	for name, md := range cases(t) {
		for i := range md.Spec.Roles {
			role := &md.Spec.Roles[i]
			budget := render.Budget(md, role, 1)
			for _, pod := range pods(md) {
				require.Equal(t, pod.Labels[names.LabelComponent] == role.Name, selects(budget.Spec.Selector.MatchLabels, pod), "%s: %s", name, pod.Name)
			}
		}
	}
}

// The operator renders from its cache, which it must not write to.
func TestTheModelDeploymentIsNeitherChangedNorShared(t *testing.T) {
	for name, md := range cases(t) {
		before := md.DeepCopy()
		for _, pod := range pods(md) {
			scribble(pod)
		}
		for _, service := range render.Services(md) {
			service.Labels["scribbled"] = "x"
			service.Spec.Selector["scribbled"] = "x"
		}
		require.Equal(t, before, md, name)
	}
}

// scribble writes over everything a Pod could share with its role.
func scribble(pod *corev1.Pod) {
	for _, m := range []map[string]string{pod.Labels, pod.Annotations, pod.Spec.NodeSelector} {
		for key := range m {
			m[key] = "scribbled"
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range list {
			for _, words := range [][]string{c.Command, c.Args} {
				for i := range words {
					words[i] = "scribbled"
				}
			}
			clear(c.Env)
			clear(c.VolumeMounts)
			clear(c.Resources.Limits)
			clear(c.Resources.Requests)
		}
	}
	clear(pod.Spec.Volumes)
	clear(pod.Spec.Tolerations)
	clear(pod.Spec.ImagePullSecrets)
	if pod.Spec.Affinity != nil {
		*pod.Spec.Affinity = corev1.Affinity{}
	}
	if pod.Spec.RuntimeClassName != nil {
		*pod.Spec.RuntimeClassName = "scribbled"
	}
}

func rendered(t *testing.T, md *v1alpha1.ModelDeployment) []byte {
	t.Helper()
	var documents [][]byte
	add := func(object metav1.Object) {
		text, err := json.Marshal(object)
		require.NoError(t, err)
		var shown map[string]any
		require.NoError(t, json.Unmarshal(text, &shown))
		delete(shown, "status")
		text, err = yaml.Marshal(shown)
		require.NoError(t, err)
		documents = append(documents, text)
	}
	for _, service := range render.Services(md) {
		add(service)
	}
	for i := range md.Spec.Roles {
		role := &md.Spec.Roles[i]
		add(render.Budget(md, role, max(render.Replicas(role)-1, 0)*render.Size(role)))
		for _, pod := range render.Replica(md, role, 0) {
			add(pod)
		}
	}
	return bytes.Join(documents, []byte("---\n"))
}

// pods are those of the first replica of each role.
func pods(md *v1alpha1.ModelDeployment) []*corev1.Pod {
	var all []*corev1.Pod
	for i := range md.Spec.Roles {
		all = append(all, render.Replica(md, &md.Spec.Roles[i], 0)...)
	}
	return all
}

func selects(selector map[string]string, pod *corev1.Pod) bool {
	return labels.SelectorFromSet(selector).Matches(labels.Set(pod.Labels))
}

// portNames are the ports of the containers, where every version of Kubernetes
// looks; only from 1.32 on does it look into native sidecars.
func portNames(pod *corev1.Pod) []string {
	var all []string
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			all = append(all, port.Name)
		}
	}
	return all
}

func cases(t *testing.T) map[string]*v1alpha1.ModelDeployment {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string]*v1alpha1.ModelDeployment{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		found[name] = given(t, name)
	}
	return found
}

// given is the ModelDeployment of a case.
func given(t *testing.T, name string) *v1alpha1.ModelDeployment {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	first, _, _ := bytes.Cut(text, []byte("---\n"))
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, yaml.UnmarshalStrict(first, md))
	return md
}
