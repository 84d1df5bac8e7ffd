package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
)

// A node drain cordons the node, so it runs before the tests that run in
// parallel. With one node, the node takes the replacements itself as soon as the
// evictions are under way, as another node would.
func TestNodeDrainCutsNoRequest(t *testing.T) {
	c := loaded(t)
	require.NoError(t, installed())
	namespace := optedIn(t, c)
	node, err := c.Worker(t.Context())
	require.NoError(t, err)
	pod := vllm(30)
	pod.Spec.NodeSelector = kube.On(node)
	deploy(t, c, namespace, pod, 2)
	maxUnavailable := intstr.FromInt32(1)
	require.NoError(t, c.Client.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "engine"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &maxUnavailable,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "engine"}},
		},
	}))
	before := alive(t, c, namespace)
	records := stream(t, c, namespace)

	drained := make(chan error, 1)
	go func() {
		_, err := c.Kubectl(t.Context(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=100s",
			"--pod-selector=app=engine")
		drained <- err
	}()
	for done := false; !done; {
		select {
		case err := <-drained:
			require.NoError(t, err)
			done = true
		case <-time.After(500 * time.Millisecond):
			require.NoError(t, c.Uncordon(t.Context(), node))
		}
	}
	require.NoError(t, c.Uncordon(t.Context(), node))
	require.NoError(t, ready(t.Context(), c, namespace, 2))
	require.Empty(t, survivors(t, c, namespace, before), "every replica was to be evicted")
	requireNothingCut(t, records())
}
