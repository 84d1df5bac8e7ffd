package operator

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/startup"
)

// slot is where a replica belongs.
type slot struct {
	role    string
	ordinal int32
}

// replica is the Pods of one slot, by member; nil where there is none.
type replica struct {
	slot
	// name is that of the Pod, above size 1 without its member.
	name string
	pods []*corev1.Pod
}

// slotOf reads the slot and member from a Pod's name.
func slotOf(md *v1alpha1.ModelDeployment, pod string) (at slot, member int32, ok bool) {
	role, ordinal, member, ok := render.SlotOf(md, pod)
	return slot{role, ordinal}, member, ok
}

// replicas sorts Pods into their slots. A slot the spec asks for is there also
// when it is empty.
func replicas(md *v1alpha1.ModelDeployment, pods []corev1.Pod) []*replica {
	bySlot := map[slot]*replica{}
	at := func(s slot, size int32) *replica {
		r := bySlot[s]
		if r == nil {
			r = &replica{slot: s, name: md.Name + "-" + s.role + "-" + strconv.Itoa(int(s.ordinal))}
			bySlot[s] = r
		}
		for int32(len(r.pods)) < size {
			r.pods = append(r.pods, nil)
		}
		return r
	}
	for i := range md.Spec.Roles {
		role := &md.Spec.Roles[i]
		for ordinal := range render.Replicas(role) {
			at(slot{role.Name, ordinal}, render.Size(role))
		}
	}
	for i := range pods {
		if s, member, ok := slotOf(md, pods[i].Name); ok {
			at(s, member+1).pods[member] = &pods[i]
		}
	}
	all := make([]*replica, 0, len(bySlot))
	for _, r := range bySlot {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *replica) int {
		return cmp.Or(cmp.Compare(a.role, b.role), cmp.Compare(a.ordinal, b.ordinal))
	})
	return all
}

func (r *replica) present() (pods []*corev1.Pod) {
	for _, pod := range r.pods {
		if pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (r *replica) any(is func(*corev1.Pod) bool) bool { return slices.ContainsFunc(r.present(), is) }

func (r *replica) complete() bool { return !slices.Contains(r.pods, nil) }

// ready reports whether every Pod is there, Ready and staying.
func (r *replica) ready() bool {
	return r.complete() && !r.any(func(p *corev1.Pod) bool { return leaving(p) || ended(p) || !podReady(p) })
}

// started reports whether the leader has come up, and so every member had joined
// it.
func (r *replica) started() bool { return r.pods[0] != nil && podStarted(r.pods[0]) }

// withdrawn reports whether the retirer has taken the replica out of its
// Services.
func (r *replica) withdrawn() bool {
	return r.any(func(p *corev1.Pod) bool { return p.Labels[names.LabelServing] != names.Serving })
}

// outdated reports whether a Pod was rendered from another spec than that of this
// digest.
func (r *replica) outdated(hash string) bool {
	return r.any(func(p *corev1.Pod) bool { return p.Annotations[names.AnnotationSpecHash] != hash })
}

func leaving(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// ended reports whether the Pod will never run again, such as one that its node
// evicted. It keeps its name until it is deleted.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

func pending(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }

func podReady(p *corev1.Pod) bool {
	return podCondition(p, corev1.PodReady).Status == corev1.ConditionTrue
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func engineStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == names.MainContainer {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

func podStarted(p *corev1.Pod) bool {
	s := engineStatus(p)
	return s != nil && startup.Done(p, s)
}

func restarted(p *corev1.Pod) bool {
	s := engineStatus(p)
	return s != nil && s.RestartCount > 0
}

// unadmitted reports whether the Pod was created without being seen by the
// admission webhook, and so without its drain hook.
func unadmitted(p *corev1.Pod) bool { return p.Annotations[names.AnnotationStatus] == "" }

// overdue reports whether a leaving Pod should have been gone for a while. The
// API server writes into the deletion timestamp when the grace period ends.
func overdue(p *corev1.Pod, now time.Time) bool {
	return leaving(p) && now.After(p.DeletionTimestamp.Add(overdueAfter))
}

// unschedulableAt is when a Pod that no node takes is said to be failing: a cluster
// that grows for it needs a while. Zero where it has a node or may yet get one.
func unschedulableAt(p *corev1.Pod) time.Time {
	c := podCondition(p, corev1.PodScheduled)
	if c.Reason != corev1.PodReasonUnschedulable || leaving(p) {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(unschedulableAfter)
}

const unschedulableAfter = 30 * time.Second

// overdueAfter is what a kubelet may need after the end of a grace period.
const overdueAfter = 30 * time.Second
