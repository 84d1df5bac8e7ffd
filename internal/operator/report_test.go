package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// tell is what a user reads: PHASE ROLES, Ready's reason, Progressing's reason and
// message.
type told struct{ phase, roles, ready, progressing, message string }

// report writes the status of the world, as the reconciler does, and tells it.
func (w *world) report(seen *Seen) told {
	w.md.Status = Report(seen)
	ready := meta.FindStatusCondition(w.md.Status.Conditions, names.ConditionReady)
	progressing := meta.FindStatusCondition(w.md.Status.Conditions, names.ConditionProgressing)
	return told{string(w.md.Status.Phase), w.md.Status.RoleSummary, ready.Reason, progressing.Reason, progressing.Message}
}

// A deployment's life as `kubectl get md -w` and `kubectl describe md` tell it.
func TestReport(t *testing.T) {
	w := newWorld(role("server", 2, 1))
	step := func(what string, want told, change func()) {
		t.Helper()
		w.now = w.now.Add(time.Minute)
		change()
		require.Equal(t, want, w.report(w.seen()), what)
		before := w.md.Status.DeepCopy()
		w.now = w.now.Add(time.Minute)
		w.report(w.seen())
		require.Equal(t, *before, w.md.Status, "%s: a second report of the same changes nothing", what)
	}

	step("applied", told{"Starting", "0S", names.ReasonReplicasNotReady, names.ReasonReplicasStarting,
		"waiting for qwen-server-0 to be Ready; waiting for qwen-server-1 to be Ready"}, func() {})
	step("one is up", told{"Starting", "1S", names.ReasonReplicasNotReady, names.ReasonReplicasStarting,
		"waiting for qwen-server-1 to be Ready"}, func() { w.fill("server"); w.pods["qwen-server-1"].Status = corev1.PodStatus{} })
	step("both are", told{"Ready", "2S", names.ReasonAllReplicasReady, names.ReasonUpToDate,
		"every replica has the present spec"}, func() { w.up("qwen-server-1") })
	step("one is not Ready for a moment, which is not the operator's to do anything about",
		told{"Degraded", "1S", names.ReasonReplicasNotReady, names.ReasonUpToDate, "every replica has the present spec"},
		func() { w.down("qwen-server-1") })
	step("and is again", told{"Ready", "2S", names.ReasonAllReplicasReady, names.ReasonUpToDate,
		"every replica has the present spec"}, func() { w.up("qwen-server-1") })
	step("one is deleted", told{"Degraded", "1S", names.ReasonReplicasNotReady, names.ReasonReplacementInProgress,
		"waiting for qwen-server-0 to drain, until 2026-11-30T12:11:30Z at the latest"}, func() { w.leave("qwen-server-0") })
	step("it is gone", told{"Degraded", "1S", names.ReasonReplicasNotReady, names.ReasonReplacementInProgress,
		"waiting for qwen-server-0 to be Ready"}, func() { delete(w.pods, "qwen-server-0") })
	step("and made again", told{"Ready", "2S", names.ReasonAllReplicasReady, names.ReasonUpToDate,
		"every replica has the present spec"}, func() { w.fill("server") })
	step("more are asked for", told{"Starting", "2S", names.ReasonReplicasNotReady, names.ReasonReplicasStarting,
		"waiting for qwen-server-2 to be Ready"}, func() { w.md.Spec.Roles[0].Replicas = new(int32(3)) })
	step("it is up", told{"Ready", "3S", names.ReasonAllReplicasReady, names.ReasonUpToDate,
		"every replica has the present spec"}, func() { w.fill("server") })
	step("an edit", told{"Ready", "3S", names.ReasonAllReplicasReady, names.ReasonRolloutInProgress,
		"3 replicas of an older spec to replace, one at a time in each role"}, func() { w.edit("new") })
	step("the first leaves", told{"Degraded", "2S", names.ReasonReplicasNotReady, names.ReasonRolloutInProgress,
		"3 replicas of an older spec to replace, one at a time in each role; waiting for qwen-server-2 to drain, until 2026-11-30T12:23:30Z at the latest"},
		func() { w.leave("qwen-server-2") })
	step("its image is nowhere", told{"Degraded", "2S", names.ReasonReplicasNotReady, names.ReasonReplicaFailing,
		"qwen-server-2: image new of container main cannot be pulled; 2 replicas of an older spec stay until it is Ready"}, func() {
		delete(w.pods, "qwen-server-2")
		w.fill("server")
		w.pods["qwen-server-2"].Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: names.MainContainer, Image: "new", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
		}}}
	})
	step("which is said in the same words on each try", told{"Degraded", "2S", names.ReasonReplicasNotReady, names.ReasonReplicaFailing,
		"qwen-server-2: image new of container main cannot be pulled; 2 replicas of an older spec stay until it is Ready"}, func() {
		w.pods["qwen-server-2"].Status.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff"
	})
	step("it is pushed", told{"Ready", "3S", names.ReasonAllReplicasReady, names.ReasonRolloutInProgress,
		"2 replicas of an older spec to replace, one at a time in each role"}, func() { w.up("qwen-server-2") })
	step("the last of the rollout starts", told{"Degraded", "2S", names.ReasonReplicasNotReady, names.ReasonRolloutInProgress,
		"waiting for qwen-server-0 to be Ready"}, func() {
		delete(w.pods, "qwen-server-1")
		delete(w.pods, "qwen-server-0")
		w.fill("server")
		w.pods["qwen-server-0"].Status = corev1.PodStatus{}
	})
	step("and is up", told{"Ready", "3S", names.ReasonAllReplicasReady, names.ReasonUpToDate,
		"every replica has the present spec"}, func() { w.up("qwen-server-0") })
	step("fewer are asked for: they stay, and count", told{"Ready", "3S", names.ReasonAllReplicasReady, names.ReasonUpToDate,
		"every replica has the present spec"}, func() { w.md.Spec.Roles[0].Replicas = new(int32(1)) })
	step("the role is dropped", told{"Starting", "3S0P", names.ReasonReplicasNotReady, names.ReasonReplicasStarting,
		"waiting for qwen-prefill-0 to be Ready"}, func() {
		w.md.Spec.Roles = []v1alpha1.Role{role("prefill", 1, 1)}
		w.md.Spec.Roles[0].Kind = v1alpha1.Prefill
	})
	step("it is deleted", told{"Deleting", "3S0P", names.ReasonDeleting, names.ReasonDeleting, "being deleted"},
		func() { w.md.DeletionTimestamp = &metav1.Time{Time: w.now} })
}

func TestReportOfFailures(t *testing.T) {
	w := newWorld(role("server", 1, 1))
	seen := w.seen()
	seen.Services = nil
	seen.Failures = map[string]Failure{
		"Pod/qwen-server-0":   {names.ReasonCreateFailed, "creating Pod qwen-server-0: exceeded quota"},
		"Service/qwen-server": {names.ReasonNameTaken, "Service/qwen-server is somebody else's"},
		"Pod/qwen-server-7":   {names.ReasonNameTaken, "is not wanted any more"},
	}
	require.Equal(t, told{"Degraded", "0S", names.ReasonReplicasNotReady, names.ReasonNameTaken, "Service/qwen-server is somebody else's"}, w.report(seen))
	delete(seen.Failures, "Service/qwen-server")
	require.Equal(t, told{"Degraded", "0S", names.ReasonReplicasNotReady, names.ReasonCreateFailed, "creating Pod qwen-server-0: exceeded quota"}, w.report(seen))

	w.fill("server")
	after := w.seen()
	after.Failures = seen.Failures
	after.Failures["Service/qwen-server"] = Failure{names.ReasonCreateFailed, "was put right by hand"}
	require.Equal(t, names.ReasonUpToDate, w.report(after).progressing, "everything is there")

	w.md.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(5))
	invalid := w.report(w.seen())
	require.Equal(t, names.ReasonRenderFailed, invalid.progressing)
	require.Contains(t, invalid.message, "spec.roles[0].terminationGracePeriodSeconds")
	require.Equal(t, names.ReasonAllReplicasReady, invalid.ready, "what runs is left alone")
}

// A cluster that grows takes a while to have a node for a Pod.
func TestAPodWithoutANodeIsFailingOnlyAfterAWhile(t *testing.T) {
	w := newWorld(role("server", 1, 1))
	w.report(w.seen())
	w.fill("server")
	w.pods["qwen-server-0"].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		LastTransitionTime: metav1.NewTime(w.now), Message: "0/1 nodes are available",
	}}}
	require.Equal(t, names.ReasonReplicasStarting, w.report(w.seen()).progressing)
	require.Equal(t, w.now.Add(30*time.Second), Decide(w.seen()).RecheckAt)
	w.now = w.now.Add(30 * time.Second)
	require.Equal(t, names.ReasonReplicaFailing, w.report(w.seen()).progressing)
	w.pods["qwen-server-0"].Status = corev1.PodStatus{Phase: corev1.PodPending}
	require.Equal(t, names.ReasonReplicasStarting, w.report(w.seen()).progressing, "it was never there, so it is not lost")
}

func TestAContainerThatKeepsEndingIsFailingBetweenItsEndsToo(t *testing.T) {
	w := newWorld(role("server", 1, 1))
	w.fill("server")
	pod := w.down("qwen-server-0")
	pod.Status.ContainerStatuses[0] = corev1.ContainerStatus{
		Name: names.MainContainer, RestartCount: 3, Started: new(false),
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
	}
	for _, state := range []corev1.ContainerState{
		{Running: &corev1.ContainerStateRunning{}},
		{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	} {
		pod.Status.ContainerStatuses[0].State = state
		require.Equal(t, told{"Degraded", "0S", names.ReasonReplicasNotReady, names.ReasonReplicaFailing,
			"qwen-server-0: container main keeps ending, last with exit code 1 (Error); see kubectl logs --previous"}, w.report(w.seen()))
	}
}
