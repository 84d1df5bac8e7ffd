package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// The explanation is what explain prints with -o json or yaml; docs/cli.md describes
// it. Its keys are stable.

// explanation is what holds a ModelDeployment's replicas, and what to do about it.
type explanation struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Retirement is the operation under way or given up; null where there is none.
	Retirement *operationReport `json:"retirement"`
	// Targets are its replicas.
	Targets []targetReport `json:"targets"`
	// Later are the replicas to go that the operation does not have yet.
	Later []string `json:"later"`
	// Findings are what else is to be said, and done.
	Findings []advice `json:"findings"`
	// Last is the last operation that ended; null where none has.
	Last *lastReport `json:"lastRetirement"`
	// Unread is what could not be read, and why; the rest goes without.
	Unread []string `json:"unread"`
}

// explainer is what an explanation is made from.
type explainer struct {
	now time.Time
	md  *v1alpha1.ModelDeployment
	// pods are those with the ModelDeployment's controller reference, by name.
	pods []corev1.Pod
	// blind is set where the Pods could not be read: then nothing is known of them,
	// least of all that they are gone.
	blind bool
}

// explain decides what to say of the one ModelDeployment that was read.
func explain(now time.Time, f facts) explanation {
	md := &f.deployments[0]
	e := &explainer{now: now, md: md, blind: len(f.unread) > 0}
	for i := range f.pods {
		if metav1.IsControlledBy(&f.pods[i], md) {
			e.pods = append(e.pods, f.pods[i])
		}
	}
	slices.SortFunc(e.pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	x := explanation{
		Namespace: md.Namespace, Name: md.Name,
		Retirement: reportOperation(md), Last: reportLast(md),
		Targets: []targetReport{}, Later: e.later(), Unread: append([]string{}, f.unread...),
	}
	if md.Status.Retirement != nil {
		for i := range md.Status.Retirement.Targets {
			x.Targets = append(x.Targets, e.target(&md.Status.Retirement.Targets[i]))
		}
		slices.SortStableFunc(x.Targets, func(a, b targetReport) int { return cmp.Compare(a.rank(), b.rank()) })
	}
	x.Summary = e.summary()
	x.Findings = append([]advice{}, e.deletion()...)
	if stalled := e.stalled(); stalled != "" {
		x.Findings = append(x.Findings, do(stalled+" Does the retirer run?", retirerPods, retirerLogs))
	}
	x.Findings = append(x.Findings, e.overdue()...)
	return x
}

// summary is one sentence about all of it.
func (e *explainer) summary() string {
	held, leaving, gone, given, returned := 0, 0, 0, 0, 0
	if e.md.Status.Retirement != nil {
		for i := range e.md.Status.Retirement.Targets {
			switch t := &e.md.Status.Retirement.Targets[i]; {
			case isGivenUp(e.md, t):
				given++
			case t.State == v1alpha1.StateAborted:
				returned++
			case t.State == v1alpha1.StateCompleted:
				gone++
			case isDecided(t):
				leaving++
			default:
				held++
			}
		}
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{held, "held until proven idle"}, {leaving, "leaving"}, {gone, "gone"}, {given, "given up and kept"}, {returned, "being given back to its clients"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	deleted := ""
	if e.md.DeletionTimestamp != nil {
		deleted = fmt.Sprintf("deleted %s ago; ", seconds(e.now.Sub(e.md.DeletionTimestamp.Time)))
	}
	switch {
	case len(parts) > 0:
		return deleted + "replicas to be taken away: " + strings.Join(parts, ", ") + "."
	case len(e.later()) > 0:
		return deleted + fmt.Sprintf("replicas to be taken away: %d not begun.", len(e.later()))
	case deleted != "":
		return deleted + "lastcall holds no replica of it."
	}
	return "nothing is being taken away, and nothing is held."
}

// later are the replicas that the spec does not want, that stay, and that no
// operation has.
func (e *explainer) later() []string {
	later := []string{}
	if e.md.DeletionTimestamp != nil && !finalizer.On(e.md) {
		return later // nobody waits for them: Kubernetes deletes them itself
	}
	for i := range e.pods {
		role, ordinal := slotOf(&e.pods[i])
		name := replicaName(e.md, role, ordinal)
		if runs(&e.pods[i]) && isUnwanted(e.md, role, ordinal) && targetOf(e.md, role, ordinal) == nil && !slices.Contains(later, name) {
			later = append(later, name)
		}
	}
	return later
}

// deletion says what a deleted ModelDeployment waits for, until when, and how to let
// it go.
func (e *explainer) deletion() []advice {
	if e.md.DeletionTimestamp == nil {
		return nil
	}
	var all []advice
	if others := otherFinalizers(e.md); len(others) > 0 {
		all = append(all, do(fmt.Sprintf("The finalizers %s hold it, which lastcall has no part in.", strings.Join(others, ", "))))
	}
	if !finalizer.On(e.md) {
		return append(all, do("lastcall does not hold it: it has no finalizer "+names.Finalizer+"."))
	}
	operation := e.md.Status.Retirement
	var grace time.Duration
	for i := range e.pods {
		grace = max(grace, graceOf(&e.pods[i]))
	}
	switch {
	case e.waitsForIdle():
		all = append(all, do("It waits for idle replicas without bound, for it has the annotation "+names.AnnotationDeletion+": "+names.DeletionWaitForIdle+". Without that, each goes through its drain window when its time is over:",
			fmt.Sprintf("kubectl annotate modeldeployment %s -n %s %s-", e.md.Name, e.md.Namespace, names.AnnotationDeletion)))
	case operation != nil && operation.Cause == v1alpha1.CauseDeletion:
		all = append(all, do(e.deletionEnds(operation, grace)))
	}
	return append(all, do("To let it go now. "+finalizersCost,
		fmt.Sprintf("kubectl lastcall finalizers %s -n %s --remove", e.md.Name, e.md.Namespace)))
}

// deletionEnds is when a deletion is over at the latest. Replicas that are taken up after
// the first have a time of their own.
func (e *explainer) deletionEnds(operation *v1alpha1.RetirementStatus, grace time.Duration) string {
	drain, _ := budgetOfDrain(e.md)
	drained := operation.Deadline.Time
	for i := range operation.Targets {
		t := &operation.Targets[i]
		if end := t.PhaseStartedAt.Add(drain); t.State == v1alpha1.StateDraining && end.After(drained) {
			drained = end
		}
	}
	window := fmt.Sprintf("are deleted through their drain window of at most %s, and %s later it is let go whatever is left. A delete that is refused takes longer.", seconds(grace), seconds(retire.SettleSlack))
	if later := e.later(); len(operation.Targets)+len(later) > retire.MaxTargets {
		return fmt.Sprintf("It goes when no Pod of it is left. %d replicas wait until others are gone, and have as long then. Of the others, those that are not proven idle by %s %s", len(later), clockTime(drained), window)
	}
	return fmt.Sprintf("It goes when no Pod of it is left, at the latest about %s: replicas that are not proven idle by %s %s", e.when(drained.Add(grace+retire.SettleSlack)), clockTime(drained), window)
}

func (e *explainer) waitsForIdle() bool {
	return e.md.DeletionTimestamp != nil && e.md.Annotations[names.AnnotationDeletion] == names.DeletionWaitForIdle
}

// overdue is about Pods that should be gone.
func (e *explainer) overdue() []advice {
	var all []advice
	for i := range e.pods {
		p := &e.pods[i]
		if p.DeletionTimestamp == nil || e.now.Before(p.DeletionTimestamp.Add(retire.SettleSlack)) {
			continue
		}
		// The timestamp is the end of the grace period.
		all = append(all, do(fmt.Sprintf("The Pod %s should have been gone at %s.", p.Name, e.when(p.DeletionTimestamp.Time))))
		for _, a := range meanings[names.RetireSettlingOverran].out {
			all = append(all, e.fill(a, []*corev1.Pod{p}, p.Labels[names.LabelComponent]))
		}
	}
	return all
}

// when is a time, and how far away it is.
func (e *explainer) when(at time.Time) string {
	left := at.Sub(e.now)
	if left < 0 {
		return fmt.Sprintf("%s (%s ago)", clockTime(at), seconds(-left))
	}
	return fmt.Sprintf("%s (in %s)", clockTime(at), seconds(left))
}

func clockTime(at time.Time) string { return at.UTC().Format("15:04:05Z") }

func graceOf(p *corev1.Pod) time.Duration {
	return time.Duration(summarizePod(p).GraceSeconds) * time.Second
}
