package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// Report is the status of what was seen: the operator's part of it. The rest is
// the retirer's.
func Report(seen *Seen) v1alpha1.ModelDeploymentStatus {
	s := look(seen)
	before := &seen.Deployment.Status
	status := v1alpha1.ModelDeploymentStatus{
		ObservedGeneration: seen.Deployment.Generation,
		Roles:              s.roles(),
	}
	status.RoleSummary = summary(status.Roles)
	ready, progressing := s.ready(status.Roles), s.progressing()
	for _, c := range []metav1.Condition{ready, progressing} {
		// What is there is kept where its status is the same, so that the time of the
		// last transition says when it last changed.
		if old := meta.FindStatusCondition(before.Conditions, c.Type); old != nil {
			status.Conditions = append(status.Conditions, *old)
		}
		c.ObservedGeneration = seen.Deployment.Generation
		c.LastTransitionTime = metav1.NewTime(seen.Now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	status.Phase = phase(seen.Deployment, ready, progressing, status.Roles)
	return status
}

// roles counts the replicas of the spec's roles, in its order, and then those of
// roles that were dropped.
func (s *survey) roles() (all []v1alpha1.RoleStatus) {
	count := func(status v1alpha1.RoleStatus) {
		for _, r := range s.all {
			if r.role != status.Name {
				continue
			}
			if r.ready() {
				status.Ready++
			}
			if s.retiring(r) {
				status.Retiring++
			}
		}
		all = append(all, status)
	}
	for i := range s.Deployment.Spec.Roles {
		role := &s.Deployment.Spec.Roles[i]
		count(v1alpha1.RoleStatus{
			Name: role.Name, Kind: render.Kind(role), Desired: render.Replicas(role), Unmanaged: render.TakenOver(role),
			SpecHash: s.hashes[role.Name],
		})
	}
	for _, r := range s.all {
		known := slices.ContainsFunc(all, func(status v1alpha1.RoleStatus) bool { return status.Name == r.role })
		if pods := r.present(); !known && len(pods) > 0 {
			labels, annotations := pods[0].Labels, pods[0].Annotations
			count(v1alpha1.RoleStatus{
				Name:      r.role,
				Kind:      cmp.Or(v1alpha1.RoleKind(labels[names.LabelRoleKind]), v1alpha1.Server),
				Unmanaged: annotations[names.AnnotationTakeOver] == "true",
			})
		}
	}
	return all
}

// summary is the number of ready replicas by kind, such as 2S or 1P1D.
func summary(roles []v1alpha1.RoleStatus) string {
	var text strings.Builder
	for _, kind := range []v1alpha1.RoleKind{v1alpha1.Server, v1alpha1.Prefill, v1alpha1.Decode} {
		there, ready := false, int32(0)
		for _, role := range roles {
			if role.Kind == kind {
				there = true
				ready += role.Ready
			}
		}
		if there {
			fmt.Fprintf(&text, "%d%c", ready, kind[0])
		}
	}
	return text.String()
}

func (s *survey) ready(roles []v1alpha1.RoleStatus) metav1.Condition {
	if s.Deployment.DeletionTimestamp != nil {
		return metav1.Condition{Type: names.ConditionReady, Status: metav1.ConditionFalse, Reason: names.ReasonDeleting, Message: "being deleted"}
	}
	c := metav1.Condition{Type: names.ConditionReady, Status: metav1.ConditionTrue, Reason: names.ReasonAllReplicasReady}
	var counts []string
	for _, role := range roles {
		if role.Desired == 0 {
			continue
		}
		// Replicas beyond the spec's do not stand in for one that is missing.
		ready := int32(len(slices.DeleteFunc(slices.Clone(s.wanted[role.Name]), func(r *replica) bool { return !r.ready() })))
		counts = append(counts, fmt.Sprintf("%s: %d of %d ready", role.Name, ready, role.Desired))
		if ready < role.Desired {
			c.Status, c.Reason = metav1.ConditionFalse, names.ReasonReplicasNotReady
		}
	}
	c.Message = strings.Join(counts, ", ")
	return c
}

func (s *survey) progressing() metav1.Condition {
	c := metav1.Condition{Type: names.ConditionProgressing, Status: metav1.ConditionFalse}
	switch {
	case s.Deployment.DeletionTimestamp != nil:
		c.Reason, c.Message = names.ReasonDeleting, "being deleted"
		return c
	case len(s.invalid) > 0:
		c.Reason, c.Message = names.ReasonRenderFailed, s.invalid.ToAggregate().Error()
		return c
	}
	if reason, message := s.failed(); reason != "" {
		c.Reason, c.Message = reason, message
		return c
	}
	open, outdated := s.open()
	if len(open) == 0 && len(outdated) == 0 {
		c.Reason, c.Message = names.ReasonUpToDate, "every replica has the present spec"
		return c
	}
	if why := s.failing(open); why != "" {
		c.Reason, c.Message = names.ReasonReplicaFailing, why
		if len(outdated) > 0 {
			c.Message += fmt.Sprintf("; %s of an older spec stay until it is Ready", plural(len(outdated), "replica"))
		}
		return c
	}
	c.Status = metav1.ConditionTrue
	c.Reason = s.reason(open, outdated)
	c.Message = s.waiting(open, outdated)
	return c
}

// failed is the first thing that the API server did not take and that is still
// wanted; names that are taken before others.
func (s *survey) failed() (reason, message string) {
	for _, object := range slices.Sorted(maps.Keys(s.Failures)) {
		f := s.Failures[object]
		if s.missing(object) && (reason == "" || f.Reason == names.ReasonNameTaken && reason != names.ReasonNameTaken) {
			reason, message = f.Reason, f.Message
		}
	}
	return reason, message
}

// missing reports whether the object, as KIND/NAME, is wanted and is not there as
// it should be.
func (s *survey) missing(object string) bool {
	md := s.Deployment
	if pod, ok := strings.CutPrefix(object, kindPod); ok {
		at, member, ok := slotOf(md, pod)
		return ok && slices.ContainsFunc(s.wanted[at.role], func(r *replica) bool {
			return r.ordinal == at.ordinal && int(member) < len(r.pods) && (r.pods[member] == nil || leaving(r.pods[member]))
		})
	}
	if name, ok := strings.CutPrefix(object, kindService); ok {
		return slices.ContainsFunc(s.staleServices(), func(service *corev1.Service) bool { return service.Name == name })
	}
	return slices.ContainsFunc(s.staleBudgets(), func(b *policyv1.PodDisruptionBudget) bool { return object == kindBudget+b.Name })
}

// open are the wanted replicas that are being made, by role and ordinal, and
// outdated those of an older spec. A replica that is up and only not Ready at the
// moment is not being made, unless it was when last reported.
func (s *survey) open() (open, outdated []*replica) {
	was := s.previous()
	making := was != "" && was != names.ReasonUpToDate && was != names.ReasonRenderFailed
	for _, role := range s.Deployment.Spec.Roles {
		for _, r := range s.wanted[role.Name] {
			switch {
			case r.outdated(s.hashes[role.Name]):
				outdated = append(outdated, r)
				if r.any(leaving) {
					open = append(open, r)
				}
			case !r.ready() && (making || !r.started() || r.any(leaving)):
				open = append(open, r)
			}
		}
	}
	return open, outdated
}

func (s *survey) previous() string {
	if c := meta.FindStatusCondition(s.Deployment.Status.Conditions, names.ConditionProgressing); c != nil {
		return c.Reason
	}
	return ""
}

// reason says what is going on while replicas are open. What was going on goes on
// until none is.
func (s *survey) reason(open, outdated []*replica) string {
	was := s.previous()
	switch {
	case len(outdated) > 0 || was == names.ReasonRolloutInProgress:
		return names.ReasonRolloutInProgress
	case was == names.ReasonReplacementInProgress, slices.ContainsFunc(open, func(r *replica) bool { return broken(r) != "" }),
		// Everything was there, and this is not.
		was == names.ReasonUpToDate && slices.ContainsFunc(open, s.reported):
		return names.ReasonReplacementInProgress
	}
	return names.ReasonReplicasStarting
}

// reported tells whether the last status already asked for the replica, so that
// its Pods must have been there once.
func (s *survey) reported(r *replica) bool {
	return slices.ContainsFunc(s.Deployment.Status.Roles, func(role v1alpha1.RoleStatus) bool {
		return role.Name == r.role && r.ordinal < role.Desired
	})
}

// waiting says what the next step waits for.
func (s *survey) waiting(open, outdated []*replica) string {
	var text []string
	if len(outdated) > 0 {
		text = append(text, plural(len(outdated), "replica")+" of an older spec to replace, one at a time in each role")
	}
	const most = 3
	for i, r := range open {
		if i == most {
			text = append(text, fmt.Sprintf("and for %d more", len(open)-most))
			break
		}
		end := time.Time{}
		for _, pod := range r.present() {
			if leaving(pod) && pod.DeletionTimestamp.After(end) {
				end = pod.DeletionTimestamp.Time
			}
		}
		if !end.IsZero() {
			text = append(text, fmt.Sprintf("waiting for %s to drain, until %s at the latest", r.name, end.UTC().Format(time.RFC3339)))
		} else {
			text = append(text, fmt.Sprintf("waiting for %s to be Ready", r.name))
		}
	}
	for _, role := range s.Deployment.Spec.Roles {
		step := next(s.wanted[role.Name], s.hashes[role.Name], s.retiring, s.Now)
		if step.waitsFor != nil && !slices.Contains(open, step.waitsFor) {
			text = append(text, fmt.Sprintf("waiting for %s, which %s", step.waitsFor.name, step.why))
		}
	}
	return strings.Join(text, "; ")
}

// The reasons of a waiting container that do not pass by themselves. Those of a
// failed pull, and their messages, change with every try, and the status should
// not.
var (
	cannotPull = map[string]string{
		"ErrImagePull":      "cannot be pulled",
		"ImagePullBackOff":  "cannot be pulled",
		"ErrImageNeverPull": "is not on the node, and imagePullPolicy is Never",
		"InvalidImageName":  "is no image's name",
	}
	cannotStart = []string{"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)

// manyRestarts is when a container that is not up is said to keep failing. The
// first ones happen to engines that wait for others.
const manyRestarts = 3

// failing says which of the open replicas cannot start, and why; empty where each
// may yet.
func (s *survey) failing(open []*replica) string {
	for _, r := range open {
		for _, pod := range r.present() {
			if leaving(pod) {
				continue
			}
			for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
				if w := status.State.Waiting; w != nil && cannotPull[w.Reason] != "" {
					return fmt.Sprintf("%s: image %s of container %s %s", pod.Name, status.Image, status.Name, cannotPull[w.Reason])
				}
				if w := status.State.Waiting; w != nil && slices.Contains(cannotStart, w.Reason) {
					return fmt.Sprintf("%s: container %s cannot be started: %s: %s", pod.Name, status.Name, w.Reason, w.Message)
				}
				if last := status.LastTerminationState.Terminated; last != nil && status.RestartCount >= manyRestarts && !status.Ready {
					return fmt.Sprintf("%s: container %s keeps ending, last with exit code %d (%s); see kubectl logs --previous", pod.Name, status.Name, last.ExitCode, last.Reason)
				}
			}
			if at := unschedulableAt(pod); !at.IsZero() && !s.Now.Before(at) {
				return fmt.Sprintf("%s cannot be scheduled: %s", pod.Name, podCondition(pod, corev1.PodScheduled).Message)
			}
		}
	}
	return ""
}

// phase sums the conditions up. A deployment is starting until it was Ready once,
// and while it only grows; after that whatever is not Ready is missed.
func phase(md *v1alpha1.ModelDeployment, ready, progressing metav1.Condition, roles []v1alpha1.RoleStatus) v1alpha1.Phase {
	switch before := &md.Status; {
	case md.DeletionTimestamp != nil:
		return v1alpha1.PhaseDeleting
	case progressing.Reason == names.ReasonNameTaken || progressing.Reason == names.ReasonCreateFailed:
		return v1alpha1.PhaseDegraded // also where all replicas are Ready: without its Service nothing reaches them
	case ready.Status == metav1.ConditionTrue:
		return v1alpha1.PhaseReady
	case progressing.Status == metav1.ConditionFalse && progressing.Reason != names.ReasonUpToDate:
		return v1alpha1.PhaseDegraded
	case before.Phase == "" || before.Phase == v1alpha1.PhaseStarting:
		return v1alpha1.PhaseStarting
	case before.Phase == v1alpha1.PhaseReady && progressing.Reason == names.ReasonReplicasStarting && !fell(before.Roles, roles):
		return v1alpha1.PhaseStarting
	}
	return v1alpha1.PhaseDegraded
}

// fell reports whether a role has fewer ready replicas than before.
func fell(before, now []v1alpha1.RoleStatus) bool {
	return slices.ContainsFunc(now, func(role v1alpha1.RoleStatus) bool {
		return slices.ContainsFunc(before, func(b v1alpha1.RoleStatus) bool {
			return b.Name == role.Name && role.Ready < b.Ready
		})
	})
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
