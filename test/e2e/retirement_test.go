package e2e

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/load"
)

// observed is a ModelDeployment whose replicas can be shown to be out of reach.
func observed(t *testing.T, c *kube.Cluster, roles ...v1alpha1.Role) *deployment {
	t.Helper()
	return made(t, c, v1alpha1.ModelDeploymentSpec{Withdrawal: v1alpha1.Withdrawal{Direct: v1alpha1.DirectConnections}, Roles: roles})
}

// made applies a ModelDeployment, of vLLM where it does not say, and waits until it
// is up.
func made(t *testing.T, c *kube.Cluster, spec v1alpha1.ModelDeploymentSpec) *deployment {
	t.Helper()
	spec.Model.Name, spec.Engine.Image = model, bundle.Full.Ref
	if spec.Engine.Name == "" {
		spec.Engine.Name = v1alpha1.VLLM
	}
	for i := range spec.Roles {
		if spec.Roles[i].TerminationGracePeriodSeconds == nil {
			spec.Roles[i].TerminationGracePeriodSeconds = new(int64(15))
		}
	}
	md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: kubetest.Namespace(t, c, nil), Name: "qwen"}, Spec: spec}
	require.NoError(t, c.Client.Create(t.Context(), md))
	d := &deployment{c, client.ObjectKeyFromObject(md)}
	t.Cleanup(func() { d.forget(t) })
	d.ready(t)
	return d
}

// forget lets a ModelDeployment go whatever holds it, so that its namespace can.
func (d *deployment) forget(t *testing.T) {
	ctx := context.WithoutCancel(t.Context())
	if t.Failed() {
		md := &v1alpha1.ModelDeployment{}
		if d.cluster.Client.Get(ctx, d.key, md) == nil {
			t.Logf("status of %s: %+v %+v", d.key, md.Status.Retirement, md.Status.LastRetirement)
		}
	}
	md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.key.Namespace, Name: d.key.Name}}
	_ = d.cluster.Client.Delete(ctx, md)
	_ = d.cluster.Client.Patch(ctx, md, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

func (d *deployment) scale(t *testing.T, replicas int32) {
	t.Helper()
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Replicas = &replicas })
}

// ended waits for the end of the retirement that the present spec asks for.
func (d *deployment) ended(t *testing.T, end v1alpha1.RetirementEnd) *v1alpha1.LastRetirement {
	t.Helper()
	var last *v1alpha1.LastRetirement
	d.waitFor(t, "the retirement to end "+string(end), func(md *v1alpha1.ModelDeployment) bool {
		last = md.Status.LastRetirement
		return last != nil && last.Generation == md.Generation && last.End == end
	})
	return last
}

// target waits until a replica's retirement is in a state for a reason; for any
// where that is empty.
func (d *deployment) target(t *testing.T, role string, ordinal int32, state v1alpha1.RetirementState, reason string) (seen v1alpha1.RetirementTarget) {
	t.Helper()
	err := d.follow(t.Context(), fmt.Sprintf("%s-%d to be %s %s", role, ordinal, state, reason), func(md *v1alpha1.ModelDeployment) bool {
		if md.Status.Retirement == nil {
			return false
		}
		for _, target := range md.Status.Retirement.Targets {
			if target.Role == role && target.Ordinal == ordinal {
				seen = target
			}
		}
		return seen.State == state && (reason == "" || seen.Reason == reason)
	})
	require.NoError(t, err, "it is %+v", seen)
	return seen
}

// command runs kubectl-lastcall, and returns what it prints.
func (d *deployment) command(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	code := cli.Run(append(args, "--kubeconfig", d.cluster.Kubeconfig, "-n", d.key.Namespace), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	require.Zero(t, code, out.String())
	return out.String()
}

// told waits for an event of the ModelDeployment that says all of this: events follow
// what they tell of.
func (d *deployment) told(t *testing.T, texts ...string) {
	t.Helper()
	require.NoError(t, until(t.Context(), fmt.Sprintf("an event that says %q", texts), func() (bool, error) {
		return slices.ContainsFunc(d.events(t), func(e string) bool {
			return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(e, text) })
		}), nil
	}))
}

// serves waits until a Pod is not marked and is behind the deployment's Service.
func (d *deployment) serves(t *testing.T, pod string) {
	t.Helper()
	require.NoError(t, until(t.Context(), pod+" to serve", func() (bool, error) {
		return d.get(t, pod).Labels[names.LabelServing] == names.Serving && d.behindService(t, pod), nil
	}))
}

func (d *deployment) behindService(t *testing.T, pod string) bool {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	require.NoError(t, d.cluster.Client.List(t.Context(), &list, client.InNamespace(d.key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: d.key.Name}))
	return slices.ContainsFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.TargetRef != nil && e.TargetRef.Name == pod })
	})
}

func (d *deployment) engine(t *testing.T, pod string) *engine {
	t.Helper()
	return adopt(t, d.cluster, d.pod(pod))
}

func TestScaleDownUnderLoadCutsNothing(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(3))
	before := d.uids(t)
	records := stream(t, c, d.key.Namespace, d.key.Name)
	endings := map[string]func() (kube.Ending, error){}
	for _, name := range []string{"qwen-server-1", "qwen-server-2"} {
		var err error
		endings[name], err = c.WatchEnding(t.Context(), d.pod(name))
		require.NoError(t, err)
	}
	d.scale(t, 1)
	all(t, endings)
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, v1alpha1.CauseScaleDown, last.Cause)
	t.Logf("the retirement took %.1f s", last.EndedAt.Sub(last.StartedAt.Time).Seconds())
	requireNothingCut(t, records())
	require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, d.uids(t), "the survivor is untouched")
	for _, name := range []string{"qwen-server-1", "qwen-server-2"} {
		for _, reason := range []string{names.EventRetirementStarted, names.EventRetirementDeleting, names.EventRetirementCompleted} {
			d.told(t, reason, name)
		}
	}
}

// Connections of clients cannot be seen without being told to look at them.
func TestScaleDownWithoutEvidenceKeepsTheReplica(t *testing.T) {
	c := cluster(t)
	d := made(t, c, v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{server(2)}})
	before := d.uids(t)
	records := stream(t, c, d.key.Namespace, d.key.Name)
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateWithdrawing, names.RetireWithdrawalUnobservable)
	require.Equal(t, names.Serving, d.get(t, "qwen-server-1").Labels[names.LabelServing], "nothing is changed")
	explained := d.command(t, "explain", "qwen")
	require.Contains(t, explained, names.RetireWithdrawalUnobservable)
	require.Contains(t, explained, "Connections", "the way out")

	last := d.ended(t, v1alpha1.EndAborted)
	require.Equal(t, names.RetireWithdrawalUnobservable, last.Reason)
	require.InDelta(t, 30, last.EndedAt.Sub(last.StartedAt.Time).Seconds(), 3)
	d.told(t, names.EventRetirementAborted, "qwen-server-1")
	d.serves(t, "qwen-server-1")
	require.Equal(t, before, d.uids(t))
	d.waitFor(t, "the replica to count still", func(md *v1alpha1.ModelDeployment) bool {
		return md.Status.RoleSummary == "2S" && reason(md, names.ConditionRetiring) == string(v1alpha1.StateAborted)
	})
	served := map[string]bool{}
	all := records()
	requireNothingCut(t, all)
	for _, r := range all {
		if r.Start.After(last.EndedAt.Add(-20 * time.Second)) {
			served[r.ServedBy] = true
		}
	}
	require.Len(t, served, 2, "both replicas have traffic")

	t.Log("told to look at connections, a retry takes it away")
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Withdrawal.Direct = v1alpha1.DirectConnections })
	d.command(t, "retry", "qwen")
	d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, d.uids(t))
}

// A busy replica has the time of draining, also while its clients are still
// connected, and leaves when it is done.
func TestBusyReplicaIsHeldUntilItIsDone(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(2))
	answer := d.engine(t, "qwen-server-1").generate(t, 50*time.Second)
	d.scale(t, 1)
	held := d.target(t, "server", 1, v1alpha1.StateWithdrawing, names.HeldServingRequests)
	require.EqualValues(t, 1, *held.InFlight)
	d.told(t, names.HeldServingRequests, "qwen-server-1 is held: 1 in flight")
	explained := d.command(t, "explain", "qwen")
	require.Contains(t, explained, names.HeldServingRequests)
	require.Contains(t, explained, "1 request")
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, load.Completed, answer().Outcome)
	require.Greater(t, last.EndedAt.Sub(last.StartedAt.Time), 45*time.Second)
	require.Len(t, d.uids(t), 1)
}

// What does not become idle in its time stays, and is tried again when somebody asks.
func TestBusyReplicaIsGivenUp(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(2))
	d.engine(t, "qwen-server-1").fault(t, `{"metrics": "busy"}`)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
		s.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(40)), TotalSeconds: new(int32(90))}
	})
	d.scale(t, 1)
	d.target(t, "server", 1, v1alpha1.StateAborted, names.HeldServingRequests)
	d.told(t, names.EventRetirementAborted, "qwen-server-1")
	d.serves(t, "qwen-server-1")
	t.Log("the same token retries once")
	retry := func() {
		_, err := c.Kubectl(t.Context(), "-n", d.key.Namespace, "annotate", "md", "qwen", names.AnnotationRetryRetirement+"=once")
		require.NoError(t, err)
	}
	retry()
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldServingRequests)
	d.target(t, "server", 1, v1alpha1.StateAborted, names.HeldServingRequests)
	d.serves(t, "qwen-server-1")
	retry()
	require.NoError(t, until(t.Context(), "the annotation to be cleared", func() (bool, error) {
		md := &v1alpha1.ModelDeployment{}
		err := c.Client.Get(t.Context(), d.key, md)
		return md.Annotations[names.AnnotationRetryRetirement] == "", err
	}))
	d.target(t, "server", 1, v1alpha1.StateAborted, names.HeldServingRequests)

	t.Log("another one retries, and the replica leaves when it is done")
	d.command(t, "retry", "qwen")
	d.target(t, "server", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	d.engine(t, "qwen-server-1").fault(t, `{"metrics": ""}`)
	d.ended(t, v1alpha1.EndCompleted)
	require.Len(t, d.uids(t), 1)
}

// A spec that changes its mind, in every state that can be seen from outside.
func TestScaledBackUp(t *testing.T) {
	for _, state := range []v1alpha1.RetirementState{
		v1alpha1.StateAdmitted, v1alpha1.StateDisqualified, v1alpha1.StateWithdrawing, v1alpha1.StateDraining,
		v1alpha1.StateDeleting, v1alpha1.StateSettling, v1alpha1.StateAborted,
	} {
		t.Run("while it is "+string(state), func(t *testing.T) {
			c := cluster(t)
			d := observed(t, c, server(2))
			before := d.uids(t)
			if state == v1alpha1.StateDraining || state == v1alpha1.StateAborted {
				d.engine(t, "qwen-server-1").fault(t, `{"metrics": "busy"}`)
			}
			d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
				s.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(30)), TotalSeconds: new(int32(90))}
			})
			goOn := func(context.Context) error { return nil }
			if slices.Contains(momentary, state) {
				goOn = d.heldIn(t, state)
			}
			d.scale(t, 1)
			d.target(t, "server", 1, state, "")
			d.scale(t, 2)
			if slices.Contains(momentary, state) { // a write that was decided before the edit would be let through after it
				d.told(t, names.EventRetirementCancelled, "qwen-server-1")
			}
			require.NoError(t, goOn(t.Context()))
			d.waitFor(t, "the retirement to be over and both replicas to be up", func(md *v1alpha1.ModelDeployment) bool {
				return md.Status.Retirement == nil && md.Status.Phase == v1alpha1.PhaseReady && md.Status.RoleSummary == "2S"
			})
			d.serves(t, "qwen-server-1")
			if state == v1alpha1.StateSettling {
				require.NotEqual(t, before["qwen-server-1"], d.uids(t)["qwen-server-1"], "the delete stood, and the slot was filled again")
				return
			}
			require.Equal(t, before, d.uids(t), "nothing is lost")
			if state != v1alpha1.StateAborted {
				d.told(t, names.EventRetirementCancelled, "qwen-server-1")
			}
		})
	}
}

// Edits while a replica drains: it is read as it was deployed, and not rolled.
func TestEditsWhileAReplicaDrains(t *testing.T) {
	c := cluster(t)
	d := observed(t, c, server(3))
	before := d.uids(t)
	e := d.engine(t, "qwen-server-2")
	e.fault(t, `{"metrics": "busy"}`)
	d.scale(t, 2)
	d.target(t, "server", 2, v1alpha1.StateDraining, names.HeldServingRequests)

	t.Log("another port and another grace period roll the others")
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
		s.Roles[0].Port, s.Roles[0].TerminationGracePeriodSeconds = new(int32(8010)), new(int64(16))
	})
	d.waitFor(t, "the others to be rolled", func(md *v1alpha1.ModelDeployment) bool {
		return reason(md, names.ConditionProgressing) == names.ReasonUpToDate && d.uids(t)["qwen-server-0"] != before["qwen-server-0"]
	})
	require.Equal(t, before["qwen-server-2"], d.get(t, "qwen-server-2").UID)
	d.target(t, "server", 2, v1alpha1.StateDraining, names.HeldServingRequests)

	t.Log("a second removal waits for the first")
	d.scale(t, 1)
	d.waitFor(t, "the condition to say so", func(md *v1alpha1.ModelDeployment) bool {
		return md.Status.Retirement != nil && strings.Contains(md.Status.Retirement.Message, "1 more") && len(md.Status.Retirement.Targets) == 1
	})
	e.fault(t, `{"metrics": ""}`)
	d.waitFor(t, "one replica to be left", func(*v1alpha1.ModelDeployment) bool { return len(d.uids(t)) == 1 })
	d.ended(t, v1alpha1.EndCompleted)
	require.Contains(t, d.uids(t), "qwen-server-0")
}

func TestDroppedRoleIsRetired(t *testing.T) {
	c := cluster(t)
	extra := server(2)
	extra.Name = "extra"
	d := observed(t, c, server(1), extra)
	before := d.uids(t)
	d.engine(t, "qwen-extra-0").fault(t, `{"metrics": "busy"}`)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles = s.Roles[:1] })
	d.target(t, "extra", 0, v1alpha1.StateDraining, names.HeldServingRequests)
	d.waitFor(t, "the idle one to go alone", func(*v1alpha1.ModelDeployment) bool { return len(d.uids(t)) == 2 })
	d.engine(t, "qwen-extra-0").fault(t, `{"metrics": ""}`)
	last := d.ended(t, v1alpha1.EndCompleted)
	require.Equal(t, v1alpha1.CauseRoleDropped, last.Cause)
	require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, d.uids(t))
	require.NoError(t, until(t.Context(), "its Service to go", func() (bool, error) {
		err := c.Client.Get(t.Context(), d.pod("qwen-extra"), &corev1.Service{})
		return err != nil, client.IgnoreNotFound(err)
	}))
}

// One edit takes away what can never be proven, what is busy, and what is idle.
// Nobody waits for anybody.
func TestNobodyBlocksAnybody(t *testing.T) {
	c := cluster(t)
	prefill, busy := server(1), server(2)
	prefill.Name, prefill.Kind = "prefill", v1alpha1.Prefill
	busy.Name = "busy"
	d := observed(t, c, server(2), busy, prefill)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
		s.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(40)), TotalSeconds: new(int32(80))}
	})
	d.engine(t, "qwen-busy-1").fault(t, `{"metrics": "busy"}`)
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) {
		s.Roles[0].Replicas, s.Roles[1].Replicas, s.Roles[2].Replicas = new(int32(1)), new(int32(1)), new(int32(0))
	})
	refused := d.target(t, "prefill", 0, v1alpha1.StateAborted, names.HeldPrefillDecode)
	d.waitFor(t, "the idle one to go", func(*v1alpha1.ModelDeployment) bool {
		_, there := d.uids(t)["qwen-server-1"]
		return !there
	})
	d.target(t, "busy", 1, v1alpha1.StateDraining, names.HeldServingRequests)
	require.Contains(t, d.command(t, "explain", "qwen"), names.HeldPrefillDecode)
	d.told(t, names.EventRetirementAborted, "qwen-prefill-0")
	d.target(t, "busy", 1, v1alpha1.StateAborted, names.HeldServingRequests)

	t.Log("a later removal goes on beside what was given up")
	d.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Replicas = new(int32(0)) })
	d.engine(t, "qwen-busy-1").fault(t, `{"metrics": ""}`)
	d.waitFor(t, "the other server to go", func(*v1alpha1.ModelDeployment) bool {
		_, there := d.uids(t)["qwen-server-0"]
		return !there
	})
	require.Equal(t, refused.Members[0].UID, d.get(t, "qwen-prefill-0").UID)
}
