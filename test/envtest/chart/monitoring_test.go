package chart

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constant is one of api/names.
type constant struct{ value, doc string }

// words are the constants of a file of api/names by their Go names.
func words(t *testing.T, pattern string) map[string]constant {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Root(), "api", "names", pattern))
	require.NoError(t, err)
	all := map[string]constant{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				all[spec.Names[0].Name] = constant{value, strings.Join(strings.Fields(spec.Doc.Text()), " ")}
			}
			return true
		})
	}
	require.NotEmpty(t, all, pattern)
	return all
}

// A metric is documented with its labels: "by the labels cause and end".
type metric struct {
	labels []string
	doc    string
}

var labelsOf = regexp.MustCompile(`by the labels? (\w+)(?:, (\w+))?(?: and (\w+))?`)

func metrics(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for name, c := range words(t, "metrics.go") {
		require.True(t, strings.HasPrefix(name, "Metric"), name)
		m := metric{doc: c.doc}
		if found := labelsOf.FindStringSubmatch(c.doc); found != nil {
			m.labels = slices.DeleteFunc(found[1:], func(label string) bool { return label == "" })
		}
		if !strings.Contains(c.doc, "istogram") {
			all[c.value] = m
			continue
		}
		for suffix, labels := range map[string][]string{"_bucket": append(m.labels, "le"), "_sum": m.labels, "_count": m.labels} {
			all[c.value+suffix] = metric{labels, c.doc}
		}
	}
	return all
}

var (
	ours     = regexp.MustCompile(`lastcall_\w+`)
	grouped  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	selected = regexp.MustCompile(`(lastcall_\w+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`^(\w+)(?:=|!=|=~|!~)"([^"]*)"$`)
)

// requireKnown fails for a metric, a label or a value of one that lastcall does not
// have: a rule with it never fires, and nobody notices.
func requireKnown(t *testing.T, expr string) {
	t.Helper()
	known := metrics(t)
	found := ours.FindAllString(expr, -1)
	require.NotEmpty(t, found, expr)
	for _, name := range found {
		require.Contains(t, known, name, expr)
	}
	for _, labels := range grouped.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(labels[1], ",") {
			for _, name := range found {
				require.Contains(t, known[name].labels, strings.TrimSpace(label), "%s: %s", name, expr)
			}
		}
	}
	values := map[string]bool{}
	for _, c := range words(t, "*.go") {
		values[c.value] = true
	}
	for _, selector := range selected.FindAllStringSubmatch(expr, -1) {
		name := selector[1]
		for text := range strings.SplitSeq(selector[2], ",") {
			parts := matcher.FindStringSubmatch(text)
			require.NotNil(t, parts, "%q in %s", text, expr)
			require.Contains(t, known[name].labels, parts[1], "%s: %s", name, expr)
			for value := range strings.SplitSeq(parts[2], "|") {
				isDocumented := regexp.MustCompile(`\b` + value + `\b`).MatchString(known[name].doc)
				require.True(t, values[value] || isDocumented, "%s has no value %q: %s", parts[1], value, expr)
			}
		}
	}
	for opening, closing := range map[string]string{"(": ")", "{": "}", "[": "]"} {
		require.Equal(t, strings.Count(expr, opening), strings.Count(expr, closing), expr)
	}
}

type dashboard struct {
	Panels []struct {
		ID      int    `json:"id"`
		Type    string `json:"type"`
		Title   string `json:"title"`
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, LegendFormat string }
	} `json:"panels"`
}

func TestTheDashboardShowsEveryMetric(t *testing.T) {
	documents := render(t, "--set", "monitoring.dashboard.enabled=true")
	configMap := one[corev1.ConfigMap](t, documents, "ConfigMap")
	assert.Equal(t, "1", configMap.Labels["grafana_dashboard"], "Grafana's sidecar finds it by this")
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(configMap.Data["lastcall.json"]), &d))

	file, err := os.ReadFile(filepath.Join(Root(), "charts/lastcall/files/dashboard.json"))
	require.NoError(t, err)
	assert.JSONEq(t, string(file), configMap.Data["lastcall.json"], "the file can be imported as it is")

	var shown strings.Builder
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, panel := range d.Panels {
		assert.Empty(t, ids[panel.ID], "the ID of %s", panel.Title)
		ids[panel.ID] = panel.Title
		assert.Empty(t, places[[2]int{panel.GridPos.X, panel.GridPos.Y}], "the place of %s", panel.Title)
		places[[2]int{panel.GridPos.X, panel.GridPos.Y}] = panel.Title
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			requireKnown(t, target.Expr)
			shown.WriteString(target.Expr + "\n")
			for _, label := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				assert.Regexp(t, `\bby \([^)]*\b`+label[1]+`\b`, target.Expr, "the legend of %s shows what the sum took away", panel.Title)
			}
		}
	}
	for _, c := range words(t, "metrics.go") {
		assert.Regexp(t, c.value+`(_bucket|\b)`, shown.String(), "no panel shows it")
	}
}

type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

func TestAlertsAreAboutMetricsThatThereAre(t *testing.T) {
	documents := render(t, "--set", "monitoring.alerts.enabled=true", "--set", "monitoring.alerts.labels.release=prometheus",
		"--set", "retirer.budgets.drain=1800s")
	rule := one[prometheusRule](t, documents, "PrometheusRule")
	assert.Equal(t, "prometheus", rule.Labels["release"], "many a Prometheus selects by it")
	require.Len(t, rule.Spec.Groups, 1)
	alerts := map[string]string{}
	for _, alert := range rule.Spec.Groups[0].Rules {
		assert.Empty(t, alerts[alert.Alert], "%s is there twice", alert.Alert)
		alerts[alert.Alert] = alert.Expr
		requireKnown(t, alert.Expr)
		assert.Contains(t, []string{"info", "warning", "critical"}, alert.Labels["severity"], alert.Alert)
		assert.Regexp(t, `^[^\n]{20,110}\.$`, alert.Annotations["summary"], alert.Alert)
		assert.Contains(t, alert.Annotations["description"], "kubectl ", "%s says what to do", alert.Alert)
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(alert.Annotations["summary"], -1) {
			assert.Regexp(t, `\bby \([^)]*\b`+label[1]+`\b`, alert.Expr, "%s: the label is not in the result", alert.Alert)
		}
	}
	assert.Equal(t, "max(lastcall_longest_hold_seconds) > 1800", alerts["LastcallReplicaHeldLong"], "it follows the budget")
	assert.Len(t, alerts, 10)

	documents = render(t, "--set", "monitoring.alerts.enabled=true", "--set", "retirer.replicas=0")
	for _, alert := range one[prometheusRule](t, documents, "PrometheusRule").Spec.Groups[0].Rules {
		assert.NotEqual(t, "LastcallRetirerAbsent", alert.Alert, "nobody wants one")
	}
}

func TestAnUnknownMetricOrLabelWouldBeFound(t *testing.T) {
	failing := func(expr string) bool {
		inner := &testing.T{}
		done := make(chan struct{})
		go func() { // FailNow ends the goroutine
			defer close(done)
			requireKnown(inner, expr)
		}()
		<-done
		return inner.Failed()
	}
	for expr, wrong := range map[string]bool{
		`sum by (reason) (lastcall_replicas_held)`:                    false,
		`sum by (reasons) (lastcall_replicas_held)`:                   true,
		`sum by (reason) (lastcall_replicas_hold)`:                    true,
		`lastcall_member_reads_total{verdict="ExecForbidden"}`:        false,
		`lastcall_member_reads_total{verdict="Forbidden"}`:            true,
		`lastcall_member_reads_total{reason="ExecForbidden"}`:         true,
		`lastcall_member_reads_total{verdict!~"Idle|Busy|Uncertain"}`: true,
		`sum(lastcall_replicas_held`:                                  true,
		`rate(lastcall_retirement_state_seconds[5m])`:                 true,
	} {
		assert.Equal(t, wrong, failing(expr), expr)
	}
}

func TestMonitoringIsAnOption(t *testing.T) {
	documents := render(t)
	assert.Empty(t, decode[prometheusRule](t, documents, "PrometheusRule"), "its API may not be there")
	assert.Empty(t, decode[map[string]any](t, documents, "PodMonitor"))
	assert.Empty(t, decode[corev1.ConfigMap](t, documents, "ConfigMap"))
}

func TestThePodMonitorFindsAllOfLastcallsPods(t *testing.T) {
	documents := render(t, "--set", "monitoring.podMonitor.enabled=true", "--set", "monitoring.podMonitor.labels.release=prometheus")
	monitor := one[struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Selector            metav1.LabelSelector    `json:"selector"`
			PodMetricsEndpoints []struct{ Port string } `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}](t, documents, "PodMonitor")
	assert.Equal(t, "prometheus", monitor.Labels["release"])
	selector, err := metav1.LabelSelectorAsMap(&monitor.Spec.Selector)
	require.NoError(t, err)
	deployments := decode[appsv1.Deployment](t, documents, "Deployment")
	require.Len(t, deployments, 3)
	for _, deployment := range deployments {
		for key, value := range selector {
			assert.Equal(t, value, deployment.Spec.Template.Labels[key], deployment.Name)
		}
		ports := deployment.Spec.Template.Spec.Containers[0].Ports
		assert.True(t, slices.ContainsFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == monitor.Spec.PodMetricsEndpoints[0].Port }), deployment.Name)
	}
}
