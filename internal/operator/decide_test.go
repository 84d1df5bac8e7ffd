package operator

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	one, two := role("server", 3, 1), role("server", 2, 2)
	for name, row := range map[string]struct {
		role  v1alpha1.Role
		empty bool // otherwise every replica is up
		world func(w *world)
		want  []string
	}{
		"nothing is there: everything is created at once": {
			role: one, empty: true, world: func(*world) {},
			want: []string{"create qwen-server-0", "create qwen-server-1", "create qwen-server-2"},
		},
		"everything is there": {role: one, world: func(*world) {}},
		"a replica that was lost is made again": {
			role: one, world: func(w *world) { delete(w.pods, "qwen-server-1") },
			want: []string{"create qwen-server-1"},
		},
		"a slot is not filled while its Pod leaves": {
			role: one, world: func(w *world) { w.leave("qwen-server-1") },
		},
		"an evicted Pod does not keep its slot": {
			role: one, world: func(w *world) { w.pods["qwen-server-1"].Status.Phase = corev1.PodFailed },
			want: []string{"remove qwen-server-1: PodEnded"},
		},
		"a Pod past the webhook goes": {
			role: one, world: func(w *world) { delete(w.pods["qwen-server-1"].Annotations, names.AnnotationStatus) },
			want: []string{"remove qwen-server-1: NotInjected"},
		},
		"a container that restarts alone is the kubelet's": {
			role: one, world: func(w *world) { engineStatus(w.pods["qwen-server-1"]).RestartCount = 3 },
		},
		"an edit replaces the highest ordinal first": {
			role: one, world: func(w *world) { w.edit("new") },
			want: []string{"remove qwen-server-2: Outdated"},
		},
		"an edit waits while a replica is missing, which is made of the present spec": {
			role: one, world: func(w *world) { w.edit("new"); delete(w.pods, "qwen-server-2") },
			want: []string{"create qwen-server-2"},
		},
		"an edit waits while a replica leaves": {
			role: one, world: func(w *world) { w.edit("new"); w.leave("qwen-server-2") },
		},
		"an edit waits while another replica is withdrawn": {
			role: one, world: func(w *world) { w.edit("new"); w.pods["qwen-server-0"].Labels[names.LabelServing] = names.Withdrawn },
		},
		"an edit replaces a replica that is not Ready before any other": {
			role: one, world: func(w *world) { w.edit("new"); w.down("qwen-server-0") },
			want: []string{"remove qwen-server-0: Outdated"},
		},
		"of two that are not Ready, which only the edit may mend, one is": {
			role: one, world: func(w *world) { w.edit("new"); w.down("qwen-server-0"); w.down("qwen-server-1") },
			want: []string{"remove qwen-server-1: Outdated"},
		},
		"but not while one of the present spec is not Ready": {
			role: one, world: func(w *world) {
				w.edit("new")
				delete(w.pods, "qwen-server-2")
				w.fill("server")
				w.down("qwen-server-2")
				w.down("qwen-server-1")
			},
		},
		"one that never came up is replaced whatever the others do": {
			role: one, world: func(w *world) {
				w.edit("new")
				w.down("qwen-server-0")
				w.pods["qwen-server-1"].Status = corev1.PodStatus{Phase: corev1.PodPending}
			},
			want: []string{"remove qwen-server-1: Outdated"},
		},
		"a kubelet that restarts makes of none one that never came up": {
			role: one, world: func(w *world) {
				w.edit("new")
				for name := range w.pods {
					w.kubeletRestarts(name)
				}
			},
			want: []string{"remove qwen-server-2: Outdated"},
		},
		"a replica that retires is not rolled": {
			role: one, world: func(w *world) {
				w.edit("new")
				w.md.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{{Role: "server", Ordinal: 2, State: v1alpha1.StateDraining}}}
			},
			want: []string{"remove qwen-server-1: Outdated"},
		},
		"one that is wanted again after its retirement was given up is": {
			role: one, world: func(w *world) {
				w.edit("new")
				w.md.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{{Role: "server", Ordinal: 2, State: v1alpha1.StateAborted}}}
			},
			want: []string{"remove qwen-server-2: Outdated"},
		},
		"a lower number of replicas removes nothing": {
			role: one, world: func(w *world) { w.md.Spec.Roles[0].Replicas = new(int32(1)) },
		},
		"nor is a surplus replica made again, or rolled": {
			role: one, world: func(w *world) {
				w.md.Spec.Roles[0].Replicas = new(int32(2))
				delete(w.pods, "qwen-server-2")
				w.pods["qwen-server-1"].Annotations[names.AnnotationSpecHash] = "old"
			},
			want: []string{"remove qwen-server-1: Outdated"},
		},
		"a dropped role is left alone": {
			role: one, world: func(w *world) { w.md.Spec.Roles = []v1alpha1.Role{role("other", 0, 1)} },
		},
		"a spec that cannot be rendered changes nothing": {
			role: one, world: func(w *world) { w.edit("new"); w.md.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(5)) },
		},
		"a deployment that is deleted is left to its owner references": {
			role: one, world: func(w *world) {
				w.md.DeletionTimestamp = &metav1.Time{Time: w.now}
				delete(w.pods, "qwen-server-1")
			},
		},
		"scaling up leaves the others alone": {
			role: one, world: func(w *world) { w.md.Spec.Roles[0].Replicas = new(int32(4)) },
			want: []string{"create qwen-server-3"},
		},

		"two Pods: a member that is lost takes its leader along first": {
			role: two, world: func(w *world) { delete(w.pods, "qwen-server-1-1") },
			want: []string{"remove qwen-server-1-0: PodDeleted"},
		},
		"two Pods: the worker stays while its leader drains": {
			role: two, world: func(w *world) { w.leave("qwen-server-1-0") },
		},
		"two Pods: and goes once the leader is gone": {
			role: two, world: func(w *world) { delete(w.pods, "qwen-server-1-0") },
			want: []string{"remove qwen-server-1-1: PodDeleted"},
		},
		"two Pods: or should have been": {
			role: two, world: func(w *world) { w.leave("qwen-server-1-0"); w.now = w.now.Add(61 * time.Second) },
			want: []string{"remove qwen-server-1-1: PodDeleted"},
		},
		"two Pods: a restart of one replaces both": {
			role: two, world: func(w *world) { engineStatus(w.pods["qwen-server-0-1"]).RestartCount = 1 },
			want: []string{"remove qwen-server-0-0: PodRestarted"},
		},
		"two Pods: a create that was cut short goes on": {
			role: two, world: func(w *world) {
				w.pods["qwen-server-1-0"].Status = corev1.PodStatus{Phase: corev1.PodPending}
				delete(w.pods, "qwen-server-1-1")
			},
			want: []string{"create qwen-server-1-1"},
		},
		"two Pods: a worker that gives up on a leader without a node is the kubelet's": {
			role: two, world: func(w *world) {
				w.pods["qwen-server-1-0"].Status = corev1.PodStatus{Phase: corev1.PodPending}
				engineStatus(w.pods["qwen-server-1-1"]).RestartCount = 2
			},
		},
		"two Pods: an edit starts with one leader": {
			role: two, world: func(w *world) { w.edit("new") },
			want: []string{"remove qwen-server-1-0: Outdated"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(row.role)
			if !row.empty {
				w.fill("server")
			}
			row.world(w)
			require.Equal(t, row.want, doing(Decide(w.seen())))
		})
	}
}

func TestASlotThatFailedIsLeftAlone(t *testing.T) {
	w := newWorld(role("server", 2, 1))
	seen := w.seen()
	seen.RetryAt = map[string]time.Time{"qwen-server-0": w.now.Add(5 * time.Second)}
	plan := Decide(seen)
	require.Equal(t, []string{"create qwen-server-1"}, doing(plan))
	require.Equal(t, w.now.Add(5*time.Second), plan.RecheckAt)

	seen.Now = w.now.Add(5 * time.Second)
	require.Equal(t, []string{"create qwen-server-0", "create qwen-server-1"}, doing(Decide(seen)))
}

// Without probes a Pod is Ready when its container starts, and again after every
// restart.
func TestARolloutWithoutProbesWaitsUntilAReplicaStaysUp(t *testing.T) {
	takeOver := role("server", 2, 1)
	takeOver.Command = []string{"my-engine"}
	w := newWorld(takeOver)
	w.fill("server")
	w.edit("new")
	delete(w.pods, "qwen-server-1")
	w.fill("server")
	ready := &w.pods["qwen-server-1"].Status.Conditions[0]
	ready.LastTransitionTime = metav1.NewTime(w.now)
	plan := Decide(w.seen())
	require.Empty(t, doing(plan))
	require.Equal(t, w.now.Add(30*time.Second), plan.RecheckAt)
	require.Contains(t, w.report(w.seen()).message, "waiting for qwen-server-1, which has been Ready for less than 30 s")

	w.now = w.now.Add(30 * time.Second)
	require.Equal(t, []string{"remove qwen-server-0: Outdated"}, doing(Decide(w.seen())))
}

// Its leader has no probes, and so is up at once.
func TestATakeOverReplicaWhoseSecondPodIsRefusedKeepsItsFirst(t *testing.T) {
	takeOver := role("server", 1, 2)
	takeOver.Command = []string{"my-engine"}
	w := newWorld(takeOver)
	w.fill("server")
	delete(w.pods, "qwen-server-0-1")
	seen := w.seen()
	require.Equal(t, []string{"remove qwen-server-0-0: PodDeleted"}, doing(Decide(seen)))
	seen.Failures = map[string]Failure{"Pod/qwen-server-0-1": {Reason: names.ReasonCreateFailed}}
	require.Equal(t, []string{"create qwen-server-0-1"}, doing(Decide(seen)))
}

// A Pod that an earlier ModelDeployment of the same name left behind has another
// owner, and is nobody's here; see controlled.
func TestOnlyItsOwnPodsAreSeen(t *testing.T) {
	w := newWorld(role("server", 1, 1))
	w.fill("server")
	pod := *w.pods["qwen-server-0"]
	require.Len(t, controlled(w.md, []corev1.Pod{pod}, func(p *corev1.Pod) metav1.Object { return p }), 1)
	w.md.UID = "md-2"
	require.Empty(t, controlled(w.md, []corev1.Pod{pod}, func(p *corev1.Pod) metav1.Object { return p }))
}

func TestServicesAndBudgets(t *testing.T) {
	w := newWorld(role("server", 3, 1))
	w.fill("server")
	seen := w.seen()
	seen.Services = nil
	plan := Decide(seen)
	require.Len(t, plan.Services, 2)
	require.Len(t, plan.Budgets, 1)
	require.EqualValues(t, 2, plan.Budgets[0].Spec.MinAvailable.IntVal)

	for _, service := range plan.Services {
		seen.Services = append(seen.Services, *service)
	}
	seen.Budgets = append(seen.Budgets, *plan.Budgets[0])
	plan = Decide(seen)
	require.Empty(t, plan.Services)
	require.Empty(t, plan.Budgets)

	t.Run("a selector that somebody changed is put back", func(t *testing.T) {
		changed := *seen
		changed.Services = []corev1.Service{*seen.Services[0].DeepCopy(), seen.Services[1]}
		changed.Services[0].Spec.Selector["x"] = "y"
		require.Len(t, Decide(&changed).Services, 1)
	})
	t.Run("a surplus replica counts in the budget for as long as it stays", func(t *testing.T) {
		fewer := *seen
		fewer.Deployment = seen.Deployment.DeepCopy()
		fewer.Deployment.Spec.Roles[0].Replicas = new(int32(1))
		require.Empty(t, Decide(&fewer).Budgets)

		fewer.Pods = slices.DeleteFunc(slices.Clone(seen.Pods), func(p corev1.Pod) bool { return p.Name == "qwen-server-0" })
		require.Empty(t, Decide(&fewer).Budgets, "the wanted one that is gone is what an eviction may take")
		fewer.Pods = fewer.Pods[:1]
		require.EqualValues(t, 1, Decide(&fewer).Budgets[0].Spec.MinAvailable.IntVal)
	})
	t.Run("the Service of a dropped role stays until its last Pod is gone", func(t *testing.T) {
		dropped := *seen
		dropped.Deployment = seen.Deployment.DeepCopy()
		dropped.Deployment.Spec.Roles = []v1alpha1.Role{role("other", 1, 1)}
		require.Empty(t, Decide(&dropped).Drop)
		dropped.Pods = nil
		plan := Decide(&dropped)
		require.Len(t, plan.Drop, 1)
		require.Equal(t, "qwen-server", plan.Drop[0].Name)
	})
	t.Run("the budget of a dropped role lets its Pods go one by one", func(t *testing.T) {
		dropped := *seen
		dropped.Deployment = seen.Deployment.DeepCopy()
		dropped.Deployment.Spec.Roles = []v1alpha1.Role{role("other", 1, 1)}
		dropped.Pods = seen.Pods[:2]
		for _, budget := range Decide(&dropped).Budgets {
			if budget.Name == "qwen-server" {
				require.EqualValues(t, 1, budget.Spec.MinAvailable.IntVal)
				return
			}
		}
		t.Fatal("the budget of three Pods stays as it was, and no eviction is allowed any more")
	})
}
