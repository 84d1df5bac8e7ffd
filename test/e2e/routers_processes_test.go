package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/engine/standin"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/load/clients"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// said waits for what a process of the router is said to contribute for a replica.
func (f *fronted) said(t *testing.T, replica, process string, ok func(v1alpha1.RetirementRouter) bool) (seen v1alpha1.RetirementRouter) {
	t.Helper()
	err := f.follow(t.Context(), process+" to say something of "+replica, func(md *v1alpha1.ModelDeployment) bool {
		if md.Status.Retirement == nil {
			return false
		}
		all := testimony{}
		for i := range md.Status.Retirement.Targets {
			all.hear(&md.Status.Retirement.Targets[i])
		}
		r, listed := all[replica][process]
		if listed {
			seen = r
		}
		return listed && ok(r)
	})
	require.NoError(t, err, "it is %+v", seen)
	return seen
}

func missing(reason string) func(v1alpha1.RetirementRouter) bool {
	return func(r v1alpha1.RetirementRouter) bool { return r.Missing == reason }
}

// A process that was told to end takes no questions, and still sends what it has.
func TestRouterThatEndsIsWaitedFor(t *testing.T) {
	f := behind(t, router.Router{Release: vllmRouter, Policy: "round_robin", Grace: 120}, v1alpha1.RetirementBudgets{}, server(2))
	ending := f.processes(t)[1]
	e := f.engine(t, "qwen-server-0") // which each process chooses first
	answer, err := clients.Once(t.Context(), f.cluster, client.ObjectKey{Namespace: f.key.Namespace, Name: f.through(t, ending)},
		"--clients=1", "--min-tokens=360", "--max-tokens=360", "--tokens-per-second=20")
	require.NoError(t, err)
	require.NoError(t, until(t.Context(), "the stream to begin", func() (bool, error) { return len(e.events(standin.RequestStarted)) > 0, nil }))
	require.NoError(t, f.cluster.Client.Delete(t.Context(), &ending.Pod))
	f.scale(t, 1)
	held := f.said(t, "qwen-server-1", ending.Pod.Name, missing(names.HeldRouterUnread))
	t.Log(held.Message)
	require.NoError(t, until(t.Context(), "the process to end", func() (bool, error) {
		target := f.get(t, "qwen-server-1")
		err := f.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(&ending.Pod), &corev1.Pod{})
		if err == nil {
			require.Nil(t, target.DeletionTimestamp, "it goes while a process of its router sends")
		}
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}))
	_, said := f.over(t, v1alpha1.EndCompleted, time.Time{})
	said.requireWhole(t, f.processes(t), true, "qwen-server-1")
	records, err := answer()
	require.NoError(t, err)
	for len(records) > 1 && records[0].Outcome == load.Refused && records[0].Tokens == 0 {
		records = records[1:] // by its Service, which the node did not know yet
	}
	require.Len(t, records, 1)
	require.Equal(t, load.Completed, records[0].Outcome, records[0].Error)
}

// A process that starts again has forgotten what it was told: before the replica is
// marked it has to be told again, and after that it must say itself what it knows.
func TestRouterThatStartsAgain(t *testing.T) {
	f := behind(t, router.Router{Release: vllmRouter}, v1alpha1.RetirementBudgets{}, server(2))
	slow, again := f.processes(t)[0], f.processes(t)[1]
	records := stream(t, f.cluster, f.key.Namespace, f.through(t, slow))
	require.NoError(t, slow.Fault(t.Context(), fake.Fault{Name: fake.AsyncRemoval, Value: "1h"}))
	f.scale(t, 1)
	f.target(t, "server", 1, v1alpha1.StateDisqualified, names.HeldRouterSelects)
	first := f.said(t, "qwen-server-1", again.Pod.Name, missing(names.HeldRouterReturns))
	require.NoError(t, again.Fault(t.Context(), fake.Fault{Name: fake.Restart}))
	f.said(t, "qwen-server-1", again.Pod.Name, func(r v1alpha1.RetirementRouter) bool {
		return r.Missing == names.HeldRouterReturns && r.ToldAt != nil && r.ToldAt.After(first.ToldAt.Time)
	})
	require.Equal(t, names.Serving, f.get(t, "qwen-server-1").Labels[names.LabelServing], "not every process was told")
	require.NoError(t, slow.Fault(t.Context(), fake.Fault{Name: fake.AsyncRemoval, Off: true}))
	f.target(t, "server", 1, v1alpha1.StateWithdrawing, "")
	require.NoError(t, again.Fault(t.Context(), fake.Fault{Name: fake.Restart}))
	_, said := f.over(t, v1alpha1.EndCompleted, time.Time{})
	said.requireWhole(t, []router.Process{slow, again}, true, "qwen-server-1")
	requireNothingCut(t, records())
}

// One that follows labels has to say itself what it knows, once it has started again.
func TestRouterThatStartsAgainInAProof(t *testing.T) {
	for _, release := range []bundle.Release{{Family: fake.SMG, Version: "1.10.0"}, llmdRouter} {
		t.Run(string(release.Family), func(t *testing.T) {
			f := behind(t, router.Router{Release: release}, v1alpha1.RetirementBudgets{}, server(2))
			other, again := f.processes(t)[0], f.processes(t)[1]
			records := stream(t, f.cluster, f.key.Namespace, f.through(t, other))
			f.scale(t, 1)
			f.said(t, "qwen-server-1", again.Pod.Name, func(r v1alpha1.RetirementRouter) bool { return r.Missing == names.HeldRouterHolds })
			require.NoError(t, again.Fault(t.Context(), fake.Fault{Name: fake.Restart}))
			restarted := time.Now()
			last, said := f.over(t, v1alpha1.EndCompleted, time.Time{})
			said.requireWhole(t, []router.Process{other, again}, false, "qwen-server-1")
			require.Greater(t, last.EndedAt.Sub(restarted), 5*time.Second, "what it said before counts no more")
			requireNothingCut(t, records())
		})
	}
}

// All processes of the router are replaced by others while replicas are taken away.
func TestRouterIsRolledOut(t *testing.T) {
	for _, release := range []bundle.Release{vllmRouter, llmdRouter} {
		t.Run(string(release.Family), func(t *testing.T) {
			f := behind(t, router.Router{Release: release}, v1alpha1.RetirementBudgets{}, server(3))
			before, old := f.uids(t), f.processes(t)
			records := stream(t, f.cluster, f.key.Namespace, f.router.Name)
			f.scale(t, 1)
			f.target(t, "server", 2, v1alpha1.StateWithdrawing, "")
			deployment := &appsv1.Deployment{}
			require.NoError(t, f.cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: f.key.Namespace, Name: f.router.Name}, deployment))
			was := deployment.DeepCopy()
			deployment.Spec.Template.Labels["rollout"] = "second"
			require.NoError(t, f.cluster.Client.Patch(t.Context(), deployment, client.MergeFrom(was)))
			_, said := f.over(t, v1alpha1.EndCompleted, time.Time{})
			asked := map[string]bool{}
			for process := range said["qwen-server-2"] {
				asked[process] = true
			}
			for _, p := range old {
				require.True(t, asked[p.Pod.Name], "%s was not asked", p.Pod.Name)
			}
			require.Greater(t, len(asked), len(old), "nobody new was asked")
			require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, f.uids(t))
			uncut(t, records())
		})
	}
}

// A spec that changes its mind: who was told to leave the replica alone is told that it
// need not, and sends to it again.
func TestRouterGetsAReplicaBack(t *testing.T) {
	f := behind(t, router.Router{Release: vllmRouter}, v1alpha1.RetirementBudgets{}, server(3))
	before := f.uids(t)
	records := stream(t, f.cluster, f.key.Namespace, f.router.Name)
	f.scale(t, 2)
	f.target(t, "server", 2, v1alpha1.StateWithdrawing, "")
	for _, p := range f.processes(t) {
		listed, err := f.lists(t, p, "qwen-server-2")
		require.NoError(t, err)
		require.False(t, listed)
	}
	f.scale(t, 3)
	f.told(t, names.EventRetirementCancelled, "qwen-server-2")
	f.waitFor(t, "the retirement to be over", func(md *v1alpha1.ModelDeployment) bool {
		return md.Status.Retirement == nil && md.Status.Phase == v1alpha1.PhaseReady && md.Status.RoleSummary == "3S"
	})
	f.serves(t, "qwen-server-2")
	back := time.Now()
	for _, p := range f.processes(t) {
		listed, err := f.lists(t, p, "qwen-server-2")
		require.NoError(t, err)
		require.True(t, listed, "it is over for %s, which does not send to it", p.Pod.Name)
	}
	f.reached(t, back, "qwen-server-2")
	require.Equal(t, before, f.uids(t), "nothing is lost")
	requireNothingCut(t, records())
}

// Of who lists nobody nothing is known, unless it has listed the last one before.
func TestLastReplicaBehindARouter(t *testing.T) {
	for release, end := range map[bundle.Release]v1alpha1.RetirementEnd{vllmRouter: v1alpha1.EndCompleted, llmdRouter: v1alpha1.EndAborted} {
		t.Run(string(release.Family), func(t *testing.T) {
			f := behind(t, router.Router{Release: release}, v1alpha1.RetirementBudgets{}, server(1))
			before := f.uids(t)
			records := stream(t, f.cluster, f.key.Namespace, f.router.Name, "--max-tokens=20")
			f.scale(t, 0)
			last, said := f.over(t, end, time.Time{})
			if end == v1alpha1.EndCompleted {
				said.requireWhole(t, f.processes(t), true, "qwen-server-0")
				require.Empty(t, f.uids(t))
			} else {
				require.Equal(t, names.HeldRouterUnread, last.Reason, "metrics without endpoints are also those of who knows none")
				require.Equal(t, before, f.uids(t))
				f.serves(t, "qwen-server-0")
				f.choosable(t)
			}
			uncut(t, records())
		})
	}
}

// A deletion takes no longer than it may, whatever the router says.
func TestDeletionBehindARouter(t *testing.T) {
	for what, fault := range map[string]fake.Fault{
		"that tells the truth": {Name: fake.SucceedForUnknown}, "that says nothing": {Name: fake.Unauthorized},
	} {
		t.Run(what, func(t *testing.T) {
			f := behind(t, router.Router{Release: vllmRouter}, v1alpha1.RetirementBudgets{}, server(2))
			records := stream(t, f.cluster, f.key.Namespace, f.router.Name, "--max-tokens=40")
			silent := fault.Name == fake.Unauthorized
			f.fault(t, fault)
			if silent { // it goes on to send, and what is never idle has all the time of draining
				uncut(t, records())
			}
			since := f.delete(t)
			f.gone(t)
			took := time.Since(since)
			t.Logf("from the delete to the last Pod's end: %.1f s", took.Seconds())
			require.Less(t, took, 2*time.Minute)
			if !silent {
				uncut(t, records())
			}
		})
	}
}
