package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/load/clients"
)

// The tests of this file take replicas away from behind a Service whose clients
// stream answers of 0.5 to 8 s and open a connection for each.

func TestRolloutCutsNoRequest(t *testing.T) {
	c := cluster(t)
	namespace := optedIn(t, c)
	deploy(t, c, namespace, vllm(30), 3)
	before := alive(t, c, namespace)
	records := stream(t, c, namespace, "engine")

	_, err := c.Kubectl(t.Context(), "rollout", "restart", "-n", namespace, "deployment/engine")
	require.NoError(t, err)
	_, err = c.Kubectl(t.Context(), "rollout", "status", "-n", namespace, "deployment/engine", "--timeout=110s")
	require.NoError(t, err)
	require.NoError(t, gone(t.Context(), c, namespace, before))
	requireNothingCut(t, records())
}

// Two replicas hold the two units of a resource that exists for this test alone;
// a Pod of a higher priority wants one.
func TestPreemptionCutsNoRequest(t *testing.T) {
	c := cluster(t)
	namespace := optedIn(t, c)
	const slot = corev1.ResourceName("lastcall.dev/preemption-slot")
	offer(t, c, slot, 2)
	low, high := priorityClass(t, c, namespace+"-low", 1000), priorityClass(t, c, namespace+"-high", 2000)
	slots := corev1.ResourceRequirements{Limits: corev1.ResourceList{slot: resource.MustParse("1")}}

	pod := vllm(30)
	pod.Spec.PriorityClassName = low
	pod.Spec.Containers[0].Resources = slots
	deploy(t, c, namespace, pod, 2)
	before := alive(t, c, namespace)
	records := stream(t, c, namespace, "engine")

	urgent := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "urgent"},
		Spec: corev1.PodSpec{
			PriorityClassName: high,
			Containers:        []corev1.Container{{Name: "urgent", Image: kube.BusyboxImage, Command: []string{"sleep", "600"}, Resources: slots}},
		},
	}
	require.NoError(t, c.Client.Create(t.Context(), urgent))
	_, err := c.WaitPod(t.Context(), client.ObjectKeyFromObject(urgent), kube.Ready)
	require.NoError(t, err)
	require.Len(t, survivors(t, c, namespace, before), 1, "one replica was to be preempted")
	requireNothingCut(t, records())
}

// deploy runs replicas of the engine behind a Service and waits for them.
func deploy(t *testing.T, c *kube.Cluster, namespace string, pod *corev1.Pod, replicas int32) {
	t.Helper()
	zero := intstr.FromInt32(0)
	selector := map[string]string{"app": "engine"}
	require.NoError(t, c.Client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "engine"},
		Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}}},
	}))
	require.NoError(t, c.Client.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "engine"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &zero}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: pod.Spec},
		},
	}))
	require.NoError(t, ready(t.Context(), c, namespace, replicas))
}

// stream starts clients of a Service. The function it returns stops them and returns
// every request's record.
func stream(t *testing.T, c *kube.Cluster, namespace, service string, flags ...string) func() []load.Request {
	t.Helper()
	stop, err := clients.Start(t.Context(), c, client.ObjectKey{Namespace: namespace, Name: service},
		append([]string{"--clients=6", "--min-tokens=10", "--max-tokens=160", fmt.Sprintf("--tokens-per-second=%d", rate)}, flags...)...)
	require.NoError(t, err)
	return func() []load.Request {
		records, err := stop()
		require.NoError(t, err)
		return established(records)
	}
}

// established leaves out what was refused before anybody was answered: a node takes a
// moment to learn of a Service.
func established(records []load.Request) []load.Request {
	var first time.Time
	for _, r := range records {
		if r.Outcome == load.Completed && (first.IsZero() || r.Start.Before(first)) {
			first = r.Start
		}
	}
	return slices.DeleteFunc(records, func(r load.Request) bool {
		return r.Outcome == load.Refused && (first.IsZero() || r.Start.Before(first))
	})
}

func requireNothingCut(t *testing.T, records []load.Request) {
	t.Helper()
	count := map[load.Outcome]int{}
	for _, r := range records {
		count[r.Outcome]++
		if r.Outcome != load.Completed {
			t.Errorf("a request to %s, from %s to %s: %s after %d tokens: %s", r.ServedBy,
				r.Start.Format("15:04:05.000"), r.End.Format("15:04:05.000"), r.Outcome, r.Tokens, r.Error)
		}
	}
	t.Logf("%d requests: %v", len(records), count)
	require.GreaterOrEqual(t, count[load.Completed], 10, "too few requests to say anything")
}

func ready(ctx context.Context, c *kube.Cluster, namespace string, replicas int32) error {
	return until(ctx, "the replicas to be ready", func() (bool, error) {
		var deployment appsv1.Deployment
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "engine"}, &deployment)
		return deployment.Status.ReadyReplicas == replicas && deployment.Status.Replicas == replicas, err
	})
}

// gone waits until no Pod of these names is left.
func gone(ctx context.Context, c *kube.Cluster, namespace string, pods []string) error {
	return until(ctx, "the old replicas to be gone", func() (bool, error) {
		list, err := engines(ctx, c, namespace)
		return !slices.ContainsFunc(list, func(p corev1.Pod) bool { return slices.Contains(pods, p.Name) }), err
	})
}

func engines(ctx context.Context, c *kube.Cluster, namespace string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": "engine"})
	return list.Items, err
}

// alive are the names of the engine Pods that are not being deleted.
func alive(t *testing.T, c *kube.Cluster, namespace string) []string {
	t.Helper()
	list, err := engines(t.Context(), c, namespace)
	require.NoError(t, err)
	var all []string
	for _, pod := range list {
		if pod.DeletionTimestamp == nil {
			all = append(all, pod.Name)
		}
	}
	return all
}

// survivors are those of the names whose Pods are not being deleted.
func survivors(t *testing.T, c *kube.Cluster, namespace string, before []string) []string {
	t.Helper()
	return slices.DeleteFunc(alive(t, c, namespace), func(name string) bool { return !slices.Contains(before, name) })
}

// offer gives one node some units of an extended resource.
func offer(t *testing.T, c *kube.Cluster, name corev1.ResourceName, units int) {
	t.Helper()
	node, err := c.Worker(t.Context())
	require.NoError(t, err)
	patch := func(ctx context.Context, value string) error {
		body := fmt.Appendf(nil, `{"status":{"capacity":{%q:%s}}}`, name, value)
		_, err := c.Clientset.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		return err
	}
	require.NoError(t, patch(t.Context(), fmt.Sprintf("%q", fmt.Sprint(units))))
	t.Cleanup(func() {
		if err := patch(context.WithoutCancel(t.Context()), "null"); err != nil {
			t.Errorf("taking %s back: %v", name, err)
		}
	})
}

func priorityClass(t *testing.T, c *kube.Cluster, name string, value int32) string {
	t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	require.NoError(t, c.Client.Create(t.Context(), class))
	t.Cleanup(func() {
		if err := c.Client.Delete(context.WithoutCancel(t.Context()), class); err != nil {
			t.Errorf("deleting PriorityClass %s: %v", name, err)
		}
	})
	return name
}
