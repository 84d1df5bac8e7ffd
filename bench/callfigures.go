package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/bench/controlplane"
)

// lastAnswer is how long after begin the last of these calls was answered. Fewer
// than want are an error: something is not counted.
func lastAnswer(calls []controlplane.Call, verbs []string, resource, namespace string, want int, begin time.Time) (time.Duration, error) {
	n, last := 0, time.Duration(0)
	for _, c := range calls {
		if slices.Contains(verbs, c.Verb) && c.Resource == resource && c.Namespace == namespace && c.Code < 300 {
			n++
			last = max(last, c.Answered.Sub(begin))
		}
	}
	if n < want {
		return 0, fmt.Errorf("the audit log has %d calls that %s %s, want %d or more", n, strings.Join(verbs, " or "), resource, want)
	}
	return last, nil
}

// countBy counts calls by what key makes of them; "" is not counted.
func countBy(calls []controlplane.Call, key func(controlplane.Call) string) map[string]float64 {
	counts := map[string]float64{}
	for _, c := range calls {
		if k := key(c); k != "" {
			counts[k]++
		}
	}
	return counts
}

// byVerb counts the calls that are made because something changed.
func byVerb(c controlplane.Call) string {
	if c.Standing() {
		return ""
	}
	return c.Verb
}

func byResource(c controlplane.Call) string {
	if c.Standing() {
		return ""
	}
	text := c.Verb + " " + c.Resource
	if c.Code >= 300 {
		text += fmt.Sprintf(", answered %d", c.Code)
	}
	return text
}

func standing(c controlplane.Call) string {
	if !c.Standing() {
		return ""
	}
	return c.Verb + " " + c.Resource
}

func sum(counts map[string]float64) (total float64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// operatorFigures are those of (e).
func operatorFigures(lastcall, yardstick *contender) []figure {
	const pods = owners * replicas
	row := func(what string, of func(*contender) float64, unit func(float64) string, beside string) figure {
		return figure{"(e) " + what, of(lastcall), of(yardstick), unit, beside}
	}
	const controller, manager = "StatefulSet controller", "kube-controller-manager, whole"
	figures := []figure{
		row(fmt.Sprintf("first create to all of %d Pods created", pods), func(c *contender) float64 { return c.created.Seconds() }, longer, controller),
		row("first create to all Pods Ready", func(c *contender) float64 { return c.running.Seconds() }, longer, controller),
		row("first create to all reported Ready", func(c *contender) float64 { return c.reported.Seconds() }, longer, controller),
		row("API calls per replica", func(c *contender) float64 { return sum(countBy(c.calls, byVerb)) / pods }, decimal, controller),
	}
	verbs := countBy(slices.Concat(lastcall.calls, yardstick.calls), byVerb)
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		figures = append(figures, row("API calls per replica, "+verb, func(c *contender) float64 { return countBy(c.calls, byVerb)[verb] / pods }, decimal, controller))
	}
	return append(figures,
		row("API calls in a quiet minute", func(c *contender) float64 { return sum(countBy(c.quiet, byVerb)) }, count, controller),
		row("Lease renewals and watches in a quiet minute", func(c *contender) float64 { return sum(countBy(c.quiet, standing)) }, count, controller),
		row("processor time per replica", func(c *contender) float64 { return (c.after.cpu - c.before.cpu).Seconds() / pods }, seconds, manager),
		row("processor time in a quiet minute", func(c *contender) float64 { return (c.settled.cpu - c.idle.cpu).Seconds() }, seconds, manager),
		row("resident memory before", func(c *contender) float64 { return c.before.resident }, mebibytes, manager),
		row("resident memory, peak", func(c *contender) float64 { return c.after.peak }, mebibytes, manager),
		row("resident memory after a quiet minute", func(c *contender) float64 { return c.settled.resident }, mebibytes, manager),
	)
}

// callTable is a Markdown table of what the calls were about, most first.
func callTable(lastcall, yardstick *contender) string {
	text := fmt.Sprintf("(e) The load was %s when the %ss were created and %s when the %ss were.\n\n", lastcall.load, lastcall.kind, yardstick.load, yardstick.kind)
	text += "| (e) API calls | operator | StatefulSet controller |\n|---|--:|--:|\n"
	text += countRows("creating: ", countBy(lastcall.calls, byResource), countBy(yardstick.calls, byResource))
	text += countRows("quiet minute: ", countBy(lastcall.quiet, byResource), countBy(yardstick.quiet, byResource))
	return text + countRows("quiet minute, standing: ", countBy(lastcall.quiet, standing), countBy(yardstick.quiet, standing))
}

// countRows are rows of a Markdown table with a column of counts for each contender.
func countRows(when string, columns ...map[string]float64) (text string) {
	all := map[string]float64{}
	for _, column := range columns {
		for what, n := range column {
			all[what] += n
		}
	}
	for _, what := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b], all[a]), strings.Compare(a, b))
	}) {
		text += "| " + when + what + " |"
		for _, column := range columns {
			text += " " + count(column[what]) + " |"
		}
		text += "\n"
	}
	return text
}
