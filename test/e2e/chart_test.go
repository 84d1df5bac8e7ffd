package e2e

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/install"
)

const modelDeployment = `
apiVersion: lastcall.dev/v1alpha1
kind: ModelDeployment
metadata: {name: kept, finalizers: [lastcall.dev/retirement]}
spec:
  model: {name: m}
  engine: {name: vLLM, image: "vllm/vllm-openai:v0.29.0"}
  roles: [{name: server}]
`

// What a user does with helm, here in a namespace that has been there and holds
// other things. The rest of the suite uses lastcall in a namespace of its own.
func TestInstallUpgradeUninstall(t *testing.T) {
	require.False(t, inUse, "this test takes lastcall away, so it runs before those that use it: in the order of the files")
	c := loaded(t)
	if !c.Own() {
		t.Skip("it installs into the namespace default, and the cluster of KUBECONFIG may have use for that")
	}
	const namespace = "default"
	t.Cleanup(func() {
		if t.Failed() {
			_ = install.Uninstall(context.Background(), c, namespace)
		}
		// Helm would not take over the CRD of another release.
		assert.NoError(t, install.RemoveCRD(context.Background(), c))
	})
	ctx := t.Context()

	require.NoError(t, install.Chart(ctx, c, namespace))
	pod := vllm(30)
	pod.Namespace, pod.Labels[names.LabelDrain] = namespace, names.DrainEnabled
	require.NoError(t, c.Client.Create(ctx, pod, client.DryRunAll))
	assert.Contains(t, pod.Annotations[names.AnnotationStatus], names.OutcomeInjected, "helm --wait returned, so an admission works")
	require.NoError(t, c.Apply(ctx, namespace, modelDeployment))

	before := certificates(t, c, namespace)
	pods := ownPods(t, c, namespace)
	require.Len(t, pods, 6, "two each of the webhook, the operator and the retirer")
	require.NoError(t, install.Chart(ctx, c, namespace, "webhook.failurePolicy=Fail"))
	assert.Equal(t, before, certificates(t, c, namespace), "an upgrade leaves the certificate and the CA bundles alone")
	assert.Equal(t, pods, ownPods(t, c, namespace), "and replaces no Pod")

	requireRolloutRefusesNobody(t, c, namespace)

	require.NoError(t, install.Uninstall(ctx, c, namespace))
	requireNothingLeft(t, c)
	_, err := c.Kubectl(ctx, "-n", namespace, "delete", "modeldeployment", "kept", "--timeout=10s")
	assert.NoError(t, err, "the ModelDeployment was kept, its finalizer was not, and nothing keeps it from going")
}

// certificates is all that is made at run time: the Secret and the CA bundles.
func certificates(t *testing.T, c *kube.Cluster, namespace string) (all []string) {
	t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: install.Release + "-webhook"}
	var secret corev1.Secret
	require.NoError(t, c.Client.Get(t.Context(), key, &secret))
	require.NotEmpty(t, secret.Data)
	all = append(all, secret.ResourceVersion)
	key.Namespace = ""
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, c.Client.Get(t.Context(), key, &mutating))
	for _, webhook := range mutating.Webhooks {
		require.NotEmpty(t, webhook.ClientConfig.CABundle)
		all = append(all, string(webhook.ClientConfig.CABundle))
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, c.Client.Get(t.Context(), key, &validating))
	return append(all, string(validating.Webhooks[0].ClientConfig.CABundle))
}

func ownPods(t *testing.T, c *kube.Cluster, namespace string) (uids []string) {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, c.Client.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{names.LabelPartOf: names.PartOf}))
	for _, pod := range pods.Items {
		uids = append(uids, string(pod.UID))
	}
	return uids
}

// requireRolloutRefusesNobody replaces each replica of the webhook while Pods are
// created that may not go without it.
func requireRolloutRefusesNobody(t *testing.T, c *kube.Cluster, namespace string) {
	t.Helper()
	rolled := make(chan error, 1)
	go func() {
		_, err := c.Kubectl(t.Context(), "-n", namespace, "rollout", "restart", "deployment", install.Release+"-webhook")
		if err == nil {
			_, err = c.Kubectl(t.Context(), "-n", namespace, "rollout", "status", "deployment", install.Release+"-webhook", "--timeout=1m")
		}
		if err == nil { // the last of the old replicas still answers for a while
			err = until(t.Context(), "the old replicas to be gone", func() (bool, error) {
				var pods corev1.PodList
				err := c.Client.List(t.Context(), &pods, client.InNamespace(namespace),
					client.MatchingLabels{names.LabelPartOf: names.PartOf, names.LabelComponent: "webhook"})
				return len(pods.Items) == 2, err
			})
		}
		rolled <- err
	}()
	for created := 0; ; created++ {
		select {
		case err := <-rolled:
			require.NoError(t, err)
			assert.Greater(t, created, 100)
			return
		default:
		}
		pod := vllm(30)
		pod.Namespace, pod.Labels[names.LabelDrain] = "default", names.DrainEnabled
		require.NoError(t, c.Client.Create(t.Context(), pod, client.DryRunAll), "Pod %d", created)
	}
}

// requireNothingLeft looks through every kind of object for those of the chart,
// and those that the cluster derived from them. What the operator made for a
// ModelDeployment stays with it.
func requireNothingLeft(t *testing.T, c *kube.Cluster) {
	t.Helper()
	kinds, err := c.Kubectl(t.Context(), "api-resources", "--verbs=list", "-o", "name")
	require.NoError(t, err)
	get := []string{"get", strings.Join(strings.Fields(kinds), ","), "--all-namespaces", "-o", "name", "--ignore-not-found"}
	crd := "customresourcedefinition.apiextensions.k8s.io/modeldeployments." + names.Group

	var left string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		labelled, err := c.Kubectl(t.Context(), append(get, "--selector", names.LabelPartOf+"="+names.PartOf)...)
		require.NoError(t, err)
		releases, err := c.Kubectl(t.Context(), append(get, "--selector", "owner=helm,name="+install.Release)...)
		require.NoError(t, err)
		left = deprecations.ReplaceAllString(labelled+releases, "")
		if strings.TrimSpace(left) == crd {
			return
		}
	}
	assert.Equal(t, crd, left, "more than the CRD is left")
}

// deprecations is what the API server says about some of its own kinds.
var deprecations = regexp.MustCompile(`(?m)^Warning: .*\n`)
