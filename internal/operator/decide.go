package operator

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

// Seen is everything a decision about one ModelDeployment is made from.
type Seen struct {
	Deployment *v1alpha1.ModelDeployment
	// Pods, Services and Budgets are those whose controller is this
	// ModelDeployment, told by its UID.
	Pods     []corev1.Pod
	Services []corev1.Service
	Budgets  []policyv1.PodDisruptionBudget
	// Failures are the objects that could not be created or applied when that was
	// last tried, by KIND/NAME.
	Failures map[string]Failure
	// RetryAt are replicas that failed lately, by name: nothing is tried in their
	// slots before.
	RetryAt map[string]time.Time
	Now     time.Time
}

// Failure is why an object could not be created or applied.
type Failure struct {
	// Reason is names.ReasonNameTaken or names.ReasonCreateFailed.
	Reason  string
	Message string
}

// Plan is what there is to do now.
type Plan struct {
	// Guard is whether the finalizer is missing. It goes before all else: a
	// ModelDeployment that has a Pod is not deleted unless that Pod was retired.
	Guard bool
	// Services and Budgets differ from what is on the API server.
	Services []*corev1.Service
	Budgets  []*policyv1.PodDisruptionBudget
	// Drop are the Services of roles that are gone with all their Pods.
	Drop   []corev1.Service
	Remove []Removal
	Create []Creation
	// RecheckAt is when to look again although nothing will have changed; zero is
	// never.
	RecheckAt time.Time
}

// Removal is a Pod that is deleted so that its slot can be filled again.
type Removal struct {
	Pod     string
	UID     types.UID
	Replica string
	// Reason is one of names.Replaced*.
	Reason string
}

// Creation is a slot to be filled: the Pods that are missing in it, the leader
// first.
type Creation struct {
	Replica string
	Pods    []*corev1.Pod
}

// Acts reports whether the plan adds the finalizer, or creates or deletes Pods or
// Services.
func (p *Plan) Acts() bool { return p.Guard || len(p.Remove)+len(p.Create)+len(p.Drop) > 0 }

// Decide says what to do about one ModelDeployment. It changes nothing it is
// given.
func Decide(seen *Seen) *Plan {
	d := &decision{survey: look(seen)}
	d.plan.Guard = finalizer.Missing(seen.Deployment)
	if seen.Deployment.DeletionTimestamp != nil || len(d.invalid) > 0 {
		return &d.plan
	}
	d.objects()
	for i := range seen.Deployment.Spec.Roles {
		role := &seen.Deployment.Spec.Roles[i]
		wanted, hash := d.wanted[role.Name], d.hashes[role.Name]
		for _, r := range wanted {
			d.mend(role, r, hash)
		}
		switch step := next(wanted, hash, d.retiring, seen.Now); {
		case step.replace != nil:
			d.remove(step.replace, names.ReplacedOutdated)
		case !step.at.IsZero():
			d.recheck(step.at)
		}
	}
	return &d.plan
}

// survey is what was seen, sorted.
type survey struct {
	*Seen
	// invalid is what is wrong with the spec; nothing is made or replaced then.
	invalid field.ErrorList
	all     []*replica
	// wanted are the replicas that the spec asks for, empty slots among them, by
	// ordinal; and hashes the digests of the present spec. Both by role.
	wanted map[string][]*replica
	hashes map[string]string
}

func look(seen *Seen) survey {
	md := seen.Deployment
	s := survey{Seen: seen, all: replicas(md, seen.Pods), wanted: map[string][]*replica{}, hashes: map[string]string{}}
	s.invalid, _ = validate.ModelDeployment(md)
	for i := range md.Spec.Roles {
		role := &md.Spec.Roles[i]
		if len(s.invalid) == 0 { // else nothing is said about what should be
			s.hashes[role.Name] = render.Hash(md, role)
		}
		for _, r := range s.all {
			if r.role == role.Name && r.ordinal < render.Replicas(role) {
				s.wanted[role.Name] = append(s.wanted[role.Name], r)
			}
		}
	}
	return s
}

// decision is a plan in the making.
type decision struct {
	survey
	plan Plan
}

// mend fills an empty slot, empties one whose replica cannot go on, and leaves a
// replica alone that runs.
func (d *decision) mend(role *v1alpha1.Role, r *replica, hash string) {
	for _, pod := range r.present() {
		if at := unschedulableAt(pod); d.Now.Before(at) {
			d.recheck(at)
		}
	}
	if why := broken(r); why != "" && !d.cutShort(role, r) {
		d.remove(r, why)
		return
	}
	// A create that was cut short goes on: the leader has not come up, so it still
	// waits for the others.
	if !r.complete() && !r.outdated(hash) {
		d.create(role, r)
	}
}

// cutShort reports whether a replica lacks members only because they could not be
// created. A leader without probes counts as up all the same.
func (d *decision) cutShort(role *v1alpha1.Role, r *replica) bool {
	if r.pods[0] == nil || r.any(func(p *corev1.Pod) bool { return leaving(p) || ended(p) || unadmitted(p) || restarted(p) }) {
		return false
	}
	for member, pod := range r.pods {
		_, failed := d.Failures[kindPod+render.PodName(d.Deployment, role, r.ordinal, int32(member))]
		if pod == nil && failed {
			return true
		}
	}
	return false
}

// broken says why a replica cannot go on, in one of names.Replaced*; empty where
// it can. Above one Pod the members of a replica stand and fall together: the
// engine does not take a member back.
func broken(r *replica) string {
	switch {
	case len(r.present()) == 0:
		return ""
	case r.any(func(p *corev1.Pod) bool { return unadmitted(p) && !leaving(p) }):
		return names.ReplacedNotInjected
	case r.any(func(p *corev1.Pod) bool { return ended(p) && !leaving(p) }):
		return names.ReplacedPodEnded
	case r.any(leaving):
		return names.ReplacedPodDeleted
	case len(r.pods) == 1:
		return ""
	case !r.complete() && (r.started() || r.pods[0] == nil):
		return names.ReplacedPodDeleted
	case r.any(restarted) && !r.any(pending):
		// A worker that gives up waiting for a leader without a node is the kubelet's to
		// restart.
		return names.ReplacedRestarted
	}
	return ""
}

// retiring reports whether the running retirement wants the replica. Aborted
// holds nothing.
func (s *survey) retiring(r *replica) bool {
	operation := s.Deployment.Status.Retirement
	return operation != nil && slices.ContainsFunc(operation.Targets, func(t v1alpha1.RetirementTarget) bool {
		return t.Role == r.role && t.Ordinal == r.ordinal && t.State != v1alpha1.StateAborted
	})
}

// create fills what is missing in a slot, unless that failed a moment ago.
func (d *decision) create(role *v1alpha1.Role, r *replica) {
	if d.mustWait(r.name) {
		return
	}
	c := Creation{Replica: r.name}
	for member, pod := range render.Replica(d.Deployment, role, r.ordinal) {
		if r.pods[member] == nil {
			c.Pods = append(c.Pods, pod)
		}
	}
	d.plan.Create = append(d.plan.Create, c)
}

// remove empties a slot. The leader goes first: while it drains, its requests
// need the other members, whose own hooks do not wait for it. Those follow once
// it is gone, or should have been.
func (d *decision) remove(r *replica, reason string) {
	if reason != names.ReplacedOutdated && d.mustWait(r.name) {
		return
	}
	leader := r.pods[0]
	hold := leader != nil && !ended(leader) && !overdue(leader, d.Now)
	for member, pod := range r.pods {
		if pod == nil || leaving(pod) || member > 0 && hold {
			continue
		}
		d.plan.Remove = append(d.plan.Remove, Removal{Pod: pod.Name, UID: pod.UID, Replica: r.name, Reason: reason})
	}
	if hold && len(r.pods) > 1 && leaving(leader) {
		d.recheck(leader.DeletionTimestamp.Add(overdueAfter))
	}
}

// mustWait reports whether something failed in the slot and is not to be tried
// again yet.
func (d *decision) mustWait(replica string) bool {
	at := d.RetryAt[replica]
	if !d.Now.Before(at) {
		return false
	}
	d.recheck(at)
	return true
}

func (d *decision) recheck(at time.Time) {
	if d.plan.RecheckAt.IsZero() || at.Before(d.plan.RecheckAt) {
		d.plan.RecheckAt = at
	}
}
