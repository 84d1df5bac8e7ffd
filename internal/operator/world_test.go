package operator

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// world is a ModelDeployment and its Pods, with the little of an API server and a
// kubelet that decisions depend on.
type world struct {
	md   *v1alpha1.ModelDeployment
	pods map[string]*corev1.Pod
	now  time.Time
	uids int
}

func newWorld(roles ...v1alpha1.Role) *world {
	return &world{
		md: &v1alpha1.ModelDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "qwen", UID: "md-1", Generation: 1},
			Spec: v1alpha1.ModelDeploymentSpec{
				Model:  v1alpha1.Model{Name: "Qwen/Qwen2.5-7B-Instruct"},
				Engine: v1alpha1.Engine{Name: v1alpha1.VLLM, Image: "vllm/vllm-openai:v0.29.0"},
				Roles:  roles,
			},
		},
		pods: map[string]*corev1.Pod{},
		now:  start,
	}
}

func role(name string, replicas, size int32) v1alpha1.Role {
	return v1alpha1.Role{Name: name, Replicas: &replicas, Size: &size}
}

// seen is a view of the world that later changes do not reach.
func (w *world) seen() *Seen {
	seen := &Seen{Deployment: w.md.DeepCopy(), Now: w.now}
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		seen.Pods = append(seen.Pods, *w.pods[name].DeepCopy())
	}
	for _, service := range render.Services(w.md) {
		seen.Services = append(seen.Services, *service)
	}
	return seen
}

// create admits a Pod as the webhook would; false where its name is taken.
func (w *world) create(pod *corev1.Pod) bool {
	if w.pods[pod.Name] != nil {
		return false
	}
	w.uids++
	pod = pod.DeepCopy()
	pod.UID = types.UID(fmt.Sprint("pod-", w.uids))
	pod.Annotations[names.AnnotationStatus] = `{"outcome":"injected"}`
	pod.Status.Phase = corev1.PodPending
	w.pods[pod.Name] = pod
	return true
}

// delete starts the grace period of a Pod; false where it is not the one meant.
func (w *world) delete(name string, uid types.UID) bool {
	pod := w.pods[name]
	if pod == nil || pod.UID != uid {
		return false
	}
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &metav1.Time{Time: w.now.Add(30 * time.Second)}
	}
	return true
}

// fill creates and brings up every replica of a role, as the present spec has it.
func (w *world) fill(role string) {
	i := slices.IndexFunc(w.md.Spec.Roles, func(r v1alpha1.Role) bool { return r.Name == role })
	for ordinal := range render.Replicas(&w.md.Spec.Roles[i]) {
		for _, pod := range render.Replica(w.md, &w.md.Spec.Roles[i], ordinal) {
			w.create(pod)
			w.up(pod.Name)
		}
	}
}

// up starts the engine of a Pod and makes it Ready.
func (w *world) up(name string) *corev1.Pod {
	pod := w.pods[name]
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	engine := engineStatus(pod)
	if engine == nil {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: names.MainContainer}}
		engine = engineStatus(pod)
	}
	engine.Started, engine.State = new(true), corev1.ContainerState{}
	return pod
}

// down makes a Pod not Ready. Its engine stays up.
func (w *world) down(name string) *corev1.Pod {
	pod := w.pods[name]
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	return pod
}

// kubeletRestarts is what a kubelet before 1.35 says of an engine when it comes back.
func (w *world) kubeletRestarts(name string) {
	engine := engineStatus(w.down(name))
	engine.Started, engine.State.Running = new(false), &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now.Add(-time.Hour))}
	w.pods[name].Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now)
}

func (w *world) leave(name string) { w.delete(name, w.pods[name].UID) }

// edit changes what is rendered for every role.
func (w *world) edit(image string) {
	w.md.Spec.Engine.Image = image
	w.md.Generation++
}

// doing is a plan in the words of a test: what is removed, and what is created.
func doing(plan *Plan) (all []string) {
	for _, r := range plan.Remove {
		all = append(all, fmt.Sprintf("remove %s: %s", r.Pod, r.Reason))
	}
	for _, c := range plan.Create {
		for _, pod := range c.Pods {
			all = append(all, "create "+pod.Name)
		}
	}
	slices.Sort(all)
	return all
}

func TestSlotOf(t *testing.T) {
	md := newWorld().md
	for name, want := range map[string]struct {
		at     slot
		member int32
		ok     bool
	}{
		"qwen-server-0":            {slot{"server", 0}, 0, true},
		"qwen-server-17-3":         {slot{"server", 17}, 3, true},
		"qwen-server":              {},
		"qwen-server-x":            {},
		"qwen-server-01":           {},
		"qwen-server-1-2-3":        {},
		"qwen-server--1":           {},
		"other-server-1":           {},
		"qwen-server-1-":           {},
		"qwen-server-999999999999": {},
	} {
		at, member, ok := slotOf(md, name)
		require.Equal(t, want.ok, ok, name)
		if ok {
			require.Equal(t, want.at, at, name)
			require.Equal(t, want.member, member, name)
		}
	}
}
