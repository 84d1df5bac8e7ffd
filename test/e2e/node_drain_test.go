package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
)

// What a node does to all of its Pods: a taint with the effect NoExecute, and a
// drain that brings a grace period of its own. Each of two busy engines is out of
// the other's reach.
func TestDeletesOfAWholeNode(t *testing.T) {
	c := loaded(t)
	require.NoError(t, installed())
	node, err := c.Worker(t.Context())
	require.NoError(t, err)
	namespace := optedIn(t, c)
	const grace = 15
	busy := func(name string, toleration corev1.Toleration) *engine {
		pod := vllm(grace)
		pod.Name, pod.Labels["app"] = name, name
		pod.Spec.NodeSelector = kube.On(node)
		pod.Spec.Tolerations = []corev1.Toleration{toleration}
		e := start(t, c, namespace, pod)
		e.fault(t, `{"metrics": "busy"}`)
		return e
	}
	const taint = "lastcall.dev/maintenance"
	drained := busy("drained", corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists})
	tainted := busy("tainted", corev1.Toleration{Key: "lastcall.dev/other", Operator: corev1.TolerationOpExists})

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := c.Kubectl(ctx, "taint", "node", node, taint+"-")
		require.NoError(t, err)
		require.NoError(t, c.Uncordon(ctx, node))
	})
	byTaint := tainted.leaveBy(t, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "taint", "node", node, taint+"=now:NoExecute")
		return err
	})
	byDrain := drained.leaveBy(t, func(ctx context.Context) error {
		// --force is for a Pod without a controller; it is evicted like any other.
		_, err := c.Kubectl(ctx, "drain", node, "--force", "--ignore-daemonsets", "--pod-selector=app=drained", "--grace-period=5", "--timeout=60s")
		return err
	})
	d := byDrain()
	require.True(t, d.failedHook, "the drain's grace period is shorter than the window")
	d.requireSIGTERM(t, 4.9, 9)
	d = byTaint()
	d.requireWindow(t, deadlineFrom(grace), deadlineTo(grace))
	d.requireEnd(t, names.EndDeadline)
}

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
	role := server(3)
	role.TerminationGracePeriodSeconds = new(int64(15))
	role.Labels = map[string]string{"app": "engine"}
	role.NodeSelector = kube.On(node)
	md := modelDeploymentOf(t, c, kubetest.Namespace(t, c, nil), role)
	md.ready(t)
	oneByOne, replicas := md.watch(t, 1), md.uids(t)
	before := alive(t, c, namespace)
	records := stream(t, c, namespace, "engine")

	drained := make(chan error, 1)
	go func() {
		_, err := c.Kubectl(t.Context(), "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=3m",
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
	md.ready(t)
	for name, uid := range md.uids(t) {
		require.NotEqual(t, replicas[name], uid, "%s was to be evicted", name)
	}
	require.Equal(t, 2, oneByOne(), "a drain takes one replica of a role at a time")
	requireNothingCut(t, records())
}
