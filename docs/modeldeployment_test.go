package docs_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

const modelDeploymentPage = "modeldeployment.md"

func TestObjectsTable(t *testing.T) {
	md := example(t)
	var table strings.Builder
	table.WriteString("| kind | name | selects, of the Pods of this ModelDeployment |\n|---|---|---|\n")
	for i := range md.Spec.Roles {
		role := &md.Spec.Roles[i]
		last := render.PodName(md, role, render.Replicas(role)-1, 0)
		fmt.Fprintf(&table, "| Pod | `%s` to `%s` | |\n", render.PodName(md, role, 0, 0), last)
	}
	for _, service := range render.Services(md) {
		fmt.Fprintf(&table, "| Service | `%s` | %s |\n", service.Name, selected(service.Spec.Selector))
	}
	for i := range md.Spec.Roles {
		role := &md.Spec.Roles[i]
		budget := render.Budget(md, role, render.Replicas(role)*render.Size(role)-1)
		fmt.Fprintf(&table, "| PodDisruptionBudget | `%s` | %s; `minAvailable: %d` |\n", budget.Name,
			selected(budget.Spec.Selector.MatchLabels), budget.Spec.MinAvailable.IntValue())
	}
	requireBlock(t, modelDeploymentPage, "objects", table.String())
}

func TestLabelsTable(t *testing.T) {
	pod := examplePod(t)
	var table strings.Builder
	fmt.Fprintf(&table, "| label | on `%s` |\n|---|---|\n", pod.Name)
	for _, label := range slices.Sorted(maps.Keys(pod.Labels)) {
		if strings.HasPrefix(label, names.Group+"/") || strings.HasPrefix(label, "app.kubernetes.io/") {
			fmt.Fprintf(&table, "| `%s` | `%s` |\n", label, pod.Labels[label])
		}
	}
	requireBlock(t, modelDeploymentPage, "labels", table.String())
}

func TestConditionsTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| condition | reason | meaning |\n|---|---|---|\n")
	for _, condition := range constants(t, "conditions.go", "Conditions of a ModelDeployment") {
		fmt.Fprintf(&table, "| `%s` | | %s |\n", condition.value, condition.meaning)
		if condition.value == names.ConditionRetiring {
			table.WriteString("| | `Admitted` to `Settling` | How far the replica is that is least far: [the states](protocol.md). |\n")
			table.WriteString("| | `Completed`, `Aborted`, `Cancelled` | How the last retirement ended. |\n")
			continue
		}
		for _, reason := range constants(t, "conditions.go", "Reasons of the condition "+condition.value) {
			fmt.Fprintf(&table, "| | `%s` | %s |\n", reason.value, reason.meaning)
		}
	}
	requireBlock(t, modelDeploymentPage, "conditions", table.String())
}

func TestTablesOfConstants(t *testing.T) {
	for block, from := range map[string]struct{ file, group, head string }{
		"events":       {"conditions.go", "Reasons of events on a ModelDeployment", "event"},
		"replacements": {"conditions.go", "Why the operator deletes the Pods", "reason"},
		"environment":  {"names.go", "Environment variables of the engine's container", "variable"},
	} {
		var table strings.Builder
		fmt.Fprintf(&table, "| %s | meaning |\n|---|---|\n", from.head)
		for _, c := range constants(t, from.file, from.group) {
			fmt.Fprintf(&table, "| `%s` | %s |\n", c.value, c.meaning)
		}
		requireBlock(t, modelDeploymentPage, block, table.String())
	}
}

func TestRetirementTables(t *testing.T) {
	var reasons strings.Builder
	reasons.WriteString("| reason | meaning |\n|---|---|\n")
	for _, c := range slices.Concat(
		constants(t, "retirement.go", "Why a replica is held"),
		constants(t, "readings.go", "Reasons why a /metrics body"),
		constants(t, "retirement.go", "Reasons of a retirement beside those"),
	) {
		fmt.Fprintf(&reasons, "| `%s` | %s |\n", c.value, c.meaning)
	}
	requireBlock(t, retirementPage, "reasons", reasons.String())

	var events strings.Builder
	events.WriteString("| event | meaning |\n|---|---|\n")
	for _, c := range constants(t, "retirement.go", "Reasons of events of the retirer") {
		fmt.Fprintf(&events, "| `%s` | %s |\n", c.value, c.meaning)
	}
	requireBlock(t, retirementPage, "events", events.String())

	var metrics strings.Builder
	metrics.WriteString("| metric | meaning |\n|---|---|\n")
	for _, c := range constants(t, "metrics.go", "Metrics of the retirer") {
		fmt.Fprintf(&metrics, "| `%s` | %s |\n", c.value, c.meaning)
	}
	requireBlock(t, retirementPage, "metrics", metrics.String())
}

const retirementPage = "retirement.md"

// constant is one of api/names, with the sentence that documents it.
type constant struct{ value, meaning string }

// constants are those of the group whose comment starts so.
func constants(t *testing.T, file, group string) (all []constant) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), "../api/names/"+file, nil, parser.ParseComments)
	require.NoError(t, err)
	for _, declared := range source.Decls {
		block, ok := declared.(*ast.GenDecl)
		if !ok || !strings.HasPrefix(block.Doc.Text(), group) {
			continue
		}
		for _, spec := range block.Specs {
			c, ok := spec.(*ast.ValueSpec)
			require.True(t, ok)
			literal, ok := c.Values[0].(*ast.BasicLit)
			require.True(t, ok, "%s is no literal", c.Names[0])
			value, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			all = append(all, constant{value, meaning(c.Names[0].Name, c.Doc.Text())})
		}
	}
	require.NotEmpty(t, all, "%s has no group %q", file, group)
	return all
}

// meaning is a comment as a sentence that does not name what it is about.
func meaning(name, comment string) string {
	text := strings.TrimPrefix(strings.Join(strings.Fields(comment), " "), name)
	for _, verb := range []string{": ", " means that ", " is "} {
		if rest, found := strings.CutPrefix(text, verb); found {
			text = rest
			break
		}
	}
	text = strings.ReplaceAll(text, ", or that ", ", or ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// selected is a selector without what every one has.
func selected(selector map[string]string) string {
	var all []string
	for _, label := range slices.Sorted(maps.Keys(selector)) {
		if label != names.LabelInstance && label != names.LabelManagedBy {
			all = append(all, fmt.Sprintf("`%s: %s`", label, selector[label]))
		}
	}
	return cmp.Or(strings.Join(all, ", "), "all")
}

// example is the one with the most kinds of objects.
func example(t *testing.T) *v1alpha1.ModelDeployment {
	t.Helper()
	text, err := os.ReadFile("../examples/prefill-decode.yaml")
	require.NoError(t, err)
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, yaml.UnmarshalStrict(text, md))
	return md
}

func examplePod(t *testing.T) *corev1.Pod {
	t.Helper()
	md := example(t)
	return render.Replica(md, &md.Spec.Roles[1], 0)[0]
}
