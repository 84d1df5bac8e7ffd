package retirer

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

const record = `{"outcome":"injected","engine":"vllm","container":"engine","metricsURL":"http://127.0.0.1:8000/metrics"}`

// member is a Pod of one, whose engine runs.
func member(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "serving", Name: "chat-server-1", UID: "a", ResourceVersion: "7",
			Labels: map[string]string{
				names.LabelComponent: "server", names.LabelOrdinal: "1", names.LabelMember: "0", names.LabelSize: "1", names.LabelServing: names.Serving,
			},
			Annotations: map[string]string{names.AnnotationStatus: record},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(330)), Subdomain: "chat-server",
			Containers: []corev1.Container{
				{Name: "sidecar", Ports: []corev1.ContainerPort{{ContainerPort: 9000}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}}},
				{Name: "engine", Image: "vllm/vllm-openai:v0.29.0", Ports: []corev1.ContainerPort{{ContainerPort: 8000}}},
			},
			InitContainers: []corev1.Container{{Name: "proxy", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8443}}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}, HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "sidecar", ContainerID: "containerd://s"},
				{Name: "engine", ContainerID: "containerd://e", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func TestAMemberIsWhatItsPodSays(t *testing.T) {
	whole := retire.Member{
		Name: "chat-server-1", UID: "a", ResourceVersion: "7", Size: 1, ContainerID: "containerd://e", Running: true,
		Grace: 330 * time.Second, Engine: "vllm", Endpoint: "http://127.0.0.1:8000/metrics", Refresh: 6 * time.Second,
	}
	leaving := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for what, tc := range map[string]struct {
		pod  func(*corev1.Pod)
		want func(*retire.Member)
	}{
		"as it serves": {func(*corev1.Pod) {}, func(*retire.Member) {}},
		"marked": {
			func(p *corev1.Pod) { p.Labels[names.LabelServing] = names.Withdrawn },
			func(m *retire.Member) { m.Withdrawn = true },
		},
		"without labels that number it": {
			func(p *corev1.Pod) { delete(p.Labels, names.LabelMember); p.Labels[names.LabelSize] = "-1" },
			func(m *retire.Member) { m.Index, m.Size = -1, 0 },
		},
		"with a number that is none": {
			func(p *corev1.Pod) { p.Labels[names.LabelMember] = "4294967296" },
			func(m *retire.Member) { m.Index = -1 },
		},
		"without a grace period: that of Kubernetes": {
			func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = nil },
			func(m *retire.Member) { m.Grace = 30 * time.Second },
		},
		"leaving": {
			func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: leaving} },
			func(m *retire.Member) { m.LeavingBy = leaving },
		},
		"ended": {
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
			func(m *retire.Member) { m.Ended = true },
		},
		"between two starts of its engine": {
			func(p *corev1.Pod) { p.Status.ContainerStatuses[1].State = corev1.ContainerState{} },
			func(m *retire.Member) { m.Running = false },
		},
		"never started": {
			func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} },
			func(m *retire.Member) { m.Running, m.ContainerID = false, "" },
		},
		"of an engine that is not known": {
			func(p *corev1.Pod) {
				p.Annotations[names.AnnotationStatus] = `{"outcome":"injected","engine":"later","container":"engine"}`
			},
			func(m *retire.Member) { m.Engine, m.Endpoint, m.Refresh = "later", "", 0 },
		},
		"never admitted: of the container that the operator names, without an engine": {
			func(p *corev1.Pod) {
				delete(p.Annotations, names.AnnotationStatus)
				p.Status.ContainerStatuses[1].Name = names.MainContainer
			},
			func(m *retire.Member) { m.Engine, m.Endpoint, m.Refresh = "", "", 0 },
		},
		"whose command line is the user's": {
			func(p *corev1.Pod) { p.Annotations[names.AnnotationTakeOver] = "true" },
			func(m *retire.Member) { m.TakenOver = true },
		},
		"made to prefill": {
			func(p *corev1.Pod) { p.Labels[names.LabelRoleKind] = string(v1alpha1.Prefill) },
			func(m *retire.Member) { m.Split = true },
		},
		"that prefills by its own command line": {
			func(p *corev1.Pod) {
				p.Spec.Containers[1].Args = []string{"vllm", "serve", "m", "--kv-transfer-config", `{"kv_connector":"NixlConnector","kv_role":"kv_both"}`}
			},
			func(m *retire.Member) { m.Split = true },
		},
		"a model that is being loaded": {
			loading(corev1.ConditionFalse, -time.Minute),
			func(m *retire.Member) { m.Starting = true },
		},
		"a model that is being loaded, of a Pod without conditions": {
			func(p *corev1.Pod) { loading("", 0)(p); p.Status.Conditions = nil },
			func(m *retire.Member) { m.Starting = true },
		},
		"that serves on, and whose kubelet was restarted": {loading(corev1.ConditionFalse, time.Hour), func(*retire.Member) {}},
		"that is Ready, whatever its container says":      {loading(corev1.ConditionTrue, -time.Minute), func(*retire.Member) {}},
		"a record that names no container of the Pod": {
			func(p *corev1.Pod) {
				p.Annotations[names.AnnotationStatus] = strings.Replace(p.Annotations[names.AnnotationStatus], `"container":"engine"`, `"container":"none"`, 1)
				p.Status.ContainerStatuses = p.Status.ContainerStatuses[1:]
			},
			func(*retire.Member) {}, // it runs all the same, for all that is known
		},
	} {
		t.Run(what, func(t *testing.T) {
			want := whole
			tc.want(&want)
			assert.Equal(t, want, memberOf(member(tc.pod)))
			slim, err := slimPod(member(tc.pod))
			assert.NoError(t, err)
			assert.Equal(t, want, memberOf(slim.(*corev1.Pod)), "what the cache keeps says the same")
		})
	}
}

// loading is a container that has not started, in a Pod whose readiness changed last that
// long after the container began to run.
func loading(ready corev1.ConditionStatus, since time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		c := &p.Status.ContainerStatuses[1]
		c.Started, c.State.Running = new(false), &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(began.Add(since))}}
	}
}

func TestPortsAreThoseThatClientsMayBeConnectedTo(t *testing.T) {
	assert.Equal(t, []uint16{8000, 8443}, ports(member()), "the engine's, and its proxy's, each once; not a sidecar's own")
	assert.Equal(t, []uint16{8443}, ports(member(func(p *corev1.Pod) { p.Annotations = nil })), "without a record")
	assert.Equal(t, []uint16{8000, 15006, 15008, 8443}, ports(member(func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy"})
	})), "in a mesh")
}

func TestASpecIsWhatIsAsked(t *testing.T) {
	budgets := retire.Budgets{Withdraw: 30 * time.Second, Drain: 240 * time.Second, Total: 300 * time.Second}
	for what, tc := range map[string]struct {
		change func(*v1alpha1.ModelDeployment)
		want   func(*retire.Spec)
	}{
		"nothing but roles": {func(*v1alpha1.ModelDeployment) {}, func(*retire.Spec) {}},
		"a longer drain makes the whole longer": {
			func(md *v1alpha1.ModelDeployment) { md.Spec.Retirement.DrainSeconds = new(int32(600)) },
			func(s *retire.Spec) { s.Budgets.Drain, s.Budgets.Total = 600*time.Second, 660*time.Second },
		},
		"a shorter drain leaves the whole": {
			func(md *v1alpha1.ModelDeployment) { md.Spec.Retirement.DrainSeconds = new(int32(5)) },
			func(s *retire.Spec) { s.Budgets.Drain = 5 * time.Second },
		},
		"both": {
			func(md *v1alpha1.ModelDeployment) {
				md.Spec.Retirement.DrainSeconds, md.Spec.Retirement.TotalSeconds = new(int32(600)), new(int32(10))
			},
			func(s *retire.Spec) { s.Budgets.Drain, s.Budgets.Total = 600*time.Second, 10*time.Second },
		},
		"connections as proof": {
			func(md *v1alpha1.ModelDeployment) { md.Spec.Withdrawal.Direct = v1alpha1.DirectConnections },
			func(s *retire.Spec) { s.Plan = retire.PlanConnections },
		},
		"a deletion that waits": {
			func(md *v1alpha1.ModelDeployment) {
				md.DeletionTimestamp = new(metav1.Now())
				md.Annotations = map[string]string{names.AnnotationDeletion: names.DeletionWaitForIdle}
			},
			func(s *retire.Spec) { s.Deleting, s.WaitForIdle = true, true },
		},
		"a deletion with an annotation that says nothing": {
			func(md *v1alpha1.ModelDeployment) {
				md.DeletionTimestamp = new(metav1.Now())
				md.Annotations = map[string]string{names.AnnotationDeletion: "waitforidle"}
			},
			func(s *retire.Spec) { s.Deleting = true },
		},
		"a retry": {
			func(md *v1alpha1.ModelDeployment) {
				md.Annotations = map[string]string{names.AnnotationRetryRetirement: "t"}
			},
			func(s *retire.Spec) { s.RetryToken = "t" },
		},
	} {
		t.Run(what, func(t *testing.T) {
			md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
			md.Spec.Roles = []v1alpha1.Role{{Name: "server"}, {Name: "pair", Replicas: new(int32(0))}}
			want := retire.Spec{Generation: 3, Wanted: map[string]int32{"server": 1, "pair": 0}, Plan: retire.PlanHold, Budgets: budgets}
			tc.change(md)
			tc.want(&want)
			assert.Equal(t, want, specOf(md, budgets))
		})
	}
}

func TestAPodWithoutASlotIsNobodys(t *testing.T) {
	for _, name := range []string{"chat", "chat-server", "chat-server-x", "chat-server--1", "chat-server-01", "other-server-1", "chat-server-2147483648", "chat-server-1-0-0"} {
		s := &seen{deployment: &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Name: "chat"}}}
		s.add(member(func(p *corev1.Pod) { p.Name = name }), false)
		assert.Empty(t, s.observations.Replicas, name)
	}
}

func TestLabelsThatSomebodyEditedMoveNoPod(t *testing.T) {
	s := &seen{deployment: &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Name: "chat"}}, pods: map[types.UID]*corev1.Pod{}}
	s.add(member(func(p *corev1.Pod) {
		p.Labels[names.LabelOrdinal], p.Labels[names.LabelComponent] = "7", strings.Repeat("x", 40)
	}), false)
	assert.Equal(t, "server", s.observations.Replicas[0].Role)
	assert.EqualValues(t, 1, s.observations.Replicas[0].Ordinal)
}

func TestBudgetsThatAreNotSetAreTheProtocols(t *testing.T) {
	assert.Equal(t, retire.Budgets{Withdraw: time.Second, Drain: retire.DefaultDrain, Total: retire.DefaultTotal}, budgets(retire.Budgets{Withdraw: time.Second}))
}

func TestTheCacheKeepsWhatDecisionsNeedAndNoMore(t *testing.T) {
	whole := member(func(p *corev1.Pod) {
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		p.Spec.HostNetwork, p.Spec.NodeName = true, "n"
		p.Spec.Volumes = []corev1.Volume{{Name: "weights"}}
		p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		p.Spec.Containers[1].Command, p.Spec.Containers[1].Args = []string{"vllm"}, []string{"serve"}
		p.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "weights"}}
	})
	want := whole.DeepCopy()
	want.ManagedFields, want.Spec.Volumes, want.Spec.Containers[1].VolumeMounts = nil, nil, nil
	slim, err := slimPod(whole)
	assert.NoError(t, err)
	assert.Equal(t, want, slim)
	node, err := slimNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}, Images: []corev1.ContainerImage{{}}},
	})
	assert.NoError(t, err)
	assert.Equal(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady}}},
	}, node)
	other, err := slimPod("a tombstone")
	assert.NoError(t, err)
	assert.Equal(t, "a tombstone", other)
}

func TestWhatADeletionFinds(t *testing.T) {
	for what, tc := range map[string]struct {
		taken    []int
		cascade  bool
		orphaned bool
		replicas int
	}{
		"all that it controls":                            {nil, false, false, 3},
		"one that somebody has taken out":                 {[]int{1}, false, false, 2},
		"all of them left behind, and its finalizer gone": {[]int{0, 1, 2}, false, true, 3},
		"some of them left behind so far":                 {[]int{1}, true, true, 3},
		"none of them left behind yet":                    {nil, true, true, 3},
	} {
		t.Run(what, func(t *testing.T) {
			md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{
				Name: "chat", Namespace: "ns", UID: "md", DeletionTimestamp: new(metav1.Now()), Finalizers: []string{names.Finalizer},
			}}
			if tc.cascade {
				md.Finalizers = append(md.Finalizers, metav1.FinalizerOrphanDependents)
			}
			md.Spec.Roles = []v1alpha1.Role{{Name: "server", Replicas: new(int32(3))}}
			md.Status.Retirement = &v1alpha1.RetirementStatus{Cause: v1alpha1.CauseDeletion, State: v1alpha1.StateDraining}
			var pods []client.Object
			for i := range 3 {
				p := member(func(p *corev1.Pod) {
					p.Name, p.Namespace = fmt.Sprintf("chat-server-%d", i), "ns"
					p.UID = types.UID(p.Name)
					p.Labels[names.LabelManagedBy], p.Labels[names.LabelInstance] = names.Operator, "chat"
					if !slices.Contains(tc.taken, i) {
						p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(md, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))}
					}
				})
				pods = append(pods, p)
				md.Status.Retirement.Targets = append(md.Status.Retirement.Targets, v1alpha1.RetirementTarget{
					Role: "server", Ordinal: int32(i), State: v1alpha1.StateDraining, PhaseStartedAt: metav1.NowMicro(),
					Members: []v1alpha1.RetirementMember{{Name: p.Name, UID: p.UID, ContainerID: "containerd://e", Answering: true}},
				})
			}
			s := &seen{deployment: md, pods: map[types.UID]*corev1.Pod{}}
			require.NoError(t, (&Reconciler{}).gatherPods(t.Context(), fake.NewClientBuilder().WithObjects(pods...).Build(), s))
			assert.Equal(t, tc.orphaned, s.observations.Orphaned)
			assert.Len(t, s.observations.Replicas, tc.replicas)
		})
	}
}
