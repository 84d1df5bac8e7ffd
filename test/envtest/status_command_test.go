package envtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/cli"
)

// kubectlLastcall runs kubectl lastcall as a user who has a kubeconfig of this API
// server.
func kubectlLastcall(t *testing.T, args ...string) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, adminKubeconfig, 0o600))
	t.Setenv("KUBECONFIG", kubeconfig)
	var out, stderr bytes.Buffer
	code := cli.Run(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &stderr})
	require.Zero(t, code, stderr.String())
	return out.String()
}

// ownedPod is a Pod of a Deployment, made through a ReplicaSet.
func ownedPod(t *testing.T, deployment *appsv1.Deployment, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: deployment.Namespace, Name: deployment.Name + "-" + name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{Selector: deployment.Spec.Selector, Template: deployment.Spec.Template},
	}
	require.NoError(t, api.Create(t.Context(), set))
	pod := enginePod(deployment.Namespace, name, labels)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	create(t, pod)
	return pod
}

func deployment(t *testing.T, namespace, name string, own map[string]string) *appsv1.Deployment {
	t.Helper()
	selector := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: own},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec:       enginePod(namespace, name, nil).Spec,
			},
		},
	}
	require.NoError(t, api.Create(t.Context(), d))
	return d
}

// statusReport is what tools read of kubectl lastcall status -o json.
type statusReport struct {
	ModelDeployments []struct {
		Name, Phase string
		Roles       []struct {
			Name           string
			Ready, Desired int
			Missing        []int
			Replicas       []struct {
				Ordinal   int
				OlderSpec bool
				Pods      []struct {
					Name, HookReason   string
					Ready, Terminating bool
					Hook               bool
					GraceSeconds       int
				}
			}
		}
	}
	Workloads []struct {
		Kind, Name   string
		Pods, Hooked int
		Findings     []struct {
			Reason, Command string
			PodNames        []string
		}
	}
}

func TestStatusShowsAModelDeploymentInTheMiddleOfARollout(t *testing.T) {
	s := newRunningStage(t, role("server", 2, 1), role("pair", 1, 2))
	s.roll("vllm/vllm-openai:v0.30.0")
	for s.built()["chat-server-1"].DeletionTimestamp == nil {
		s.operator.reconcile()
	}
	var r statusReport
	require.NoError(t, json.Unmarshal([]byte(kubectlLastcall(t, "status", "chat", "-n", s.Namespace, "-o", "json")), &r))
	require.Len(t, r.ModelDeployments, 1)
	roles := r.ModelDeployments[0].Roles
	require.Len(t, roles, 2)
	require.Len(t, roles[0].Replicas, 2)
	assert.Equal(t, 2, roles[0].Desired)
	assert.Equal(t, []bool{false, true}, []bool{roles[0].Replicas[0].Pods[0].Terminating, roles[0].Replicas[1].Pods[0].Terminating})
	require.Len(t, roles[1].Replicas[0].Pods, 2)
	for _, pod := range append(roles[1].Replicas[0].Pods, roles[0].Replicas[0].Pods...) {
		why := names.ReasonEngineRecognized
		if pod.Name == "chat-pair-0-1" {
			why = names.ReasonNotMeasurable // its leader answers for it
		}
		assert.True(t, pod.Hook, pod.Name)
		assert.Equal(t, why, pod.HookReason, pod.Name)
		assert.Equal(t, 30, pod.GraceSeconds, pod.Name)
	}

	s.take(s.pod("chat-server-0"), client.GracePeriodSeconds(0))
	text := kubectlLastcall(t, "status", "-n", s.Namespace)
	for _, words := range []string{"ModelDeployment/chat", names.ReasonRolloutInProgress, "Role server (Server)", "Terminating", "Without Pods: 0", "Role pair (Server)"} {
		assert.Contains(t, text, words)
	}
}

// The label on the Deployment alone, and Pods older than the label: users see no
// injection and nobody tells them why, as in https://github.com/istio/istio/pull/3664
// and https://github.com/jaegertracing/jaeger-operator/pull/1804
func TestStatusSaysWhyPodsHaveNoHook(t *testing.T) {
	ns := namespace(t, nil)
	ownedPod(t, deployment(t, ns, "misplaced", optedIn), "misplaced-1", map[string]string{"app": "misplaced"})
	older := deployment(t, ns, "older", nil)
	ownedPod(t, older, "older-1", map[string]string{"app": "older"})

	var before statusReport
	require.NoError(t, json.Unmarshal([]byte(kubectlLastcall(t, "status", "-n", ns, "-o", "json")), &before))
	require.Len(t, before.Workloads, 1)
	assert.Equal(t, "misplaced", before.Workloads[0].Name)
	require.Len(t, before.Workloads[0].Findings, 1)
	assert.Equal(t, names.ReasonLabelNotOnPods, before.Workloads[0].Findings[0].Reason)

	var object corev1.Namespace
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: ns}, &object))
	object.Labels = map[string]string{names.LabelDrain: names.DrainEnabled}
	require.NoError(t, api.Update(t.Context(), &object))
	untilInForceIn(t, ns)
	ownedPod(t, older, "older-2", map[string]string{"app": "older"})
	keeps := enginePod(ns, "keeps", nil)
	keeps.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	create(t, keeps)

	var r statusReport
	require.NoError(t, json.Unmarshal([]byte(kubectlLastcall(t, "status", "-n", ns, "-o", "json")), &r))
	type seen struct {
		pods, hooked     int
		reason, command  string
		without          []string
		numberOfFindings int
	}
	got := map[string]seen{}
	for _, w := range r.Workloads {
		require.NotEmpty(t, w.Findings, w.Name)
		f := w.Findings[0]
		got[w.Kind+"/"+w.Name] = seen{w.Pods, w.Hooked, f.Reason, f.Command, f.PodNames, len(w.Findings)}
	}
	restart := func(name string) string { return "kubectl rollout restart deployment/" + name + " -n " + ns }
	assert.Equal(t, map[string]seen{
		"Deployment/misplaced": {1, 0, names.ReasonNoRecord, restart("misplaced"), []string{"misplaced-1"}, 1},
		"Deployment/older":     {2, 1, names.ReasonNoRecord, restart("older"), []string{"older-1"}, 1},
		"Pod/keeps":            {1, 0, names.ReasonUserPreStop, "", []string{"keeps"}, 1},
	}, got)
}

// untilInForceIn returns when the API server knows that the namespace has opted in.
func untilInForceIn(t *testing.T, ns string) {
	t.Helper()
	eventually(t, func() error {
		pod := enginePod(ns, "probe", nil)
		if err := api.Create(t.Context(), pod, client.DryRunAll); err != nil || injected(pod) {
			return err
		}
		return errors.New("the namespace's label is not in force")
	})
}
