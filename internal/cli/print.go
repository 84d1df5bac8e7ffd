package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
)

// formatReport writes a report as text, json or yaml. The scope is the namespace
// that was read; empty for all of them.
func formatReport(r report, output, scope string) []byte {
	if output == "text" {
		return []byte(r.text(scope))
	}
	return encode(r, output)
}

// encode writes data as json or yaml.
func encode(data any, output string) []byte {
	text, err := json.MarshalIndent(data, "", "  ")
	if err == nil && output == "yaml" {
		text, err = yaml.Marshal(data)
	}
	if err != nil {
		panic(err) // strings, numbers and lists of them always encode
	}
	return append(bytes.TrimSuffix(text, []byte("\n")), '\n')
}

func (r report) text(scope string) string {
	where := func(namespace string) string {
		if scope != "" {
			return ""
		}
		return " in " + namespace
	}
	var parts []string
	if !r.ModelDeploymentsInstalled {
		parts = append(parts, "ModelDeployments are not installed in this cluster: it has no CRD modeldeployments."+names.Group+".\n")
	}
	for _, d := range r.ModelDeployments {
		parts = append(parts, d.text(where(d.Namespace)))
	}
	var without []string
	for _, w := range r.Workloads {
		if w.hasNoEngine() {
			without = append(without, w.Kind+"/"+w.Name+where(w.Namespace))
			continue
		}
		parts = append(parts, w.text(where(w.Namespace)))
	}
	if len(without) > 0 {
		parts = append(parts, fmt.Sprintf("No engine, by what admission knows of them: %s. If one is an engine, name it with the annotation %s.\n",
			strings.Join(without, ", "), names.AnnotationEngine))
	}
	if len(r.ModelDeployments)+len(r.Workloads)+len(r.Unread) == 0 {
		place := "any namespace"
		if scope != "" {
			place = "namespace " + scope
		}
		parts = append(parts, fmt.Sprintf("Nothing here: no ModelDeployments and no opted-in Pods in %s. A Pod template opts in with the label %s: %s.\n",
			place, names.LabelDrain, names.DrainEnabled))
	}
	return strings.Join(parts, "\n")
}

func (d deploymentReport) text(where string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "ModelDeployment/%s%s: ", d.Name, where)
	switch {
	case d.Phase == "":
		out.WriteString("no status yet: is the operator running?\n")
	case d.ObservedGeneration < d.Generation:
		fmt.Fprintf(&out, "%s, and the operator has not seen the last edit yet\n", d.Phase)
	default:
		fmt.Fprintf(&out, "%s\n", d.Phase)
	}
	conditions := newTable()
	for _, c := range d.Conditions {
		conditions.row("  "+c.Type, c.Status, c.Reason, c.textMessage())
	}
	conditions.print(&out)
	for _, role := range d.Roles {
		role.print(&out)
	}
	if d.Retirement != nil {
		d.Retirement.print(&out)
	}
	if d.LastRetirement != nil {
		d.LastRetirement.print(&out)
	}
	return out.String()
}

// textMessage is the message where the condition is not what it should come to.
func (c conditionReport) textMessage() string {
	isWell := false
	switch c.Type {
	case names.ConditionReady:
		isWell = c.Status == string(metav1.ConditionTrue)
	case names.ConditionProgressing:
		isWell = c.Reason == names.ReasonUpToDate
	case names.ConditionRetiring:
		isWell = c.Status == string(metav1.ConditionFalse)
	}
	if isWell {
		return ""
	}
	return c.Message
}

func (r roleReport) print(out *strings.Builder) {
	fmt.Fprintf(out, "  Role %s (%s): %d of %d replicas ready", r.Name, r.Kind, r.Ready, r.Desired)
	if r.Unmanaged {
		out.WriteString("; unmanaged: its command is your own, so it has no drain hook")
	}
	out.WriteString("\n")
	replicas := newTable()
	if len(r.Replicas) > 0 {
		replicas.row("    REPLICA", "POD", "READY", "STATUS", "GRACE", "HOOK", "NOTE")
	}
	for _, replica := range r.Replicas {
		ordinal, notes := fmt.Sprint(replica.Ordinal), replica.notes()
		for _, p := range replica.Pods {
			replicas.row("    "+ordinal, p.Name, yesOrNo(p.Ready), p.status(), fmt.Sprintf("%ds", p.GraceSeconds), p.hook(), notes)
			ordinal, notes = "", ""
		}
	}
	replicas.print(out)
	if len(r.Missing) > 0 {
		fmt.Fprintf(out, "    Without Pods: %s\n", enumerate(r.Missing))
	}
}

// notes are what is special about the replica.
func (r replicaReport) notes() string {
	var notes []string
	if r.Withdrawn {
		notes = append(notes, "withdrawn")
	}
	if r.OlderSpec != nil && *r.OlderSpec {
		notes = append(notes, "older spec")
	}
	if len(r.Pods) < r.Size {
		notes = append(notes, fmt.Sprintf("%d of %d Pods", len(r.Pods), r.Size))
	}
	return strings.Join(notes, ", ")
}

// status is what kubectl get shows.
func (p podReport) status() string {
	if p.Terminating {
		return "Terminating"
	}
	return p.Phase
}

// hook is whether the Pod has the hook. That a worker cannot be measured is as it
// should be, for its leader answers for it; the reason would read like a fault.
func (p podReport) hook() string {
	switch {
	case p.Hook && p.HookReason == names.ReasonNotMeasurable && p.Member != 0:
		return names.OutcomeInjected + " (worker)"
	case p.Hook && p.HookReason == names.ReasonEngineRecognized:
		return names.OutcomeInjected
	case p.Hook:
		return names.OutcomeInjected + ": " + p.HookReason
	}
	return "no: " + p.HookReason
}

// hasNoEngine reports whether nothing about the workload concerns lastcall: it is
// there because its namespace has opted in.
func (w workloadReport) hasNoEngine() bool {
	for _, f := range w.Findings {
		if f.Reason != names.ReasonNoEngine || f.Message != "" {
			return false
		}
	}
	return len(w.Findings) > 0 && w.Hooked == 0
}

func (w workloadReport) text(where string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s/%s%s:", w.Kind, w.Name, where)
	if w.Pods > 0 {
		fmt.Fprintf(&out, " %d of %d Pods have the drain hook", w.Hooked, w.Pods)
	} else {
		out.WriteString(" no opted-in Pods")
	}
	out.WriteString("\n")
	for _, f := range w.Findings {
		out.WriteString("  ")
		if len(f.PodNames) > 0 {
			fmt.Fprintf(&out, "%d ", len(f.PodNames))
		}
		out.WriteString(f.Reason)
		if f.Message != "" {
			out.WriteString(": " + f.Message)
		}
		out.WriteString("\n")
		if f.Command != "" {
			out.WriteString("    " + f.Command + "\n")
		}
	}
	return out.String()
}

// table aligns its rows in columns.
type table struct {
	text strings.Builder
	rows *tabwriter.Writer
}

func newTable() *table {
	t := &table{}
	t.rows = tabwriter.NewWriter(&t.text, 0, 0, 2, ' ', 0)
	return t
}

func (t *table) row(cells ...string) { fmt.Fprintln(t.rows, strings.Join(cells, "\t")) }

// print writes the table without the spaces that empty cells leave at the end of a
// line.
func (t *table) print(out *strings.Builder) {
	_ = t.rows.Flush() // to memory
	for line := range strings.Lines(t.text.String()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// longestList is how many of a list are written out.
const longestList = 10

func enumerate[T any](all []T) string {
	var words []string
	for i, n := range all {
		if i == longestList {
			words = append(words, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		words = append(words, fmt.Sprint(n))
	}
	return strings.Join(words, ", ")
}
