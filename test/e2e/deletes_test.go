package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
)

// TestKindsOfDelete plays the table of docs/drain-window.md: a busy vLLM with a
// grace period of 30, taken away in every way.
func TestKindsOfDelete(t *testing.T) {
	t.Parallel()
	const grace = 30
	for name, row := range map[string]struct {
		away       func(t *testing.T, e *engine) departure
		from, to   float64
		failedHook bool
		end        string // the hook's last word; empty when the hook was cut
	}{
		"a plain delete has the whole window": {
			away: func(t *testing.T, e *engine) departure { return e.leave(t) },
			from: deadlineFrom(grace), to: deadlineTo(grace), end: names.EndDeadline,
		},
		"an eviction has the whole window": {
			away: func(t *testing.T, e *engine) departure { return e.evicted(t, nil) },
			from: deadlineFrom(grace), to: deadlineTo(grace), end: names.EndDeadline,
		},
		"a delete with a grace period of 5 cuts it": {
			away: func(t *testing.T, e *engine) departure { return e.leave(t, client.GracePeriodSeconds(5)) },
			from: 4.9, to: 9, failedHook: true,
		},
		"an eviction with a grace period of 5 cuts it": {
			away: func(t *testing.T, e *engine) departure { return e.evicted(t, new(int64(5))) },
			from: 4.9, to: 9, failedHook: true,
		},
		"a delete with a grace period of 60 changes nothing": {
			away: func(t *testing.T, e *engine) departure { return e.leave(t, client.GracePeriodSeconds(60)) },
			from: deadlineFrom(grace), to: deadlineTo(grace), end: names.EndDeadline,
		},
		"an eviction with a grace period of 60 changes nothing": {
			away: func(t *testing.T, e *engine) departure { return e.evicted(t, new(int64(60))) },
			from: deadlineFrom(grace), to: deadlineTo(grace), end: names.EndDeadline,
		},
		"kubectl delete --now skips it": {
			away: func(t *testing.T, e *engine) departure { return e.deletedByKubectl(t, "--now") },
			from: 0, to: 4.5, failedHook: true,
		},
		"kubectl delete --grace-period=0 skips it": {
			away: func(t *testing.T, e *engine) departure { return e.deletedByKubectl(t, "--grace-period=0") },
			from: 0, to: 4.5, failedHook: true,
		},
		"a second, shorter delete does not shorten a running hook": {
			away: func(t *testing.T, e *engine) departure {
				gone := e.beginLeaving(t)
				_, err := e.log.Find(t.Context(), "lastcall: ")
				require.NoError(t, err)
				again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.pod.Namespace, Name: e.pod.Name}}
				require.NoError(t, e.cluster.Client.Delete(t.Context(), again, client.GracePeriodSeconds(20)))
				return gone()
			},
			from: deadlineFrom(grace), to: deadlineTo(grace), end: names.EndDeadline,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			e := start(t, c, optedIn(t, c), vllm(grace))
			e.fault(t, `{"metrics": "busy"}`)
			d := row.away(t, e)
			require.Equal(t, row.failedHook, d.failedHook, "FailedPreStopHook")
			if row.end == "" {
				d.requireSIGTERM(t, row.from, row.to)
				return
			}
			d.requireWindow(t, row.from, row.to)
			d.requireEnd(t, row.end)
		})
	}
}

func TestForcedDeleteRemovesTheObjectAtOnce(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(t *testing.T, e *engine) departure{
		"kubectl delete --force --grace-period=0": func(t *testing.T, e *engine) departure {
			return e.deletedByKubectl(t, "--force", "--grace-period=0")
		},
		"an eviction with a grace period of 0": func(t *testing.T, e *engine) departure { return e.evicted(t, new(int64(0))) },
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			e := start(t, c, optedIn(t, c), vllm(30))
			e.fault(t, `{"metrics": "busy"}`)
			d := away(t, e)
			require.Less(t, d.gone.Seconds(), 5.0)
			d.requireSIGTERM(t, 0.5, 4.5)
		})
	}
}

// What only asks what would happen starts no hook.
func TestDryRunsChangeNothing(t *testing.T) {
	c := cluster(t)
	e := start(t, c, optedIn(t, c), vllm(30))
	_, err := c.Kubectl(t.Context(), "delete", "pod", "-n", e.pod.Namespace, e.pod.Name, "--dry-run=server")
	require.NoError(t, err)
	require.NoError(t, c.Clientset.PolicyV1().Evictions(e.pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: e.pod.Namespace, Name: e.pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}))

	other := vllm(30)
	other.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	other.Name, other.Namespace = "other", e.pod.Namespace
	text, err := yaml.Marshal(other)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "pod.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	diff, err := c.Kubectl(t.Context(), "diff", "-f", file)
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 1, exit.ExitCode(), "kubectl diff says with 1 that there are differences: %v", err)
	require.Contains(t, diff, names.AnnotationStatus, "the diff shows what admission would do")

	var pods corev1.PodList
	require.NoError(t, c.Client.List(t.Context(), &pods, client.InNamespace(e.pod.Namespace)))
	require.Len(t, pods.Items, 1)
	require.Nil(t, pods.Items[0].DeletionTimestamp)
	for _, line := range e.log.Lines() {
		require.NotContains(t, line.Text, "lastcall: ")
	}
}

// A hung engine is not kept for its whole grace period when its probe brings a
// grace period of its own, as admission's warning advises.
func TestLivenessRestartIsBoundedByTheProbe(t *testing.T) {
	c := cluster(t)
	pod := vllm(300)
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{
		PeriodSeconds: 1, FailureThreshold: 1, TerminationGracePeriodSeconds: new(int64(8)),
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(vllmPort)}},
	}
	e := start(t, c, optedIn(t, c), pod)
	e.fault(t, `{"metrics": "busy", "health": "503"}`)
	failed := time.Now()
	_, err := c.WaitPod(t.Context(), e.pod, func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
	require.NoError(t, err)
	require.Less(t, time.Since(failed).Seconds(), 30.0, "seconds from the failure to the new container")
}

// beginLeaving deletes the Pod and returns a function that waits until it is
// gone.
func (e *engine) beginLeaving(t *testing.T) func() departure {
	t.Helper()
	return e.leaveBy(t, func(ctx context.Context) error {
		return e.cluster.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.pod.Namespace, Name: e.pod.Name}})
	})
}

// leaveBy does what takes the Pod away and returns a function that waits until
// it is gone.
func (e *engine) leaveBy(t *testing.T, away func(context.Context) error) func() departure {
	t.Helper()
	wait, err := e.cluster.WatchEnding(t.Context(), e.pod)
	require.NoError(t, err)
	type result struct {
		ending kube.Ending
		err    error
	}
	gone := make(chan result, 1)
	go func() {
		ending, err := wait()
		gone <- result{ending, err}
	}()
	deleted := time.Now()
	require.NoError(t, away(t.Context()))
	return func() departure {
		r := <-gone
		require.NoError(t, r.err)
		return e.departed(t, deleted, r.ending)
	}
}

func (e *engine) evicted(t *testing.T, graceSeconds *int64) departure {
	t.Helper()
	return e.leaveBy(t, func(ctx context.Context) error {
		return e.cluster.Clientset.PolicyV1().Evictions(e.pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: e.pod.Namespace, Name: e.pod.Name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: graceSeconds},
		})
	})()
}

func (e *engine) deletedByKubectl(t *testing.T, flags ...string) departure {
	t.Helper()
	return e.leaveBy(t, func(ctx context.Context) error {
		_, err := e.cluster.Kubectl(ctx, append([]string{"delete", "pod", "-n", e.pod.Namespace, e.pod.Name, "--wait=false"}, flags...)...)
		return err
	})()
}
