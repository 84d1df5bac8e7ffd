package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/bench/controlplane"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

const (
	statefulSetController = "StatefulSet controller"
	wholeManager          = "kube-controller-manager, whole"
)

// execs are the calls that read a member.
func execs(calls []controlplane.Call) []controlplane.Call {
	return slices.DeleteFunc(slices.Clone(calls), func(c controlplane.Call) bool { return c.Resource != "pods/exec" })
}

// readsPerSecond is how many reads a second ended from the first to the last; 0 for
// fewer than two.
func readsPerSecond(calls []controlplane.Call) float64 {
	reads := execs(calls)
	if len(reads) < 2 {
		return 0
	}
	byTime := func(a, b controlplane.Call) int { return a.Answered.Compare(b.Answered) }
	span := slices.MaxFunc(reads, byTime).Answered.Sub(slices.MinFunc(reads, byTime).Answered)
	return float64(len(reads)-1) / span.Seconds()
}

// oneFigures are those of (g) about one replica that is idle all the time.
func oneFigures(lastcall, yardstick *scaler) []figure {
	refresh, _ := engine.Lookup(engine.VLLM)
	floor := withdrawal + refresh.Refresh
	figures := []figure{
		{
			"(g) scale-down to delete, idle replica", slices.Max(lastcall.waits()).Seconds(), floor.Seconds(), longer,
			fmt.Sprintf("the protocol's waits: %s for withdrawal, %s for vLLM's gauges", withdrawal, refresh.Refresh),
		},
		{"(g) reads of the engine, one exec each", float64(len(execs(lastcall.calls))), float64(len(execs(yardstick.calls))), count, statefulSetController},
	}
	return append(figures, callFigures("(g) API calls of one retirement", lastcall, yardstick)...)
}

// callFigures are the API calls for each owner, and those of each verb.
func callFigures(what string, lastcall, yardstick *scaler) []figure {
	each := func(s *scaler, verb string) float64 {
		counts := countBy(s.calls, byVerb)
		if verb != "" {
			return counts[verb] / float64(s.owners)
		}
		return sum(counts) / float64(s.owners)
	}
	figures := []figure{{what, each(lastcall, ""), each(yardstick, ""), decimal, statefulSetController}}
	for _, verb := range slices.Sorted(maps.Keys(countBy(slices.Concat(lastcall.calls, yardstick.calls), byVerb))) {
		figures = append(figures, figure{what + ", " + verb, each(lastcall, verb), each(yardstick, verb), decimal, statefulSetController})
	}
	return figures
}

// idleFigures are those of (g) about replicas whose work ended at a moment.
func idleFigures(e engine.Engine, s *scaler, idleAt time.Time) ([]figure, error) {
	var waits []time.Duration
	for _, at := range s.deleted() {
		waits = append(waits, at.Sub(idleAt))
	}
	if least := slices.Min(waits); least < e.Refresh {
		return nil, fmt.Errorf("a replica of %s was deleted %s after its work ended, which is too early", e.Name, least)
	}
	row := func(name string, p float64) figure {
		return figure{
			fmt.Sprintf("(g) idle to delete, %s, %s of %d", e.Name, name, len(waits)), percentile(waits, p).Seconds(), e.Refresh.Seconds(), longer,
			"how long its gauges can lag",
		}
	}
	return []figure{row("median", 0.5), row("longest", 1)}, nil
}

// scaleFigures are those of (h).
func scaleFigures(lastcall, yardstick *scaler, retirer, manager *process) []figure {
	waits := [2][]time.Duration{lastcall.waits(), yardstick.waits()}
	at := func(name string, p float64) figure {
		return figure{
			fmt.Sprintf("(h) %d scaled down at once, scale-down to delete, %s", lastcall.owners, name),
			percentile(waits[0], p).Seconds(), percentile(waits[1], p).Seconds(), longer, statefulSetController,
		}
	}
	all := func(s *scaler) float64 {
		return slices.MaxFunc(slices.Collect(maps.Values(s.deleted())), time.Time.Compare).Sub(s.first).Seconds()
	}
	figures := []figure{
		at("median", 0.5), at("p95", 0.95), at("longest", 1),
		{"(h) first scale-down to last delete", all(lastcall), all(yardstick), longer, statefulSetController},
		{"(h) reads of engines", readsPerSecond(lastcall.calls), readsPerSecond(yardstick.calls), perSecond, statefulSetController},
		{
			"(h) reads of engines per retirement", float64(len(execs(lastcall.calls))) / float64(lastcall.owners),
			float64(len(execs(yardstick.calls))) / float64(yardstick.owners), decimal, statefulSetController,
		},
	}
	figures = append(figures, callFigures("(h) API calls per retirement", lastcall, yardstick)...)
	quiet := func(name string, of func(*scaler) []controlplane.Call) figure {
		total := func(s *scaler) float64 { return sum(countBy(of(s), byVerb)) }
		return figure{"(h) API calls, execs too, in the quiet minute " + name, total(lastcall), total(yardstick), count, statefulSetController}
	}
	beside := func(what string, of func(*process) float64, unit func(float64) string) figure {
		return figure{"(h) " + what, of(retirer), of(manager), unit, wholeManager}
	}
	owners := float64(lastcall.owners)
	return append(figures,
		quiet("before", func(s *scaler) []controlplane.Call { return s.quietBefore }),
		quiet("after", func(s *scaler) []controlplane.Call { return s.quietAfter }),
		beside("processor time per retirement", func(p *process) float64 { return (p.after.cpu - p.before.cpu).Seconds() / owners }, seconds),
		beside("processor time in the quiet minute after", func(p *process) float64 { return (p.settled.cpu - p.idle.cpu).Seconds() }, seconds),
		beside("resident memory before", func(p *process) float64 { return p.before.resident }, mebibytes),
		beside("resident memory, peak", func(p *process) float64 { return p.after.peak }, mebibytes),
		beside("resident memory after a quiet minute", func(p *process) float64 { return p.settled.resident }, mebibytes),
	)
}

// userTable is a Markdown table of calls, with a column for each controller.
func userTable(title string, lastcall, yardstick *scaler) string {
	by := func(s *scaler, user string) map[string]float64 {
		return countBy(s.calls, func(c controlplane.Call) string {
			if c.User != user {
				return ""
			}
			return byResource(c)
		})
	}
	return "| " + title + " | retirer | operator | StatefulSet controller |\n|---|--:|--:|--:|\n" +
		countRows("", by(lastcall, retirerUser), by(lastcall, operatorUser), by(yardstick, statefulSetUser))
}

func oneTable(lastcall, yardstick *scaler) string {
	return userTable("(g) API calls of one retirement", lastcall, yardstick)
}

func scaleTable(lastcall, yardstick *scaler) string {
	return fmt.Sprintf("(h) The load was %s when the %ss were scaled down and %s when the %ss were. %s.\n\n",
		lastcall.load, lastcall.kind, yardstick.load, yardstick.kind, endsText(lastcall)) +
		userTable(fmt.Sprintf("(h) API calls of %d retirements", lastcall.owners), lastcall, yardstick)
}

// endsText tells how the retirements ended.
func endsText(s *scaler) string {
	var parts []string
	for _, end := range slices.Sorted(maps.Keys(s.ends)) {
		parts = append(parts, fmt.Sprintf("%d %s", s.ends[end], end))
	}
	return fmt.Sprintf("Of the %d, %d deleted: %s", s.owners, len(s.deleted()), strings.Join(parts, ", "))
}
