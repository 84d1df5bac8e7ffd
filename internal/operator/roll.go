package operator

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
)

// steadyAfter is how long a replica without probes must have been Ready to count
// as up: it is so from the start of its container, and again after each restart.
const steadyAfter = 30 * time.Second

// step is what a rollout does now in a role.
type step struct {
	// replace is the replica that is replaced now; nil where there is none.
	replace *replica
	// waitsFor is the replica that the rollout waits for, and why says what for; at is
	// when that may be over by itself, zero where something will be seen of it.
	waitsFor *replica
	why      string
	at       time.Time
}

// next decides how a role's rollout goes on. A replica that never came up serves
// nobody and is replaced whatever the others do; else there is one at a time, the
// highest ordinal first, and only while nothing else is amiss in the role.
func next(wanted []*replica, hash string, retiring func(*replica) bool, now time.Time) step {
	var candidate *replica
	for _, r := range slices.Backward(wanted) {
		if !r.outdated(hash) || r.any(leaving) || retiring(r) {
			continue
		}
		if !r.started() {
			return step{replace: r}
		}
		if candidate == nil || candidate.ready() && !r.ready() {
			candidate = r
		}
	}
	if candidate == nil {
		return step{}
	}
	for _, r := range wanted {
		if r == candidate {
			continue
		}
		if why, at := blocks(r, candidate, hash, now); why != "" {
			return step{waitsFor: r, why: why, at: at}
		}
	}
	return step{replace: candidate}
}

// blocks says why a replica keeps another one from being replaced; empty where it
// does not.
func blocks(r, candidate *replica, hash string, now time.Time) (why string, at time.Time) {
	switch {
	case broken(r) != "":
		return "is being replaced", time.Time{}
	case !r.complete():
		return "is being made", time.Time{}
	case r.withdrawn():
		return "is withdrawn from traffic", time.Time{}
	case !r.ready():
		// Two that are not Ready and of an older spec serve nobody, and only the present
		// spec may mend them.
		if !candidate.ready() && r.outdated(hash) {
			return "", time.Time{}
		}
		return "is not Ready", time.Time{}
	}
	if at := r.steadyAt(); now.Before(at) {
		return fmt.Sprintf("has been Ready for less than %d s", int(steadyAfter.Seconds())), at
	}
	return "", time.Time{}
}

// steadyAt is when a replica that is Ready counts as up: at once where its probes
// say that it is, later where it has none.
func (r *replica) steadyAt() (at time.Time) {
	for _, pod := range r.present() {
		if pod.Annotations[names.AnnotationTakeOver] != "true" {
			continue
		}
		if steady := podCondition(pod, corev1.PodReady).LastTransitionTime.Add(steadyAfter); steady.After(at) {
			at = steady
		}
	}
	return at
}
