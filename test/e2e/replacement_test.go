package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/load"
)

// running is a ModelDeployment of one role whose replicas are up, in a namespace
// of its own.
func running(t *testing.T, c *kube.Cluster, role v1alpha1.Role) *deployment {
	t.Helper()
	if role.TerminationGracePeriodSeconds == nil {
		role.TerminationGracePeriodSeconds = new(int64(15))
	}
	d := modelDeploymentOf(t, c, kubetest.Namespace(t, c, nil), role)
	d.ready(t)
	return d
}

// replacement waits until another Pod has the name, and is Ready.
func (d *deployment) replacement(t *testing.T, old *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod, err := d.cluster.WaitPod(t.Context(), client.ObjectKeyFromObject(old), func(p *corev1.Pod) bool {
		return p.UID != old.UID && kube.Ready(p)
	})
	require.NoError(t, err)
	return pod
}

func (d *deployment) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, d.cluster.Client.Get(t.Context(), d.pod(name), pod))
	return pod
}

func TestDeletedReplicaIsMadeAgainUnderItsOrdinal(t *testing.T) {
	c := cluster(t)
	d := running(t, c, server(2))
	other, old := d.get(t, "qwen-server-0"), d.get(t, "qwen-server-1")
	log, err := c.Follow(t.Context(), d.pod(old.Name), names.MainContainer)
	require.NoError(t, err)

	_, ending, err := c.Delete(t.Context(), d.pod(old.Name))
	require.NoError(t, err)
	_, err = log.Find(t.Context(), names.EndDrained)
	require.NoError(t, err)
	pod := d.replacement(t, old)
	require.WithinRange(t, pod.CreationTimestamp.Time, ending.Gone.Add(-time.Second), ending.Gone.Add(10*time.Second))
	d.ready(t)
	require.Equal(t, other.UID, d.get(t, other.Name).UID)
	d.told(t, names.ReasonReplacementInProgress)
}

func TestReplicaOfTwoPodsIsReplacedAsOne(t *testing.T) {
	c := cluster(t)
	role := server(1)
	role.Size = new(int32(2))
	d := running(t, c, role)

	t.Log("the members find their leader by name")
	address, err := c.Exec(t.Context(), d.pod("qwen-server-0-1"), names.MainContainer, "sh", "-c", "echo $"+names.EnvLeaderAddress)
	require.NoError(t, err)
	require.Equal(t, "qwen-server-0-0.qwen-server-group."+d.key.Namespace+".svc", strings.TrimSpace(address))

	t.Log("a rollout lets the leader finish before it takes its worker")
	leader, worker := d.get(t, "qwen-server-0-0"), d.get(t, "qwen-server-0-1")
	leaderGone, err := c.WatchEnding(t.Context(), client.ObjectKeyFromObject(leader))
	require.NoError(t, err)
	workerGone, err := c.WatchEnding(t.Context(), client.ObjectKeyFromObject(worker))
	require.NoError(t, err)
	answer := adopt(t, c, client.ObjectKeyFromObject(leader)).generate(t, 8*time.Second)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].TerminationGracePeriodSeconds = new(int64(16)) })
	ended := all(t, map[string]func() (kube.Ending, error){"leader": leaderGone, "worker": workerGone})
	slices.SortFunc(ended, func(a, b kube.Ending) int { return a.Gone.Compare(b.Gone) })
	require.Equal(t, leader.Name, ended[0].Pod.Name)
	require.False(t, ended[1].Leaving.DeletionTimestamp.Add(-15*time.Second).Before(ended[0].Gone.Add(-2*time.Second)), "the worker was deleted while its leader drained")
	r := answer()
	require.Equal(t, load.Completed, r.Outcome, r.Error)
	d.ready(t)

	leader, worker = d.get(t, "qwen-server-0-0"), d.get(t, "qwen-server-0-1")
	for _, deleted := range []*corev1.Pod{worker, leader} {
		ended := map[string]func() (kube.Ending, error){}
		for _, pod := range []*corev1.Pod{leader, worker} {
			ended[pod.Name], err = c.WatchEnding(t.Context(), client.ObjectKeyFromObject(pod))
			require.NoError(t, err)
		}
		require.NoError(t, c.Client.Delete(t.Context(), deleted.DeepCopy()))
		last := time.Time{}
		for _, ending := range all(t, ended) {
			if ending.Gone.After(last) {
				last = ending.Gone
			}
		}
		leader, worker = d.replacement(t, leader), d.replacement(t, worker)
		for _, pod := range []*corev1.Pod{leader, worker} {
			require.False(t, pod.CreationTimestamp.Time.Before(last.Truncate(time.Second)), "%s came before the whole old replica was gone", pod.Name)
		}
		d.ready(t)
	}
}

// A split deployment of SGLang, its decode replica behind a proxy. The stand-in
// engine is the proxy too.
func TestSplitRolesAndAProxy(t *testing.T) {
	c := cluster(t)
	grace := int64(45)
	md := &v1alpha1.ModelDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace(t, c, nil), Name: "qwen"},
		Spec: v1alpha1.ModelDeploymentSpec{
			Model:  v1alpha1.Model{Name: model},
			Engine: v1alpha1.Engine{Name: v1alpha1.SGLang, Image: bundle.Full.Ref},
			Roles: []v1alpha1.Role{
				{Name: "prefill", Kind: v1alpha1.Prefill, TerminationGracePeriodSeconds: &grace},
				{Name: "decode", Kind: v1alpha1.Decode, TerminationGracePeriodSeconds: &grace, Proxy: &v1alpha1.Proxy{
					Image: bundle.Full.Ref, Port: 8000, Args: []string{model, "--port", "8000", "--control-port", "9902"},
				}},
			},
		},
	}
	require.NoError(t, c.Client.Create(t.Context(), md))
	d := &deployment{c, client.ObjectKeyFromObject(md)}
	d.ready(t)
	d.waitFor(t, "one of each", func(md *v1alpha1.ModelDeployment) bool { return md.Status.RoleSummary == "1P1D" })
	for name, port := range map[string]int32{"qwen-prefill-0": 30000, "qwen-decode-0": 30000} {
		pod := d.get(t, name)
		require.Contains(t, pod.Annotations[names.AnnotationStatus], fmt.Sprintf(`"metricsURL":"http://127.0.0.1:%d/metrics"`, port))
		require.Contains(t, pod.Annotations[names.AnnotationStatus], names.OutcomeInjected)
	}
	require.NoError(t, until(t.Context(), "clients to be answered", func() (bool, error) {
		records := stream(t, c, md.Namespace, md.Name)()
		for _, r := range records {
			require.Equal(t, load.Completed, r.Outcome, r.Error)
			require.Equal(t, "qwen-decode-0", r.ServedBy, "a client is not sent to a replica that prefills")
		}
		return len(records) > 0, nil
	}))
	_, ending, err := c.Delete(t.Context(), d.pod("qwen-decode-0"))
	require.NoError(t, err)
	require.EqualValues(t, 0, exitCode(ending.Pod, names.MainContainer), "45 s are enough to leave cleanly")
}

func TestRolloutStopsAtAnImageThatCannotStart(t *testing.T) {
	c := cluster(t)
	d := running(t, c, server(3))
	before := d.uids(t)

	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Image = "lastcall.dev/no-such-image:dev" })
	d.waitFor(t, "the rollout to stop", func(md *v1alpha1.ModelDeployment) bool {
		return reason(md, names.ConditionProgressing) == names.ReasonReplicaFailing
	})
	d.waitFor(t, "the other two to serve on", func(md *v1alpha1.ModelDeployment) bool {
		return md.Status.Phase == v1alpha1.PhaseDegraded && md.Status.RoleSummary == "2S"
	})
	d.told(t, "no-such-image")
	after := d.uids(t)
	require.Equal(t, before["qwen-server-0"], after["qwen-server-0"])
	require.Equal(t, before["qwen-server-1"], after["qwen-server-1"])

	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Image = "" })
	d.ready(t)
	require.Equal(t, before["qwen-server-0"], d.uids(t)["qwen-server-0"], "what has the old spec, which is the present one again, stays")
}

// A Pod that its kubelet gives up, as under node pressure, is Failed, and keeps its
// name until somebody deletes it. Here it is given up for a deadline, the one cause
// that a test can bring about on any node.
func TestFailedPodDoesNotKeepItsSlot(t *testing.T) {
	c := cluster(t)
	d := running(t, c, server(1))
	old := d.get(t, "qwen-server-0")
	given, err := c.WatchEnding(t.Context(), d.pod(old.Name))
	require.NoError(t, err)
	pod := old.DeepCopy()
	pod.Spec.ActiveDeadlineSeconds = new(int64(1))
	require.NoError(t, c.Client.Patch(t.Context(), pod, client.MergeFrom(old)))

	d.replacement(t, old)
	ending, err := given()
	require.NoError(t, err)
	require.Equal(t, corev1.PodFailed, ending.Pod.Status.Phase)
	d.told(t, names.ReplacedPodEnded)
}

func TestForeignObjectsKeepTheirNames(t *testing.T) {
	c := cluster(t)
	namespace := kubetest.Namespace(t, c, nil)
	foreign := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "qwen-server-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: kube.BusyboxImage, Command: []string{"sleep", "600"}}}},
	}
	require.NoError(t, c.Client.Create(t.Context(), foreign))
	d := modelDeploymentOf(t, c, namespace, server(2))
	d.waitFor(t, "the name to be found taken", func(md *v1alpha1.ModelDeployment) bool {
		return reason(md, names.ConditionProgressing) == names.ReasonNameTaken && md.Status.RoleSummary == "1S"
	})
	require.Equal(t, foreign.UID, d.get(t, "qwen-server-0").UID)
	require.Nil(t, d.get(t, "qwen-server-0").DeletionTimestamp)

	require.NoError(t, c.Client.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)))
	d.ready(t)
}

// The probe's own grace period bounds the restart; the Pod's is an hour.
func TestHungReplicaIsRestartedSoon(t *testing.T) {
	c := cluster(t)
	role := server(1)
	role.TerminationGracePeriodSeconds = new(int64(3600))
	d := running(t, c, role)
	e := adopt(t, c, d.pod("qwen-server-0"))
	e.fault(t, `{"metrics": "busy", "health": "503"}`)
	var killed time.Time
	require.NoError(t, until(t.Context(), "the liveness probe to fail", func() (bool, error) {
		events, err := c.Events(t.Context(), e.pod)
		for _, event := range events {
			if event.Reason == "Killing" {
				killed = event.FirstTimestamp.Time
			}
		}
		return !killed.IsZero(), err
	}))
	pod, err := c.WaitPod(t.Context(), e.pod, func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount == 1 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	require.NoError(t, err)
	took := pod.Status.ContainerStatuses[0].State.Running.StartedAt.Sub(killed)
	t.Logf("a new engine %s after the kubelet gave the hung one up", took)
	require.Less(t, took, 25*time.Second)
	require.Equal(t, pod.UID, d.get(t, pod.Name).UID, "the restart is the kubelet's: the Pod stays")
}

// An API server that cannot ask the webhook creates no Pod of the operator's.
func TestNoReplicaIsMadeWithoutTheWebhook(t *testing.T) {
	c := loaded(t)
	require.NoError(t, installed())
	d := running(t, c, server(1))
	old := d.get(t, "qwen-server-0")

	restore := unreachable(t, c)
	_, _, err := c.Delete(t.Context(), d.pod(old.Name))
	require.NoError(t, err)
	d.waitFor(t, "the create to fail", func(md *v1alpha1.ModelDeployment) bool {
		return reason(md, names.ConditionProgressing) == names.ReasonCreateFailed
	})
	d.told(t, "failed calling webhook")
	require.Empty(t, d.uids(t), "no Pod without its hook")

	restore()
	require.Contains(t, d.replacement(t, old).Annotations[names.AnnotationStatus], names.OutcomeInjected)
	d.ready(t)
}

// unreachable lets the API server look for the webhook of the operator's Pods
// where nobody is, and returns what undoes that.
func unreachable(t *testing.T, c *kube.Cluster) (restore func()) {
	t.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	set := func(ctx context.Context, service string) {
		require.NoError(t, c.Client.Get(ctx, client.ObjectKey{Name: webhookName}, configuration))
		before := configuration.DeepCopy()
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].ClientConfig.Service.Name = service
		}
		require.NoError(t, c.Client.Patch(ctx, configuration, client.MergeFrom(before)))
	}
	set(t.Context(), "nobody")
	restored := false
	restore = func() {
		if !restored {
			restored = true
			set(context.WithoutCancel(t.Context()), webhookName)
		}
	}
	t.Cleanup(restore)
	return restore
}
