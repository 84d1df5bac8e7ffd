package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

// summarizeWorkloads groups the Pods that have opted in by the workload they are part
// of, and adds the workloads whose label is where admission does not see it.
func summarizeWorkloads(f facts, pods []corev1.Pod) []workloadReport {
	workloads := map[owner]*workloadReport{}
	at := func(o owner) *workloadReport {
		if workloads[o] == nil {
			workloads[o] = &workloadReport{Namespace: o.namespace, Group: o.group, Kind: o.kind, Name: o.name, Findings: []finding{}}
		}
		return workloads[o]
	}
	for i := range pods {
		p := &pods[i]
		if !runs(p) {
			continue
		}
		top, ok := f.owners[p.UID]
		if !ok {
			top = owner{p.Namespace, "", "Pod", p.Name}
		}
		switch value := p.Labels[names.LabelDrain]; {
		case isCovered(p, f.optedIn[p.Namespace]):
			w := at(top)
			w.Pods++
			hooked, found := inspectPod(p, top)
			if hooked {
				w.Hooked++
			}
			if found != nil {
				w.add(*found, p.Name)
			}
		case value != "" && value != names.DrainEnabled && value != names.DrainDisabled:
			at(top).add(unknownValue("", value), p.Name)
		}
	}
	for _, l := range f.labelled {
		if found, ok := l.inspect(f.optedIn[l.namespace]); ok {
			w := at(l.owner)
			w.Findings = append(w.Findings, found)
		}
	}
	all := []workloadReport{}
	for _, o := range slices.SortedFunc(maps.Keys(workloads), func(a, b owner) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.group, b.group))
	}) {
		w := workloads[o]
		slices.SortStableFunc(w.Findings, func(a, b finding) int {
			return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
		})
		all = append(all, *w)
	}
	return all
}

// runs reports whether the Pod has requests to lose, or will have.
func runs(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// isCovered reports whether the webhook is asked about such a Pod. The chart's
// webhook configuration has the same rules as selectors.
func isCovered(p *corev1.Pod, namespaceOptedIn bool) bool {
	if p.Namespace == metav1.NamespaceSystem || p.Namespace == corev1.NamespaceNodeLease {
		return false
	}
	if p.Labels[names.LabelManagedBy] == names.Operator {
		return true
	}
	if p.Labels[names.LabelPartOf] == names.PartOf {
		return false
	}
	value := p.Labels[names.LabelDrain]
	return value == names.DrainEnabled || namespaceOptedIn && value != names.DrainDisabled
}

// inspectPod reports whether an opted-in Pod has the hook, and what is to be said
// about it. What a new Pod like it would get is asked of the code that admission
// runs, so the words are those of the warnings at its creation.
func inspectPod(p *corev1.Pod, top owner) (hooked bool, _ *finding) {
	admitted, ok := mutate.RecordOf(p.Annotations)
	if hooked = ok && admitted.Outcome == names.OutcomeInjected; hooked && admitted.Reason == names.ReasonEngineRecognized {
		return true, nil
	}
	anew, errs := mutate.Pod(p)
	var sentences []string
	for _, err := range errs {
		sentences = append(sentences, "a new Pod would be refused: "+err.Error())
	}
	for _, w := range anew.Warnings {
		sentences = append(sentences, strings.TrimPrefix(w, "lastcall: "))
	}
	switch {
	case !ok && anew.Record.Outcome == names.OutcomeInjected:
		return hooked, &finding{
			Reason:  names.ReasonNoRecord,
			Message: "older than the opt-in, or created while the webhook was away: " + top.wayToNewPods(),
			Command: top.restartCommand(),
		}
	case !ok:
		admitted.Reason = anew.Record.Reason
	case admitted.Reason != anew.Record.Reason:
		sentences = []string{"admission said so when the Pod was created"}
	}
	return hooked, &finding{Reason: admitted.Reason, Message: strings.Join(sentences, "; ")}
}

func (w *workloadReport) add(f finding, pod string) {
	for i := range w.Findings {
		if same := &w.Findings[i]; same.Reason == f.Reason && same.Message == f.Message {
			same.PodNames = append(same.PodNames, pod)
			return
		}
	}
	f.PodNames = []string{pod}
	w.Findings = append(w.Findings, f)
}

// inspect says what is wrong with where the workload has the label. It reports false
// where the label changes nothing.
func (l labelledWorkload) inspect(namespaceOptedIn bool) (finding, bool) {
	switch {
	case l.template != "": // the Pods have a label of their own
		return finding{}, false
	case l.own != names.DrainEnabled && l.own != names.DrainDisabled:
		f := unknownValue(" on the "+l.kind, l.own)
		f.Message += "; and put it under spec.template.metadata.labels: admission sees Pods only"
		f.PodNames = []string{}
		return f, true
	case namespaceOptedIn == (l.own == names.DrainEnabled): // the namespace says the same
		return finding{}, false
	}
	return finding{
		Reason:   names.ReasonLabelNotOnPods,
		Message:  fmt.Sprintf("the label is on the %s, and admission sees Pods only: put it under spec.template.metadata.labels", l.kind),
		PodNames: []string{},
	}, true
}

func unknownValue(where, value string) finding {
	return finding{
		Reason:  names.ReasonUnknownLabelValue,
		Message: fmt.Sprintf("the label %s%s must be %q or %q, not %q", names.LabelDrain, where, names.DrainEnabled, names.DrainDisabled, value),
	}
}

// wayToNewPods says how the workload comes to new Pods.
func (o owner) wayToNewPods() string {
	switch {
	case o.restartCommand() != "":
		return "restart to inject"
	case o.kind == "Pod" && o.group == "":
		return "create the Pod anew to inject"
	}
	return fmt.Sprintf("the next Pods of the %s get it", o.kind)
}

// restartCommand is what replaces the workload's Pods one after the other; empty
// where there is no such command.
func (o owner) restartCommand() string {
	switch o.group + "/" + o.kind {
	case appsv1.GroupName + "/Deployment", appsv1.GroupName + "/StatefulSet", appsv1.GroupName + "/DaemonSet":
		return fmt.Sprintf("kubectl rollout restart %s/%s -n %s", strings.ToLower(o.kind), o.name, o.namespace)
	case "argoproj.io/Rollout":
		return fmt.Sprintf("kubectl argo rollouts restart %s -n %s", o.name, o.namespace)
	}
	return ""
}
