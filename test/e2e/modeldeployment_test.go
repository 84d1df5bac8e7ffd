package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/load"
)

// deployment is a ModelDeployment in a namespace of its own.
type deployment struct {
	cluster *kube.Cluster
	key     client.ObjectKey
}

// server is one role of vLLM replicas.
func server(replicas int32) v1alpha1.Role {
	return v1alpha1.Role{Name: "server", Replicas: &replicas}
}

// modelDeploymentOf applies a ModelDeployment of these roles. The stand-in engine
// takes the place of the engine's image.
func modelDeploymentOf(t *testing.T, c *kube.Cluster, namespace string, roles ...v1alpha1.Role) *deployment {
	t.Helper()
	md := &v1alpha1.ModelDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "qwen"},
		Spec: v1alpha1.ModelDeploymentSpec{
			Model:  v1alpha1.Model{Name: model},
			Engine: v1alpha1.Engine{Name: v1alpha1.VLLM, Image: bundle.Full.Ref},
			Roles:  roles,
		},
	}
	require.NoError(t, c.Client.Create(t.Context(), md))
	return &deployment{c, client.ObjectKeyFromObject(md)}
}

// ready waits until every replica is Ready and of the present spec.
func (d *deployment) ready(t *testing.T) {
	t.Helper()
	d.waitFor(t, "every replica to be Ready and up to date", func(md *v1alpha1.ModelDeployment) bool {
		return md.Status.Phase == v1alpha1.PhaseReady && reason(md, names.ConditionProgressing) == names.ReasonUpToDate
	})
}

// waitFor waits until the operator has reported on the present spec and the
// condition holds.
func (d *deployment) waitFor(t *testing.T, what string, condition func(*v1alpha1.ModelDeployment) bool) {
	t.Helper()
	var last *v1alpha1.ModelDeployment
	err := d.follow(t.Context(), what, func(md *v1alpha1.ModelDeployment) bool {
		last = md
		return md.Status.ObservedGeneration == md.Generation && condition(md)
	})
	require.NoError(t, err, "it is %+v", last)
}

func reason(md *v1alpha1.ModelDeployment, condition string) string {
	if c := meta.FindStatusCondition(md.Status.Conditions, condition); c != nil {
		return c.Reason
	}
	return ""
}

func (d *deployment) edit(t *testing.T, change func(*v1alpha1.ModelDeploymentSpec)) {
	t.Helper()
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, d.cluster.Client.Get(t.Context(), d.key, md))
	before := md.DeepCopy()
	change(&md.Spec)
	require.NoError(t, d.cluster.Client.Patch(t.Context(), md, client.MergeFrom(before)))
}

func (d *deployment) pods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := d.cluster.Client.List(ctx, &pods, client.InNamespace(d.key.Namespace), client.MatchingLabels{names.LabelInstance: d.key.Name})
	return pods.Items, err
}

// uids are the Pods by name.
func (d *deployment) uids(t *testing.T) map[string]types.UID {
	t.Helper()
	pods, err := d.pods(t.Context())
	require.NoError(t, err)
	all := map[string]types.UID{}
	for _, pod := range pods {
		all[pod.Name] = pod.UID
	}
	return all
}

func (d *deployment) pod(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: d.key.Namespace, Name: name}
}

// events are what `kubectl describe` tells, as REASON: NOTE.
func (d *deployment) events(t *testing.T) (all []string) {
	t.Helper()
	var list eventsv1.EventList
	require.NoError(t, d.cluster.Client.List(t.Context(), &list, client.InNamespace(d.key.Namespace)))
	for _, event := range list.Items {
		if event.Regarding.Kind == v1alpha1.Kind && event.Regarding.Name == d.key.Name {
			all = append(all, event.Reason+": "+event.Note)
		}
	}
	return all
}

// watch follows how many replicas of a role are whole, Ready and staying, until
// stop is called, which returns the fewest there were at any moment.
func (d *deployment) watch(t *testing.T, size int) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := d.cluster.Clientset.CoreV1().Pods(d.key.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: names.LabelInstance + "=" + d.key.Name})
	require.NoError(t, err)
	pods, err := d.pods(ctx)
	require.NoError(t, err)
	up := map[string]bool{}
	for _, pod := range pods {
		up[pod.Name] = kube.Ready(&pod) && pod.DeletionTimestamp == nil
	}
	count := func() int {
		members := map[string]int{}
		for name, ok := range up {
			if ok {
				members[replicaOf(name, size)]++
			}
		}
		whole := 0
		for _, n := range members {
			if n == size {
				whole++
			}
		}
		return whole
	}
	fewest := make(chan int, 1)
	go func() {
		least := count()
		for event := range watcher.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				up[pod.Name] = event.Type != "DELETED" && kube.Ready(pod) && pod.DeletionTimestamp == nil
				least = min(least, count())
			}
		}
		fewest <- least
	}()
	return func() int {
		cancel()
		watcher.Stop()
		return <-fewest
	}
}

func replicaOf(pod string, size int) string {
	if size == 1 {
		return pod
	}
	return pod[:len(pod)-2]
}

func TestModelDeploymentServes(t *testing.T) {
	c := cluster(t)
	d := modelDeploymentOf(t, c, kubetest.Namespace(t, c, nil), server(3))
	d.ready(t)
	pods, err := d.pods(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 3)
	for _, pod := range pods {
		require.Contains(t, pod.Annotations[names.AnnotationStatus], names.OutcomeInjected)
		require.EqualValues(t, 30, *pod.Spec.TerminationGracePeriodSeconds)
		require.NotNil(t, pod.Spec.Containers[0].Lifecycle.PreStop)
	}
	served := map[string]bool{}
	for _, r := range stream(t, c, d.key.Namespace, d.key.Name)() {
		served[r.ServedBy] = true
	}
	require.NotEmpty(t, served)

	t.Log("kubectl get reads well")
	table, err := c.Kubectl(t.Context(), "get", "md", "-n", d.key.Namespace, d.key.Name)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^NAME +PHASE +ROLES +RETIRING +REASON +AGE\nqwen +Ready +3S `, table)
	describe, err := c.Kubectl(t.Context(), "describe", "md", "-n", d.key.Namespace, d.key.Name)
	require.NoError(t, err)
	for _, pod := range pods {
		require.Contains(t, describe, "created Pod "+pod.Name)
	}

	t.Log("more replicas leave the others alone, fewer remove none")
	before := d.uids(t)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Replicas = new(int32(4)) })
	d.ready(t)
	after := d.uids(t)
	require.Len(t, after, 4)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Replicas = new(int32(2)) })
	d.waitFor(t, "the status of two replicas", func(md *v1alpha1.ModelDeployment) bool {
		return md.Status.Phase == v1alpha1.PhaseReady && md.Status.RoleSummary == "4S" && md.Status.Roles[0].Desired == 2
	})
	for name, uid := range before {
		require.Equal(t, uid, after[name], name)
	}
	require.Equal(t, after, d.uids(t))

	t.Log("and all of them go with the ModelDeployment, each through its window")
	endings := map[string]func() (kube.Ending, error){}
	for name := range after {
		endings[name], err = c.WatchEnding(t.Context(), d.pod(name))
		require.NoError(t, err)
	}
	e := adopt(t, c, d.pod("qwen-server-0"))
	answer := e.generate(t, 8*time.Second)
	_, err = c.Kubectl(t.Context(), "delete", "md", "-n", d.key.Namespace, d.key.Name, "--wait=false")
	require.NoError(t, err)
	all(t, endings)
	r := answer()
	require.Equal(t, load.Completed, r.Outcome, r.Error)
	_, err = e.log.Find(t.Context(), names.EndDrained)
	require.NoError(t, err)
	require.NoError(t, until(t.Context(), "the Services to go", func() (bool, error) {
		var services corev1.ServiceList
		err := c.Client.List(t.Context(), &services, client.InNamespace(d.key.Namespace))
		return len(services.Items) == 0, err
	}))
}

func TestRolloutOfAModelDeploymentCutsNoRequest(t *testing.T) {
	c := cluster(t)
	d := modelDeploymentOf(t, c, kubetest.Namespace(t, c, nil), server(3))
	d.ready(t)
	before := d.uids(t)

	t.Log("30 on a grace period that was not set changes nothing")
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].TerminationGracePeriodSeconds = new(int64(30)) })
	d.ready(t)
	require.Equal(t, before, d.uids(t))

	t.Log("45 turns the replicas over one at a time, each with the grace period it came with")
	oneByOne := d.watch(t, 1)
	records := stream(t, c, d.key.Namespace, d.key.Name)
	// Its pauses are longer than the two reads that the hook needs.
	kept := stream(t, c, d.key.Namespace, d.key.Name, "--keep-alive", "--clients=3", "--max-tokens=60", "--think=4s")
	endings := map[string]func() (kube.Ending, error){}
	for name := range before {
		wait, err := c.WatchEnding(t.Context(), d.pod(name))
		require.NoError(t, err)
		endings[name] = wait
	}
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].TerminationGracePeriodSeconds = new(int64(45)) })
	var order []kube.Ending
	for _, ending := range all(t, endings) {
		require.EqualValues(t, 30, *ending.Leaving.DeletionGracePeriodSeconds, ending.Pod.Name)
		order = append(order, ending)
	}
	d.ready(t)
	slices.SortFunc(order, func(a, b kube.Ending) int { return a.Gone.Compare(b.Gone) })
	for i, ending := range order {
		deleted := ending.Leaving.DeletionTimestamp.Add(-30 * time.Second)
		pod := &corev1.Pod{}
		require.NoError(t, c.Client.Get(t.Context(), d.pod(ending.Pod.Name), pod))
		require.EqualValues(t, 45, *pod.Spec.TerminationGracePeriodSeconds)
		t.Logf("replica %d of 3, %s: %.1f s to drain and exit, Ready again %.1f s later", i+1, ending.Pod.Name,
			ending.Gone.Sub(deleted).Seconds(), readySince(pod).Sub(ending.Gone).Seconds())
	}
	require.Equal(t, []string{"qwen-server-2", "qwen-server-1", "qwen-server-0"}, []string{order[0].Pod.Name, order[1].Pod.Name, order[2].Pod.Name})
	require.Equal(t, 2, oneByOne(), "the fewest replicas at any moment")
	requireNothingCut(t, records())
	// A request on a connection that its server has just closed is sent again by every
	// client library: nobody has seen an answer begin. One that comes between the hook's
	// last read and SIGTERM is cut as soon as it began; none that a read could have seen
	// is.
	for _, r := range kept() {
		require.False(t, r.Outcome == load.Cut && r.End.Sub(r.Start) > 1500*time.Millisecond, "%+v", r)
	}
	d.told(t, names.EventRolloutCompleted)
}

// all waits for the ends of Pods, side by side, since each is timed when it is
// seen.
func all(t *testing.T, endings map[string]func() (kube.Ending, error)) []kube.Ending {
	t.Helper()
	seen := make([]kube.Ending, len(endings))
	var group errgroup.Group
	i := 0
	for _, wait := range endings {
		at := i
		i++
		group.Go(func() (err error) {
			seen[at], err = wait()
			return err
		})
	}
	require.NoError(t, group.Wait())
	return seen
}

func readySince(pod *corev1.Pod) (at metav1.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			at = c.LastTransitionTime
		}
	}
	return at
}
