package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
)

// delete deletes the ModelDeployment as kubectl does, without waiting.
func (d *deployment) delete(t *testing.T, flags ...string) (since time.Time) {
	t.Helper()
	since = time.Now()
	_, err := d.cluster.Kubectl(t.Context(), append([]string{"-n", d.key.Namespace, "delete", "md", d.key.Name, "--wait=false"}, flags...)...)
	require.NoError(t, err)
	return since
}

// gone waits until the ModelDeployment and its Pods are gone.
func (d *deployment) gone(t *testing.T) {
	t.Helper()
	require.NoError(t, until(t.Context(), "the ModelDeployment and its Pods to go", func() (bool, error) {
		err := d.cluster.Client.Get(t.Context(), d.key, &v1alpha1.ModelDeployment{})
		if err == nil {
			return false, nil
		}
		pods, listed := d.pods(t.Context())
		if listed != nil {
			return false, listed
		}
		return len(pods) == 0, client.IgnoreNotFound(err)
	}))
}

func TestDeletionOfIdleReplicas(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(2)}})
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, c.Client.Get(t.Context(), d.key, md))
	require.Contains(t, md.Finalizers, names.Finalizer)
	since := d.delete(t)
	d.target(t, "server", 0, v1alpha1.StateDraining, names.HeldProvingIdle)
	d.gone(t)
	took := time.Since(since)
	t.Logf("from the delete to the last Pod's end: %.1f s", took.Seconds())
	// The gauges' lag, and then the drain window of an idle engine: 13 s on a machine
	// that has nothing else to do.
	require.Less(t, took, time.Minute)
	d.told(t, names.EventRetirementDeleting, "qwen-server-1")
}

// A busy replica is left alone until it is idle, and not for longer than it may be.
func TestDeletionWaitsForWork(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(2)}})
	answer := d.engine(t, "qwen-server-0").generate(t, 45*time.Second)
	d.delete(t)
	d.target(t, "server", 0, v1alpha1.StateDraining, names.HeldServingRequests)
	explained := d.command(t, "explain", "qwen")
	require.Contains(t, explained, names.HeldServingRequests)
	require.Regexp(t, `kubectl lastcall finalizers qwen .*--remove`, explained, "the way out")
	d.target(t, "server", 1, v1alpha1.StateSettling, names.RetireIdle)
	d.gone(t)
	require.Equal(t, load.Completed, answer().Outcome, "a request longer than the grace period")
}

// The time that the defaults give: 240 s, and then the drain window.
func TestDeletionOfWhatIsNeverIdle(t *testing.T) {
	c := cluster(t)
	prefill, own := server(1), server(1)
	prefill.Name, prefill.Kind = "prefill", v1alpha1.Prefill
	own.Name, own.Command = "own", []string{"vllm", "serve", model, "--port", "8000"}
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(1), prefill, own}})
	d.engine(t, "qwen-server-0").fault(t, `{"metrics": "busy"}`)
	endings := map[string]func() (kube.Ending, error){}
	for name := range d.uids(t) {
		var err error
		endings[name], err = c.WatchEnding(t.Context(), d.pod(name))
		require.NoError(t, err)
	}
	since := d.delete(t)
	for _, ending := range all(t, endings) {
		deleted := ending.Leaving.DeletionTimestamp.Add(-time.Duration(*ending.Leaving.DeletionGracePeriodSeconds) * time.Second).Sub(since)
		t.Logf("%s was deleted %.0f s after its ModelDeployment", ending.Pod.Name, deleted.Seconds())
		if ending.Pod.Name == "qwen-own-0" {
			require.Less(t, deleted, 10*time.Second, "of a command line that is the user's own nothing can be known")
		} else {
			require.InDelta(t, retireDrain.Seconds(), deleted.Seconds(), 6)
		}
	}
	d.gone(t)
	d.told(t, names.EventRetirementUnproven, "qwen-server-0")
	d.told(t, names.EventRetirementUnproven, "qwen-prefill-0")
	require.Less(t, time.Since(since), retireDrain+15*time.Second+35*time.Second)
}

const retireDrain = 240 * time.Second

// A person who would rather wait.
func TestDeletionThatWaitsForIdle(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{
		Retirement: v1alpha1.RetirementBudgets{DrainSeconds: new(int32(15)), TotalSeconds: new(int32(15))},
		Roles:      []v1alpha1.Role{server(1)},
	})
	e := d.engine(t, "qwen-server-0")
	e.fault(t, `{"metrics": "busy"}`)
	_, err := c.Kubectl(t.Context(), "-n", d.key.Namespace, "annotate", "md", "qwen", names.AnnotationDeletion+"="+names.DeletionWaitForIdle)
	require.NoError(t, err)
	since := d.delete(t)
	target := d.target(t, "server", 0, v1alpha1.StateDraining, names.HeldServingRequests)
	require.NoError(t, until(t.Context(), "twice the budget to pass", func() (bool, error) { return time.Since(since) > 30*time.Second, nil }))
	require.Equal(t, target.PhaseStartedAt, d.target(t, "server", 0, v1alpha1.StateDraining, names.HeldServingRequests).PhaseStartedAt)
	e.fault(t, `{"metrics": ""}`)
	d.gone(t)
}

// A namespace that goes waits for nobody, nor do dependents that the garbage
// collector was told to delete first.
func TestDeletionThatCannotWait(t *testing.T) {
	for what, how := range map[string]func(*testing.T, *deployment){
		"with its namespace": func(t *testing.T, d *deployment) {
			require.NoError(t, d.cluster.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: d.key.Namespace}}))
		},
		"with a foreground cascade": func(t *testing.T, d *deployment) { d.delete(t, "--cascade=foreground") },
	} {
		t.Run(what, func(t *testing.T) {
			c := cluster(t)
			d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(1)}})
			d.engine(t, "qwen-server-0").fault(t, `{"metrics": "busy"}`)
			since := time.Now()
			how(t, d)
			d.gone(t)
			require.Less(t, time.Since(since), 50*time.Second)
		})
	}
}

// Pods that are to be left behind are, and serve on, also those that were marked.
func TestOrphaningDeletion(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(2))
	before := d.uids(t)
	d.engine(t, "qwen-server-1").fault(t, `{"metrics": "busy"}`)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	d.delete(t, "--cascade=orphan")
	require.NoError(t, until(t.Context(), "the ModelDeployment to go", func() (bool, error) {
		err := c.Client.Get(t.Context(), d.key, &v1alpha1.ModelDeployment{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
	require.Equal(t, before, d.uids(t))
	require.Equal(t, names.Serving, d.get(t, "qwen-server-1").Labels[names.LabelServing])
	pods, err := d.pods(t.Context())
	require.NoError(t, err)
	for _, pod := range pods {
		require.Empty(t, pod.OwnerReferences)
		require.Nil(t, pod.DeletionTimestamp)
	}
}

// A deletion takes over what runs and what was given up.
func TestDeletionTakesOver(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(3)}})
	d.scale(t, 2)
	d.target(t, "server", 2, v1alpha1.StateAborted, names.RetireWithdrawalUnobservable)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateWithdrawing, names.RetireWithdrawalUnobservable)
	since := d.delete(t)
	d.gone(t)
	require.Less(t, time.Since(since), retireDrain/2, "both were idle")
}

// Somebody else's finalizer on a Pod, such as Kueue's, stays where it is. What
// waits for the Pod says so and ends; the ModelDeployment goes.
func TestForeignFinalizerOnAPod(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(1))
	pod := d.get(t, "qwen-server-0")
	before := pod.DeepCopy()
	const foreign = "example.com/held"
	pod.Finalizers = append(pod.Finalizers, foreign)
	require.NoError(t, c.Client.Patch(t.Context(), pod, client.MergeFrom(before)))
	t.Cleanup(func() {
		_ = c.Client.Patch(context.WithoutCancel(t.Context()), before, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	})
	d.scale(t, 0)
	d.target(t, "server", 0, v1alpha1.StateSettling, names.RetireIdle)
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, names.RetireSettlingOverran, last.Reason)
	d.told(t, names.RetireSettlingOverran, "qwen-server-0")
	left := d.get(t, "qwen-server-0")
	require.True(t, slices.Contains(left.Finalizers, foreign))
	d.delete(t)
	require.NoError(t, until(t.Context(), "the ModelDeployment to go", func() (bool, error) {
		err := c.Client.Get(t.Context(), d.key, &v1alpha1.ModelDeployment{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
}
