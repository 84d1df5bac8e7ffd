package mutate

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

// Result is what becomes of an admitted Pod.
type Result struct {
	// Record is what was done and why; Patch leaves it on the Pod.
	Record Record
	// Warnings are sentences for the user: what could not be done, and the way out.
	Warnings []string
	// Patch is relative to the Pod or template that was given. It is empty where
	// that already is as it should be.
	Patch []Operation
}

// Pod decides for a Pod that is being created. Errors refuse it and name the
// annotation at fault; the result then has the Record only. The Pod is not
// changed.
func Pod(p *corev1.Pod) (Result, field.ErrorList) {
	return pod{&p.ObjectMeta, &p.Spec}.decide(nil)
}

// Template decides for a Pod template what Pod decides for the Pods made from it.
// The path says where in its object the template is; the errors start with it.
// The patch is relative to the template.
func Template(t *corev1.PodTemplateSpec, path *field.Path) (Result, field.ErrorList) {
	return pod{&t.ObjectMeta, &t.Spec}.decide(path)
}

// pod is what a Pod and a template have in common.
type pod struct {
	meta *metav1.ObjectMeta
	spec *corev1.PodSpec
}

func (p pod) decide(path *field.Path) (Result, field.ErrorList) {
	seconds, from := p.grace()
	r := Result{Record: Record{Outcome: names.OutcomeSkipped, GraceSeconds: seconds, GraceFrom: from}}

	annotations := path.Child("metadata", "annotations")
	errs := validate.PodAnnotations(p.meta.Annotations, annotations)
	if err := p.checkContainer(annotations); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		r.Record.Outcome, r.Record.Reason = names.OutcomeRefused, names.ReasonInvalidAnnotation
		return r, errs
	}

	if from == FromAnnotation {
		r.Patch = append(r.Patch, setGrace(p.spec, seconds)...)
	}
	t, reason := p.findEngine()
	if t != nil {
		r.Record.Engine, r.Record.Container = string(t.match.Engine.Name), t.container.Name
		if t.match.Unmeasurable == "" {
			r.Record.MetricsURL = t.match.Endpoint.URL()
		}
		reason = whyNoHook(t.container, seconds)
	}
	if p.meta.Annotations[names.AnnotationTakeOver] == "true" {
		reason = names.ReasonTakenOver
	}
	var hooked *corev1.Container
	if reason == "" {
		hooked = t.container
		r.Patch = append(r.Patch, setHook(containerPath("containers", t.index), hooked, t.hook(seconds))...)
		r.Record.Outcome, r.Record.HookVersion = names.OutcomeInjected, drain.HookVersion
		reason = names.ReasonEngineRecognized
		if t.match.Unmeasurable != "" {
			reason = names.ReasonNotMeasurable
		}
	}
	r.Record.Reason = reason
	r.Patch = append(r.Patch, removeHooks(p.spec, hooked)...)
	r.Patch = append(r.Patch, setStatus(p.meta, r.Record.json())...)
	r.Warnings = p.warnings(r.Record, t)
	return r, nil
}

// grace is the Pod's grace period in seconds and where it comes from.
func (p pod) grace() (int64, string) {
	if text, ok := p.meta.Annotations[names.AnnotationGraceSeconds]; ok {
		seconds, _ := strconv.ParseInt(text, 10, 64) // validated by validate.PodAnnotations
		return seconds, FromAnnotation
	}
	if seconds := p.spec.TerminationGracePeriodSeconds; seconds != nil {
		return *seconds, FromSpec
	}
	return drain.DefaultGraceSeconds, FromSpec
}

// whyNoHook returns why the engine's container gets no hook; empty where it gets
// one.
func whyNoHook(c *corev1.Container, seconds int64) string {
	switch {
	case hasPreStop(c) && !hasOurHook(c):
		return names.ReasonUserPreStop
	case validate.Grace(seconds) != "":
		return names.ReasonGraceOutOfRange
	}
	return ""
}

func (p pod) operatorBuilt() bool { return p.meta.Labels[names.LabelManagedBy] == names.Operator }
