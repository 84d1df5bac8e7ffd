package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// example is what an example's replicas should come to.
type example struct {
	services, budgets []string
	pods              int
	// roles is the summary once all of them are Ready.
	roles string
}

// TestExamplesAreApplied applies each example with kubectl, as its reader does, and
// has the operator itself build it.
func TestExamplesAreApplied(t *testing.T) {
	account := installOperator(t)
	operator := startReplica(t, built(t, "operator"), "--namespace="+account.Namespace, "--name="+account.Name, "--kubeconfig="+kubeconfigOf(t, account))
	eventually(t, func() error { return operator.health("/readyz") })

	want := map[string]example{
		"vllm.yaml":   {[]string{"qwen", "qwen-server"}, []string{"qwen-server"}, 2, "2S"},
		"sglang.yaml": {[]string{"qwen-sglang", "qwen-sglang-server"}, []string{"qwen-sglang-server"}, 2, "2S"},
		"prefill-decode.yaml": {
			[]string{"llama-pd", "llama-pd-decode", "llama-pd-prefill"}, []string{"llama-pd-decode", "llama-pd-prefill"}, 6, "4P2D",
		},
		"two-pods-per-replica.yaml": {
			[]string{"llama-two-pods", "llama-two-pods-server", "llama-two-pods-server-group"}, []string{"llama-two-pods-server"}, 2, "1S",
		},
		"take-over.yaml": {[]string{"qwen-takeover", "qwen-takeover-server"}, []string{"qwen-takeover-server"}, 1, "1S"},
	}
	files, err := filepath.Glob(filepath.Join(chart.Root(), "examples", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, len(want), "each example is expected to come to something, and is there")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { want[filepath.Base(file)].test(t, file) })
	}
	assert.NotContains(t, operator.said(t), "forbidden", "the permissions suffice")
}

func (e example) test(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	md := running{&v1alpha1.ModelDeployment{}}
	require.NoError(t, yaml.UnmarshalStrict(text, md.ModelDeployment))
	md.Namespace = namespace(t, nil)
	object := "modeldeployment.lastcall.dev/" + md.Name

	// All that kubectl prints: a warning would be there too.
	require.Equal(t, object+" created\n", kubectl(t, "apply", "--namespace", md.Namespace, "-f", file))
	pods := md.pods(t, e.pods)
	md.reaches(t, v1alpha1.PhaseStarting, zeros(e.roles))
	progressing := meta.FindStatusCondition(md.Status.Conditions, names.ConditionProgressing)
	require.Equal(t, names.ReasonReplicasStarting, progressing.Reason, progressing.Message)
	assert.Equal(t, e.services, md.objects(t, &corev1.ServiceList{}))
	assert.Equal(t, e.budgets, md.objects(t, &policyv1.PodDisruptionBudgetList{}))
	for i := range pods {
		md.admitted(t, &pods[i])
	}
	e.selected(t, md, pods)
	md.becomeReady(t, pods)
	md.reaches(t, v1alpha1.PhaseReady, e.roles)

	generation := md.Generation
	assert.Empty(t, kubectl(t, "diff", "--namespace", md.Namespace, "-f", file))
	// It may say configured: the patch replaces lists whole, and so leaves out the
	// defaults in roles, which the API server puts back.
	assert.NotContains(t, kubectl(t, "apply", "--namespace", md.Namespace, "-f", file), "Warning")
	md.reaches(t, v1alpha1.PhaseReady, e.roles)
	assert.Equal(t, generation, md.Generation, "the second apply changes nothing")
	for i, pod := range md.pods(t, e.pods) {
		assert.Equal(t, pods[i].UID, pod.UID, pod.Name)
		assert.Nil(t, pod.DeletionTimestamp, pod.Name)
	}
	for _, refusal := range []string{names.ReasonCreateFailed, names.ReasonNameTaken, names.ReasonRenderFailed} {
		assert.ErrorContains(t, md.told(t, refusal), "no event "+refusal)
	}
}

// admitted checks that the Pod went through admission, and that a Pod like it makes
// the API server warn of nothing but a worker, which nobody can ask for its work.
func (r running) admitted(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	var role *v1alpha1.Role
	for i := range r.Spec.Roles {
		if r.Spec.Roles[i].Name == pod.Labels[names.LabelComponent] {
			role = &r.Spec.Roles[i]
		}
	}
	require.NotNil(t, role, pod.Name)
	worker := pod.Labels[names.LabelMember] != "0"
	wanted := names.ReasonEngineRecognized
	switch {
	case len(role.Command) > 0:
		wanted = names.ReasonTakenOver
	case worker:
		wanted = names.ReasonNotMeasurable
	}
	assert.Equal(t, wanted, record(t, pod).Reason, pod.Name)
	assert.Equal(t, len(role.Command) == 0, injected(pod), pod.Name)
	assert.Equal(t, role.TerminationGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds, pod.Name)

	again := pod.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Namespace: pod.Namespace, Name: "again", Labels: pod.Labels, Annotations: pod.Annotations}
	warnings.texts = nil
	require.NoError(t, api.Create(t.Context(), again, client.DryRunAll), pod.Name)
	if worker {
		require.Len(t, warnings.texts, 1, pod.Name)
		assert.Contains(t, warnings.texts[0], "requests in flight cannot be counted", pod.Name)
	} else {
		assert.Empty(t, warnings.texts, pod.Name)
	}
}

// selected checks that each Service finds Pods that have the port it names.
func (e example) selected(t *testing.T, md running, pods []corev1.Pod) {
	t.Helper()
	var services corev1.ServiceList
	require.NoError(t, api.List(t.Context(), &services, client.InNamespace(md.Namespace)))
	for _, service := range services.Items {
		found := 0
		for _, pod := range pods {
			if !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
				continue
			}
			found++
			var ports []string
			for _, container := range pod.Spec.Containers {
				for _, port := range container.Ports {
					ports = append(ports, port.Name)
				}
			}
			for _, port := range service.Spec.Ports {
				assert.Contains(t, ports, port.TargetPort.StrVal, "%s sends to %s", service.Name, pod.Name)
			}
		}
		assert.NotZero(t, found, "%s selects nothing", service.Name)
	}
}

// zeros is the summary of roles none of whose replicas is Ready.
func zeros(roles string) string {
	none := []byte(roles)
	for i, c := range none {
		if c >= '0' && c <= '9' {
			none[i] = '0'
		}
	}
	return string(none)
}

// kubectl runs the real one as the administrator, and returns all that it printed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	programs, err := binaries.Provide(t.Context(), os.Stderr, binaries.Kubectl)
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, adminKubeconfig, 0o600))
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, binaries.Kubectl), append(args, "--kubeconfig", kubeconfig)...).CombinedOutput()
	require.NoError(t, err, "kubectl %v: %s", args, out)
	return string(out)
}
