package mutate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

// warnings are the sentences for the user, a line each.
func (p pod) warnings(r Record, t *target) []string {
	var all []string
	say := func(format string, args ...any) { all = append(all, "lastcall: "+fmt.Sprintf(format, args...)) }

	own := p.ownAnnotations()
	if r.Reason == names.ReasonNoEngine && len(own) == 0 && p.meta.Labels[names.LabelDrain] != names.DrainEnabled {
		// Its namespace is opted in, and it has nothing to do with engines.
		return nil
	}
	unknown := slices.DeleteFunc(own, func(key string) bool { return slices.Contains(names.Annotations(), key) })
	if len(unknown) > 0 && !p.operatorBuilt() {
		say("unknown annotation %s; the known ones are %s, and %s is a label",
			strings.Join(unknown, ", "), strings.Join(names.Annotations(), ", "), names.LabelDrain)
	}
	if p.meta.DeletionGracePeriodSeconds != nil {
		say("metadata.deletionGracePeriodSeconds does nothing in a manifest; set spec.terminationGracePeriodSeconds or the annotation %s",
			names.AnnotationGraceSeconds)
	}
	switch r.Reason {
	case names.ReasonNoEngine:
		if name, ok := p.meta.Annotations[names.AnnotationContainer]; ok {
			say("no hook: container %q is not known to run %s; say which with the annotation %s",
				name, engineNames(), names.AnnotationEngine)
			break
		}
		say("no hook: no container is known to run %s; say which engine and where with the annotations %s and %s",
			engineNames(), names.AnnotationEngine, names.AnnotationContainer)
	case names.ReasonSeveralEngines:
		say("no hook: more than one container may be the engine and none of them is named %q; name the engine's with the annotation %s",
			names.MainContainer, names.AnnotationContainer)
	case names.ReasonUserPreStop:
		say("no hook: container %q keeps its own preStop, so nothing waits for its requests; remove lifecycle.preStop to have them drained",
			r.Container)
	case names.ReasonGraceOutOfRange:
		say("no hook: terminationGracePeriodSeconds %d %s", r.GraceSeconds, validate.Grace(r.GraceSeconds))
	case names.ReasonNotMeasurable:
		notWaitedFor := " and are not waited for"
		if t.match.Unmeasurable.Holds() {
			notWaitedFor = ""
		}
		say("container %q: requests in flight cannot be counted%s. %s", r.Container, notWaitedFor, t.match.Unmeasurable.Advice())
	}
	if r.Outcome == names.OutcomeInjected {
		p.hookWarnings(r, t, say)
	}
	return all
}

// hookWarnings say what may keep the hook from doing its work.
func (p pod) hookWarnings(r Record, t *target, say func(format string, args ...any)) {
	if t.match.PortGuessed && t.match.Unmeasurable == "" {
		say("container %q: the port is not known at admission: %d is assumed, and nothing waits for requests if it is another; set the annotation %s",
			r.Container, t.match.Endpoint.Port, names.AnnotationMetricsPort)
	}
	if role := p.role(t.match); t.match.Engine.Name == engine.SGLang && (role == engine.RolePrefill || role == engine.RoleDecode) && r.GraceSeconds < validate.SplitGraceSeconds {
		say("container %q: SGLang %s needs about 20 s to exit even when idle; give it a grace period of at least %d seconds, not %d",
			r.Container, role, validate.SplitGraceSeconds, r.GraceSeconds)
	}
	if probe := t.container.LivenessProbe; probe != nil && probe.TerminationGracePeriodSeconds == nil {
		say("container %q: a restart by its livenessProbe runs the hook too, up to %d seconds on a hung engine; set livenessProbe.terminationGracePeriodSeconds, for example 10",
			r.Container, r.GraceSeconds)
	}
	if keepsShell(t.container) {
		say("container %q: the shell that starts the engine may stay in front of it and keep SIGTERM from it, so that it exits only when it is killed; write exec before the engine's command",
			r.Container)
	}
	for i := range p.spec.Containers {
		if c := &p.spec.Containers[i]; c != t.container && len(c.Ports) > 0 && (!hasPreStop(c) || hasOurHook(c)) {
			say("container %q stops as soon as the Pod is deleted, and with it requests that pass through it; make it a native sidecar (an init container with restartPolicy: Always)",
				c.Name)
		}
	}
}

// ownAnnotations are the Pod's annotations of lastcall's group, sorted. The record
// is none of the user's.
func (p pod) ownAnnotations() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.meta.Annotations)), func(key string) bool {
		return !strings.HasPrefix(key, names.Group+"/") || key == names.AnnotationStatus
	})
}

// role is the engine's role by the operator's label, else by its command.
func (p pod) role(m engine.Match) engine.Role {
	if kind, ok := p.meta.Labels[names.LabelRoleKind]; ok {
		return engine.Role(kind)
	}
	return m.Role
}

func engineNames() string {
	var all []string
	for _, e := range engine.All() {
		all = append(all, string(e.Name))
	}
	return strings.Join(all, " or ")
}
