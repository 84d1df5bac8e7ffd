package envtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/admission"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/validate"
	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

var optedIn = map[string]string{names.LabelDrain: names.DrainEnabled}

// enginePod runs vLLM. It is bound to a node, because the API server deletes a
// Pod that is not at once, whatever its grace period and finalizers.
func enginePod(namespace, name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: "node",
			Containers: []corev1.Container{{
				Name:    names.MainContainer,
				Image:   "vllm/vllm-openai:v0.29.0",
				Command: []string{"vllm", "serve", "m"},
			}},
		},
	}
}

// create creates a Pod and returns it as stored, with what was asked about it.
func create(t *testing.T, pod *corev1.Pod, options ...client.CreateOption) []*admissionv1.AdmissionRequest {
	t.Helper()
	require.NoError(t, api.Create(t.Context(), pod, options...))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(api.Delete(context.Background(), pod, client.GracePeriodSeconds(0))))
	})
	return server.requests(pod.Name)
}

func injected(pod *corev1.Pod) bool {
	lifecycle := pod.Spec.Containers[0].Lifecycle
	return lifecycle != nil && lifecycle.PreStop != nil && lifecycle.PreStop.Exec != nil && drain.IsHook(lifecycle.PreStop.Exec.Command)
}

func record(t *testing.T, pod *corev1.Pod) (r mutate.Record) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(pod.Annotations[names.AnnotationStatus]), &r))
	return r
}

// A Pod that several entries select would be called for several times, and one
// that none selects would silently go without its drain window.
func TestEachPodIsAskedAboutAtMostOnce(t *testing.T) {
	const unset = ""
	inNamespace := map[string]string{unset: namespace(t, nil), names.DrainEnabled: namespace(t, optedIn)}
	number := 0
	for namespaceDrain, ns := range inNamespace {
		for _, podDrain := range []string{unset, names.DrainEnabled, names.DrainDisabled, "perhaps"} {
			for _, managedBy := range []string{unset, names.Operator} {
				for _, partOf := range []string{unset, names.PartOf} {
					want := 0
					switch {
					case managedBy == names.Operator:
						want = 1
					case partOf == names.PartOf:
					case podDrain == names.DrainEnabled:
						want = 1
					case namespaceDrain == names.DrainEnabled && podDrain != names.DrainDisabled:
						want = 1
					}
					number++
					name := fmt.Sprintf("combination-%d", number)
					about := fmt.Sprintf("namespace %q, Pod %q, managed by %q, part of %q", namespaceDrain, podDrain, managedBy, partOf)

					labels := map[string]string{}
					for key, value := range map[string]string{names.LabelDrain: podDrain, names.LabelManagedBy: managedBy, names.LabelPartOf: partOf} {
						if value != unset {
							labels[key] = value
						}
					}
					pod := enginePod(ns, name, labels)
					assert.Len(t, create(t, pod), want, about)
					assert.Equal(t, want == 1, injected(pod), about)
				}
			}
		}
	}
	assert.Equal(t, 32, number)
}

func TestExemptNamespaces(t *testing.T) {
	for _, ns := range []string{"kube-system", "kube-node-lease"} {
		require.NoError(t, client.IgnoreAlreadyExists(api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})))
		for _, labels := range []map[string]string{optedIn, {names.LabelManagedBy: names.Operator}} {
			pod := enginePod(ns, "exempt", labels)
			assert.Empty(t, create(t, pod), "%s %s", ns, labels)
			assert.False(t, injected(pod), "%s %s", ns, labels)
			require.NoError(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		}
	}
}

func TestTheNamespaceOfTheReleaseIsNotExempt(t *testing.T) {
	pod := enginePod(releaseNamespace, "beside-lastcall", optedIn)
	assert.Len(t, create(t, pod), 1)
	assert.True(t, injected(pod))
}

func TestOwnPodsAreNeverAskedAbout(t *testing.T) {
	deployments, err := chart.Decode[appsv1.Deployment](rendered, "Deployment")
	require.NoError(t, err)
	require.NotEmpty(t, deployments)
	// The API server itself applies the restricted Pod Security Standard.
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted", names.LabelDrain: names.DrainEnabled}
	ns := namespace(t, labels)
	server.down(t)
	for _, deployment := range deployments {
		pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
		pod.Namespace, pod.Name = ns, deployment.Name
		create(t, pod)
	}
}

func TestOnlyCreationIsAskedAbout(t *testing.T) {
	ns := namespace(t, nil)
	pod := enginePod(ns, "older-than-the-label", nil)
	pod.Finalizers = []string{"example.com/held"}
	require.Empty(t, create(t, pod))

	var space corev1.Namespace
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: ns}, &space))
	space.Labels[names.LabelDrain] = names.DrainEnabled
	require.NoError(t, api.Update(t.Context(), &space))

	pod.Labels = map[string]string{names.LabelDrain: names.DrainEnabled}
	pod.Annotations = map[string]string{"example.com/note": "labelled"}
	require.NoError(t, api.Update(t.Context(), pod))

	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	require.NoError(t, api.Status().Update(t.Context(), pod))

	ephemeral := pod.DeepCopy()
	ephemeral.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "busybox:1", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullIfNotPresent,
	}}}
	require.NoError(t, api.SubResource("ephemeralcontainers").Update(t.Context(), ephemeral))

	require.NoError(t, api.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{}))
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	require.NotNil(t, pod.DeletionTimestamp)

	pod.Finalizers = nil
	require.NoError(t, api.Update(t.Context(), pod), "a finalizer can be removed from a Pod that is being deleted")
	require.NoError(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))

	assert.Empty(t, server.requests(pod.Name))
}

// A webhook that does not say it has no side effects fails every dry run, and so
// the diffs of GitOps tools: https://github.com/argoproj/argo-cd/issues/23752
func TestDryRun(t *testing.T) {
	pod := enginePod(namespace(t, optedIn), "only-asking", nil)
	require.NoError(t, api.Create(t.Context(), pod, client.DryRunAll))
	assert.True(t, injected(pod), "the answer is that of the real creation")
	require.Len(t, server.requests(pod.Name), 1)
	assert.True(t, *server.requests(pod.Name)[0].DryRun)
	assert.Error(t, api.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}), "nothing is stored")
}

// A later webhook, such as a service mesh's, may add containers and change the
// command line after lastcall saw it.
func TestALaterWebhookIsSeen(t *testing.T) {
	later := startLaterWebhook(t, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Command = append(pod.Spec.Containers[0].Command, "--port=9000")
		pod.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:1"}}, pod.Spec.Containers...)
	})
	pod := enginePod(namespace(t, optedIn), "changed-later", map[string]string{later: "true"})
	assert.Len(t, create(t, pod), 2, "asked, and asked again after the change")

	require.Len(t, pod.Spec.Containers, 2)
	assert.Nil(t, pod.Spec.Containers[0].Lifecycle, "the proxy")
	engine := pod.Spec.Containers[1]
	assert.True(t, drain.IsHook(engine.Lifecycle.PreStop.Exec.Command))
	assert.Equal(t, "http://127.0.0.1:9000/metrics", record(t, pod).MetricsURL)
}

func TestUnknownFieldsSurvive(t *testing.T) {
	var object map[string]any
	require.NoError(t, json.Unmarshal(toJSON(t, enginePod(releaseNamespace, "from-the-future", optedIn)), &object))
	spec := object["spec"].(map[string]any)
	spec["fieldOfTomorrow"] = map[string]any{"a": 1.0}
	container := spec["containers"].([]any)[0].(map[string]any)
	container["lifecycle"] = map[string]any{"stopSignalOfTomorrow": "SIGTOMORROW"}
	sent, err := json.Marshal(object)
	require.NoError(t, err)

	response := server.ask(t, admission.PathPods, metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, sent)
	require.True(t, response.Allowed)
	patch, err := jsonpatch.DecodePatch(response.Patch)
	require.NoError(t, err)
	patched, err := patch.Apply(sent)
	require.NoError(t, err)

	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(patched, &pod))
	require.True(t, injected(&pod))
	require.NoError(t, json.Unmarshal(patched, &object))
	spec = object["spec"].(map[string]any)
	assert.Equal(t, map[string]any{"a": 1.0}, spec["fieldOfTomorrow"])
	container = spec["containers"].([]any)[0].(map[string]any)
	assert.Equal(t, "SIGTOMORROW", container["lifecycle"].(map[string]any)["stopSignalOfTomorrow"])
}

func TestPodsWhileTheWebhookIsDown(t *testing.T) {
	ns := namespace(t, optedIn)
	server.down(t)

	pod := enginePod(ns, "without-a-window", nil)
	create(t, pod)
	assert.False(t, injected(pod), "an opted-in Pod is created without a drain window")

	err := api.Create(t.Context(), enginePod(ns, "not-yet", map[string]string{names.LabelManagedBy: names.Operator}))
	assert.ErrorContains(t, err, `failed calling webhook "operator-built.drain.lastcall.dev"`)

	create(t, enginePod(namespace(t, nil), "never-opted-in", nil))
	create(t, enginePod("kube-system", "of-the-system", optedIn))
}

func TestTheGraceOfPods(t *testing.T) {
	ns := namespace(t, optedIn)
	for _, seconds := range []int64{-1, 0, 14, 15, 3600, 3601} {
		pod := enginePod(ns, fmt.Sprintf("grace-%d", seconds+1), nil)
		pod.Annotations = map[string]string{names.AnnotationGraceSeconds: strconv.FormatInt(seconds, 10)}
		if message := validate.Grace(seconds); message != "" {
			err := api.Create(t.Context(), pod)
			assert.ErrorContains(t, err, message, "%d", seconds)
			assert.ErrorContains(t, err, "metadata.annotations[lastcall.dev/grace-seconds]", "%d", seconds)
			continue
		}
		create(t, pod)
		assert.Equal(t, seconds, *pod.Spec.TerminationGracePeriodSeconds)
		assert.True(t, injected(pod))
	}
}

func TestAGraceOfThePodsOwnOutOfRange(t *testing.T) {
	pod := enginePod(namespace(t, optedIn), "brief", nil)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(14))
	warnings.texts = nil
	create(t, pod)
	assert.False(t, injected(pod))
	assert.Equal(t, names.ReasonGraceOutOfRange, record(t, pod).Reason)
	require.Len(t, warnings.texts, 1)
	assert.Contains(t, warnings.texts[0], "15")
}
