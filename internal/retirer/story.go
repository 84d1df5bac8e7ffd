package retirer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/report"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// actionRetire is what the retirer does, for the action of its events.
const actionRetire = "Retire"

// news is one line of the story that two statuses tell.
type news struct {
	warning      bool
	reason, note string
	// about is a member of the replica that it is about. Events that differ in nothing
	// but their notes are one event to the API server, and the later notes are lost.
	about *v1alpha1.RetirementMember
}

// tell says in events, metrics and the log what a status that was just written says
// that the one before did not.
func (r *Reconciler) tell(ctx context.Context, s *seen, now retire.Status) {
	r.metrics.observe(s.status, now, s.now)
	remains := func(uid types.UID) bool { return s.pods[uid] != nil }
	for _, e := range story(s.deployment.Name, s.status, now, remains) {
		kind := corev1.EventTypeNormal
		if e.warning {
			kind = corev1.EventTypeWarning
		}
		var about runtime.Object
		if e.about != nil {
			about = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.deployment.Namespace, Name: e.about.Name, UID: e.about.UID}}
		}
		r.Events.Eventf(s.deployment, about, kind, e.reason, actionRetire, "%s", report.Cut(e.note, report.MaxNote))
		log.FromContext(ctx).Info("Retiring", "event", e.reason, "note", e.note)
	}
}

// slot tells the targets of two statuses that are the same from those that are new.
type slot struct {
	role    string
	ordinal int32
	first   string // the UID of the first member
}

func targets(operation *v1alpha1.RetirementStatus) (all map[slot]*v1alpha1.RetirementTarget, order []slot) {
	all = map[slot]*v1alpha1.RetirementTarget{}
	if operation == nil {
		return all, nil
	}
	for i := range operation.Targets {
		t := &operation.Targets[i]
		k := slot{role: t.Role, ordinal: t.Ordinal}
		if len(t.Members) > 0 {
			k.first = string(t.Members[0].UID)
		}
		all[k] = t
		order = append(order, k)
	}
	return all, order
}

// story is what happened between two statuses. remains reports whether a Pod is
// still there.
func story(deployment string, before, now retire.Status, remains func(types.UID) bool) (all []news) {
	old, was := targets(before.Retirement)
	current, is := targets(now.Retirement)
	name := func(k slot) string { return fmt.Sprintf("%s-%s-%d", deployment, k.role, k.ordinal) }
	add := func(t *v1alpha1.RetirementTarget, e news) {
		if e.reason == "" {
			return
		}
		if len(t.Members) > 0 {
			e.about = &t.Members[0]
		}
		all = append(all, e)
	}

	var begun []string
	first := &v1alpha1.RetirementTarget{}
	for _, k := range is {
		if o := old[k]; current[k].State == v1alpha1.StateAdmitted && (o == nil || o.State == v1alpha1.StateAborted) {
			if begun = append(begun, name(k)); len(begun) == 1 {
				first = current[k]
			}
		}
	}
	if len(begun) > 0 {
		add(first, news{reason: names.EventRetirementStarted, note: "taking away " + strings.Join(begun, ", ") + ": " + causes[now.Retirement.Cause]})
	}
	for _, k := range is {
		if o := old[k]; o != nil {
			add(current[k], change(name(k), o, current[k]))
		}
	}
	for _, k := range was {
		if o := old[k]; current[k] == nil && o.State != v1alpha1.StateAborted && o.State != v1alpha1.StateCompleted { // those were told of
			add(o, dropped(name(k), o, now, remains))
		}
	}
	return all
}

var causes = map[v1alpha1.RetirementCause]string{
	v1alpha1.CauseScaleDown:   "the role's replicas fell",
	v1alpha1.CauseSurplus:     "they are beyond the role's replicas",
	v1alpha1.CauseRoleDropped: "the spec no longer has the role",
	v1alpha1.CauseDeletion:    "the ModelDeployment is being deleted",
}

// quiet are reasons that are no news: the protocol goes its way.
var quiet = []string{
	"", names.HeldNotReadYet, names.HeldProvingIdle, names.HeldConnectionsUnread, names.HeldEndpointsRemain, names.RetireIdle,
	names.RetireMemberReplaced, names.HeldRouterNotAsked, names.HeldRouterHolds, names.HeldRecentDispatches,
}

// change is what happened to a target that is still listed; without a reason it is
// nothing to tell.
func change(replica string, before, now *v1alpha1.RetirementTarget) news {
	if before.State == now.State && before.Reason == now.Reason {
		return news{}
	}
	why := now.Reason
	if now.Message != "" {
		why += ": " + now.Message
	}
	switch now.State {
	case v1alpha1.StateCompleted:
		if now.Reason == names.RetireSettlingOverran {
			return overran(replica)
		}
		return goneBy(replica, now)
	case v1alpha1.StateAborted:
		switch {
		case before.State == v1alpha1.StateAborted:
			return news{}
		case now.Reason == names.RetireCancelled:
			return cancelled(replica)
		}
		return news{warning: true, reason: names.EventRetirementAborted, note: fmt.Sprintf("%s stays and serves: %s; kubectl lastcall explain says more, kubectl lastcall retry tries again", replica, why)}
	case v1alpha1.StateDeleting:
		switch now.Reason {
		case names.RetireIdle, names.RetireNeverStarted, names.RetireNotRunning, names.HeldCommandTakenOver:
			if before.State == now.State {
				return news{}
			}
			return news{reason: names.EventRetirementDeleting, note: fmt.Sprintf("deleting the Pods of %s: %s", replica, why)}
		}
		return news{warning: true, reason: names.EventRetirementUnproven, note: fmt.Sprintf("deleting the Pods of %s through their drain window, not proven idle in time: %s", replica, why)}
	case v1alpha1.StateSettling:
		return news{}
	}
	told := now.State == v1alpha1.StateDisqualified && (now.Reason == names.HeldRouterSelects || now.Reason == names.HeldRouterReturns)
	if told || slices.Contains(quiet, now.Reason) || before.Reason == now.Reason {
		return news{}
	}
	note := replica + " is held: " + why
	if now.Reason == names.HeldServingRequests && now.InFlight != nil {
		note = fmt.Sprintf("%s is held: %d in flight", replica, *now.InFlight)
	}
	return news{warning: slices.Contains(failing, now.Reason), reason: now.Reason, note: note}
}

// failing are reasons to hold that somebody should look at.
var failing = []string{
	names.HeldReadFailed, names.HeldExecForbidden, names.HeldReadTimedOut, names.HeldReadIncomplete, names.ReadGaugesMissing, names.ReadNotMetrics,
	names.ReadInvalidValue, names.ReadTooLarge, names.HeldAnsweringMemberUnknown, names.HeldNodeUnreachable, names.RetireMarkLost, names.HeldRouterNotFound,
	names.HeldRouterUnread,
}

// goneBy is the end of a replica, by our delete or somebody else's.
func goneBy(replica string, t *v1alpha1.RetirementTarget) news {
	note := replica + " is gone"
	if t.State != v1alpha1.StateDeleting && (t.Reason == names.RetireMemberReplaced || t.State != v1alpha1.StateSettling && t.State != v1alpha1.StateCompleted) {
		note += ": " + names.RetireMemberReplaced + ": somebody else deleted its Pods"
	}
	return news{reason: names.EventRetirementCompleted, note: note}
}

// dropped is the end of a target that is listed no more. Whether it was deleted or
// is wanted again can be said of several at a time only by their Pods.
func dropped(replica string, t *v1alpha1.RetirementTarget, now retire.Status, remains func(types.UID) bool) news {
	stays := slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return remains(m.UID) })
	deleted := t.State == v1alpha1.StateDeleting || t.State == v1alpha1.StateSettling
	letGo := now.Retirement == nil && now.Last != nil && now.Last.End == v1alpha1.EndCancelled && now.Last.Reason != names.RetireCancelled
	switch {
	case !stays:
		return goneBy(replica, t)
	case letGo:
		return news{reason: names.EventRetirementCancelled, note: replica + " is let go: " + now.Last.Reason}
	case deleted:
		return overran(replica)
	}
	return cancelled(replica)
}

func cancelled(replica string) news {
	return news{reason: names.EventRetirementCancelled, note: replica + " is wanted again and stays"}
}

func overran(replica string) news {
	return news{warning: true, reason: names.RetireSettlingOverran, note: replica + " was deleted, and its Pods are still there although their grace period and 30 s are over: look at their node and their finalizers"}
}

// boundBy are the members of some targets.
func boundBy(operation *v1alpha1.RetirementStatus, which func(*v1alpha1.RetirementTarget) bool) map[types.UID]bool {
	all := map[types.UID]bool{}
	if operation == nil {
		return all
	}
	for i := range operation.Targets {
		t := &operation.Targets[i]
		if !which(t) {
			continue
		}
		for _, m := range t.Members {
			all[m.UID] = true
		}
	}
	return all
}

func underWay(t *v1alpha1.RetirementTarget) bool { return t.State != v1alpha1.StateAborted }

// anyTarget is also one that was given up: its router is told, and asked whether it
// lists the replica again.
func anyTarget(*v1alpha1.RetirementTarget) bool { return true }

// stateTimes are for how long targets were in the states that they have left.
func stateTimes(before, now retire.Status, at time.Time, observe func(state string, seconds float64)) {
	old, was := targets(before.Retirement)
	current, _ := targets(now.Retirement)
	for _, k := range was {
		o := old[k]
		if c := current[k]; (c == nil || c.State != o.State) && o.State != v1alpha1.StateAborted && o.State != v1alpha1.StateCompleted {
			observe(string(o.State), at.Sub(o.PhaseStartedAt.Time).Seconds())
		}
	}
}
