package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/install"
)

const retirerName = install.Release + "-retirer"

// outage is a cluster in which a test may take things away that others need, so it
// runs alone.
func outage(t *testing.T) *kube.Cluster {
	t.Helper()
	c := loaded(t)
	require.NoError(t, installed())
	return c
}

// killLeader ends the process of the retirer that leads, without a moment to give its
// Lease back. On a cluster that is not ours, it gets the second that a forced delete
// leaves it.
func killLeader(t *testing.T, c *kube.Cluster) {
	t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: install.Namespace, Name: retirerName}, lease))
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	pod := &corev1.Pod{}
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: install.Namespace, Name: name}, pod))
	if c.Own() {
		require.NoError(t, c.Kill(pod.UID, "/retirer"))
		return
	}
	require.NoError(t, c.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
}

// The states that pass in a moment are held by an API server that refuses the write
// that ends them.
func TestRetirerIsKilledInEveryState(t *testing.T) {
	c := outage(t)
	d := observed(t, c, server(2))
	before := d.uids(t)
	held := map[v1alpha1.RetirementState]func(context.Context) error{}
	for _, state := range momentary {
		held[state] = d.heldIn(t, state)
	}
	d.scale(t, 1)
	for _, state := range []v1alpha1.RetirementState{
		v1alpha1.StateAdmitted, v1alpha1.StateDisqualified, v1alpha1.StateWithdrawing,
		v1alpha1.StateDraining, v1alpha1.StateDeleting, v1alpha1.StateSettling,
	} {
		d.target(t, "server", 1, state, "")
		killLeader(t, c)
		if goOn := held[state]; goOn != nil {
			require.NoError(t, goOn(t.Context()))
		}
	}
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, names.RetireIdle, last.Reason)
	require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, d.uids(t))
	t.Logf("with six kills it took %.1f s", last.EndedAt.Sub(last.StartedAt.Time).Seconds())
}

// Every process of lastcall is replaced while one replica drains and another is being
// taken away. Nobody notices.
func TestUpgradeInTheMiddleOfARetirement(t *testing.T) {
	c := outage(t)
	if !c.Own() {
		t.Skip("it changes the values that lastcall is installed with")
	}
	d := observed(t, c, server(3))
	before := d.uids(t)
	own := ownPods(t, c, install.Namespace)
	e := d.engine(t, "qwen-server-2")
	e.fault(t, `{"metrics": "busy"}`)
	records := stream(t, c, d.key.Namespace, d.key.Name)
	t.Cleanup(func() { require.NoError(t, upgrade(context.WithoutCancel(t.Context()), c)) })
	d.scale(t, 1)
	d.target(t, "server", 2, v1alpha1.StateWithdrawing, "")
	require.NoError(t, upgrade(t.Context(), c, "webhook.logLevel=debug", "operator.logLevel=debug", "retirer.logLevel=debug"))
	require.NoError(t, until(t.Context(), "every Pod of lastcall to be another one", func() (bool, error) {
		return !slices.ContainsFunc(ownPods(t, c, install.Namespace), func(uid string) bool { return slices.Contains(own, uid) }), nil
	}))
	d.target(t, "server", 2, v1alpha1.StateDraining, names.HeldServingRequests)
	e.fault(t, `{"metrics": ""}`)
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, names.RetireIdle, last.Reason)
	require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, d.uids(t), "the survivor is untouched")
	requireNothingCut(t, records())
}

// Whoever may not read holds what it cannot read, and says which right it lacks.
func TestExecIsForbidden(t *testing.T) {
	c := outage(t)
	d := observed(t, c, server(1))
	role := &rbacv1.ClusterRole{}
	require.NoError(t, c.Client.Get(t.Context(), client.ObjectKey{Name: retirerName}, role))
	restore := role.DeepCopy()
	for i, rule := range role.Rules {
		if len(rule.Resources) == 1 && rule.Resources[0] == "pods/exec" {
			role.Rules[i].Verbs = []string{"list"}
		}
	}
	set := func(ctx context.Context, rules []rbacv1.PolicyRule) {
		text, err := json.Marshal(map[string]any{"rules": rules})
		require.NoError(t, err)
		require.NoError(t, c.Client.Patch(ctx, role.DeepCopy(), client.RawPatch(types.MergePatchType, text)))
	}
	set(t.Context(), role.Rules)
	t.Cleanup(func() { set(context.WithoutCancel(t.Context()), restore.Rules) })
	d.scale(t, 0)
	held := d.target(t, "server", 0, v1alpha1.StateWithdrawing, names.HeldExecForbidden)
	require.Contains(t, held.Message, "pods/exec")
	d.told(t, names.HeldExecForbidden, "qwen-server-0")
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldExecForbidden)
	set(t.Context(), restore.Rules)
	d.ended(t, v1alpha1.EndCompleted)
}

func TestAPIServerIsAwayForAWhile(t *testing.T) {
	c := outage(t)
	if !c.Own() {
		t.Skip("it stops a component of the cluster")
	}
	d := observed(t, c, server(2))
	before := d.uids(t)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateDraining, "")
	resume, err := c.Pause("kube-apiserver")
	require.NoError(t, err)
	t.Cleanup(func() { _ = resume() })
	away := time.NewTimer(20 * time.Second)
	<-away.C
	require.NoError(t, resume())
	d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, d.uids(t))
}

// A node that does not answer holds a replica that drains, until it is back. A
// deletion ends all the same.
func TestNodeIsLost(t *testing.T) {
	c := outage(t)
	if !c.Own() {
		t.Skip("it stops a component of the cluster")
	}
	d, deleted := observed(t, c, server(2)), observed(t, c, server(1))
	deleted.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
		s.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(15)), TotalSeconds: new(int32(30))}
	})
	d.engine(t, "qwen-server-1").fault(t, `{"metrics": "busy"}`)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	resume, err := c.Pause("kubelet")
	require.NoError(t, err)
	t.Cleanup(func() { _ = resume() })
	since := deleted.delete(t)
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldReadTimedOut)
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldNodeUnreachable)
	d.told(t, names.HeldNodeUnreachable, "qwen-server-1")
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldNodeUnreachable)
	require.NoError(t, until(t.Context(), "the ModelDeployment to go", func() (bool, error) {
		err := c.Client.Get(t.Context(), deleted.key, &v1alpha1.ModelDeployment{})
		return err != nil, client.IgnoreNotFound(err)
	}))
	// Its drain budget, its grace period, and 30 s.
	took := time.Since(since)
	t.Logf("the deletion took %.1f s", took.Seconds())
	require.Greater(t, took, 59*time.Second)
	require.Less(t, took, 100*time.Second) // the node is given up after 50 s
	require.NoError(t, resume())
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	d.engine(t, "qwen-server-1").fault(t, `{"metrics": ""}`)
	d.ended(t, v1alpha1.EndCompleted)
	deleted.gone(t)
}

// Without a retirer nothing is taken away, and nothing is lost; what was asked for
// happens when it is back.
func TestRetirerIsDownAndBack(t *testing.T) {
	c := outage(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(1)}})
	before := d.uids(t)
	scale := func(ctx context.Context, replicas string) {
		_, err := c.Kubectl(ctx, "-n", install.Namespace, "scale", "deployment", retirerName, "--replicas="+replicas)
		require.NoError(t, err)
		_, err = c.Kubectl(ctx, "-n", install.Namespace, "rollout", "status", "deployment", retirerName, "--timeout=1m")
		require.NoError(t, err)
	}
	t.Cleanup(func() { scale(context.WithoutCancel(t.Context()), "2") })
	scale(t.Context(), "0")
	d.delete(t)
	require.NoError(t, until(t.Context(), "explain to miss the retirer", func() (bool, error) {
		return strings.Contains(d.command(t, "explain", "qwen"), "the retirer has not taken that up"), nil
	}))
	require.Equal(t, before, d.uids(t))
	scale(t.Context(), "2")
	d.gone(t)
}

// Neither a finalizer nor a status has to be admitted by lastcall's own webhook.
func TestDeletionWhileTheWebhookIsDown(t *testing.T) {
	c := outage(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(1)}})
	scale := func(ctx context.Context, replicas string) {
		_, err := c.Kubectl(ctx, "-n", install.Namespace, "scale", "deployment", webhookName, "--replicas="+replicas)
		require.NoError(t, err)
		_, err = c.Kubectl(ctx, "-n", install.Namespace, "rollout", "status", "deployment", webhookName, "--timeout=1m")
		require.NoError(t, err)
	}
	t.Cleanup(func() { scale(context.WithoutCancel(t.Context()), "2") })
	scale(t.Context(), "0")
	d.delete(t)
	d.gone(t)
}
