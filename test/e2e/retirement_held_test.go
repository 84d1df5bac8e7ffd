package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
)

// What holds a replica while it is read, each shown in status, event and explain,
// and gone when its cause is: then the replica is taken away.
func TestReasonsToHold(t *testing.T) {
	for reason, fault := range map[string]string{
		names.HeldServingRequests: `{"metrics": "busy"}`,
		names.ReadGaugesMissing:   `{"metrics": "missing-gauges"}`,
		names.HeldReadFailed:      `{"metrics": "404"}`,
		names.HeldReadTimedOut:    `{"metrics": "hang"}`,
		names.ReadNotMetrics:      `{"metrics": "garbage"}`,
		names.HeldReadIncomplete:  `{"metrics": "short-body"}`,
		names.ReadTooLarge:        `{"metrics": "huge"}`,
	} {
		t.Run(reason, func(t *testing.T) {
			c := cluster(t)
			d := observed(t, c, server(1))
			e := d.engine(t, "qwen-server-0")
			e.fault(t, fault)
			d.scale(t, 0)
			d.target(t, "server", 0, v1alpha1.StateDraining, reason)
			d.told(t, reason, "qwen-server-0")
			require.Contains(t, d.command(t, "explain", "qwen"), reason)
			e.fault(t, `{"metrics": ""}`)
			d.ended(t, v1alpha1.EndCompleted)
			require.Empty(t, d.uids(t))
		})
	}
}

func TestRestartedEngineIsHeld(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(1))
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
		s.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(30)), TotalSeconds: new(int32(60))}
	})
	e := d.engine(t, "qwen-server-0")
	e.fault(t, `{"metrics": "busy"}`)
	d.scale(t, 0)
	held := d.target(t, "server", 0, v1alpha1.StateDraining, names.HeldServingRequests)
	e.crash(t)
	d.target(t, "server", 0, v1alpha1.StateDraining, names.HeldContainerRestarted)
	d.told(t, names.HeldContainerRestarted, "qwen-server-0")
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldContainerRestarted)
	aborted := d.target(t, "server", 0, v1alpha1.StateAborted, names.HeldContainerRestarted)
	require.Equal(t, held.Members, aborted.Members, "another run is never bound by itself")
	d.serves(t, "qwen-server-0")
	d.command(t, "retry", "qwen")
	d.ended(t, v1alpha1.EndCompleted)
}

func TestTakenOverReplicaIsHeld(t *testing.T) {
	c := cluster(t)
	role := server(1)
	role.Command = []string{"vllm", "serve", model, "--port", "8000"}
	d := observed(t, c, role)
	d.scale(t, 0)
	d.target(t, "server", 0, v1alpha1.StateWithdrawing, names.HeldCommandTakenOver)
	d.told(t, names.HeldCommandTakenOver, "qwen-server-0")
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldCommandTakenOver)
	d.target(t, "server", 0, v1alpha1.StateAborted, names.HeldCommandTakenOver)
	d.serves(t, "qwen-server-0")

	t.Log("a deletion deletes it at once")
	started := time.Now()
	_, err := c.Kubectl(t.Context(), "-n", d.key.Namespace, "delete", "md", "qwen", "--timeout=60s")
	require.NoError(t, err)
	require.Less(t, time.Since(started), 40*time.Second)
}

// Of an engine that another version of lastcall admitted nothing is known here.
func TestEngineWithoutAGaugeListIsRefused(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(1))
	pod := d.get(t, "qwen-server-0")
	record := strings.Replace(pod.Annotations[names.AnnotationStatus], `"engine":"vllm"`, `"engine":"tgi"`, 1)
	require.NotEqual(t, record, pod.Annotations[names.AnnotationStatus])
	before := pod.DeepCopy()
	pod.Annotations[names.AnnotationStatus] = record
	require.NoError(t, c.Client.Patch(t.Context(), pod, client.MergeFrom(before)))
	d.scale(t, 0)
	d.target(t, "server", 0, v1alpha1.StateAborted, names.HeldNoGaugeList)
	d.told(t, names.EventRetirementAborted, "qwen-server-0")
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldNoGaugeList)
	d.serves(t, "qwen-server-0")
}

// Somebody else deletes a replica while it is held: that is its end, and what comes
// after it is none of ours.
func TestReplacedMember(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(2))
	e := d.engine(t, "qwen-server-1")
	e.fault(t, `{"metrics": "busy"}`)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	require.NoError(t, c.Client.Delete(t.Context(), d.get(t, "qwen-server-1"), client.GracePeriodSeconds(0)))
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, names.RetireMemberReplaced, last.Reason)
	d.told(t, names.EventRetirementCompleted, "qwen-server-1 is gone: "+names.RetireMemberReplaced)
	require.Len(t, d.uids(t), 1)
}

// A replica of two Pods is read through its leader and goes as one.
func TestReplicaOfTwoPodsIsRetired(t *testing.T) {
	c := cluster(t)
	role := server(2)
	role.Size = new(int32(2))
	d := observed(t, c, role)
	endings := map[string]func() (kube.Ending, error){}
	for _, name := range []string{"qwen-server-1-0", "qwen-server-1-1"} {
		var err error
		endings[name], err = c.WatchEnding(t.Context(), d.pod(name))
		require.NoError(t, err)
	}
	leader := d.engine(t, "qwen-server-1-0")
	leader.fault(t, `{"metrics": "busy"}`)
	d.scale(t, 1)
	held := d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	require.Len(t, held.Members, 2)
	for _, member := range held.Members {
		require.Equal(t, member.Name == "qwen-server-1-0", member.Answering)
		require.Equal(t, names.Withdrawn, d.get(t, member.Name).Labels[names.LabelServing])
	}
	leader.fault(t, `{"metrics": ""}`)
	all(t, endings)
	d.ended(t, v1alpha1.EndCompleted)
	require.Len(t, d.uids(t), 2)
}

func TestReplicaWithoutOneLeaderIsHeld(t *testing.T) {
	for what, index := range map[string]map[string]string{
		"a leader index twice": {"qwen-server-1-1": "0"},
		"no leader index":      {"qwen-server-1-0": "1"},
	} {
		t.Run(what, func(t *testing.T) {
			c := cluster(t)
			role := server(2)
			role.Size = new(int32(2))
			d := observed(t, c, role)
			before := d.uids(t)
			for name, member := range index {
				pod := d.get(t, name)
				old := pod.DeepCopy()
				pod.Labels[names.LabelMember] = member
				require.NoError(t, c.Client.Patch(t.Context(), pod, client.MergeFrom(old)))
			}
			d.scale(t, 1)
			d.target(t, "server", 1, v1alpha1.StateWithdrawing, names.HeldAnsweringMemberUnknown)
			require.Contains(t, d.command(t, "explain", "qwen"), names.HeldAnsweringMemberUnknown)
			d.told(t, names.HeldAnsweringMemberUnknown, "qwen-server-1")
			d.target(t, "server", 1, v1alpha1.StateAborted, names.HeldAnsweringMemberUnknown)
			require.Equal(t, before, d.uids(t))
		})
	}
}

// SGLang writes its gauges every 40 decode steps, so a request has begun for a while
// before they show it.
func TestBlindWindowOfSGLang(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{
		Engine:     v1alpha1.Engine{Name: v1alpha1.SGLang},
		Withdrawal: v1alpha1.Withdrawal{Direct: v1alpha1.DirectConnections},
		Roles:      []v1alpha1.Role{server(2)},
	})
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].TerminationGracePeriodSeconds = new(int64(30)) })
	d.ready(t)
	e := d.engine(t, "qwen-server-1")
	answer := e.generate(t, 40*time.Second)
	// Its gauges say 0 as long as they like; the request is there.
	e.fault(t, `{"metrics": "stale"}`)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateWithdrawing, names.HeldConnectionsOpen)
	d.target(t, "server", 1, v1alpha1.StateAborted, names.HeldConnectionsOpen)
	r := answer()
	require.Equal(t, load.Completed, r.Outcome, r.Error)
	e.fault(t, `{"metrics": ""}`)

	t.Log("nor is it where only the gauges are looked at: idle is idle for 31 s")
	_, err := c.Kubectl(t.Context(), "-n", d.key.Namespace, "delete", "md", "qwen", "--wait=false")
	require.NoError(t, err)
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldProvingIdle)
	answer = e.generate(t, 15*time.Second)
	deleting := d.target(t, "server", 1, v1alpha1.StateDeleting, names.RetireIdle)
	r = answer()
	require.Equal(t, load.Completed, r.Outcome, r.Error)
	require.Greater(t, deleting.PhaseStartedAt.Sub(r.End), 25*time.Second, "idle for 31 s, but for what the gauges say too late")
}

// What never ran has nothing to drain, and what cannot start must not stay for ever.
func TestReplicasThatDoNotRun(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(1)}})
	before := d.uids(t)
	for name, change := range map[string]func(*v1alpha1.Role){
		"pending": func(r *v1alpha1.Role) { r.NodeSelector = map[string]string{"no": "such"} },
		"pulling": func(r *v1alpha1.Role) { r.Image = "lastcall.invalid/none:1" },
		"looping": func(r *v1alpha1.Role) { r.Command = []string{"false"} },
	} {
		role := server(1)
		role.Name, role.TerminationGracePeriodSeconds = name, new(int64(15))
		change(&role)
		d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles = append(s.Roles, role) })
		require.NoError(t, until(t.Context(), "the replica that is "+name, func() (bool, error) {
			_, there := d.uids(t)["qwen-"+name+"-0"]
			return there, nil
		}))
		if name == "looping" {
			_, err := c.WaitPod(t.Context(), d.pod("qwen-looping-0"), crashLooping)
			require.NoError(t, err)
		}
		d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles = s.Roles[:len(s.Roles)-1] })
		started := time.Now()
		d.ended(t, v1alpha1.EndCompleted)
		t.Logf("the replica that was %s took %.1f s", name, time.Since(started).Seconds())
		require.Equal(t, before, d.uids(t))
	}
}

func crashLooping(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
}
