package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/retire"
)

// routed is how a router of some processes let go of one replica of each owner.
type routed struct {
	name      string
	processes int
	// floor is the shortest time that a proof can take.
	floor time.Duration
	// waits are from when each owner was scaled down to the proof that its replica is out
	// of reach, and deletes to the delete of its Pod.
	waits, deletes []time.Duration
	// asked are the requests to each process from the first scale-down on.
	asked [][]asked
	// retirer is its processor time.
	retirer time.Duration
	load    string
}

// kinds are how many requests of each kind a process got, on average.
func (w *routed) kinds() map[string]float64 {
	kinds := map[string]float64{}
	for _, process := range w.asked {
		for _, a := range process {
			kinds[a.kind] += 1 / float64(len(w.asked))
		}
	}
	return kinds
}

// busiest is the most requests that any process got within a second.
func (w *routed) busiest() (most int) {
	for _, process := range w.asked {
		all := slices.SortedFunc(slices.Values(process), func(a, b asked) int { return a.at.Compare(b.at) })
		first := 0
		for i := range all {
			for all[i].at.Sub(all[first].at) >= time.Second {
				first++
			}
			most = max(most, i-first+1)
		}
	}
	return most
}

// rate is how many requests a process got a second, from the first to the last of any; 0
// where that is no time.
func (w *routed) rate() float64 {
	all := slices.SortedFunc(slices.Values(slices.Concat(w.asked...)), func(a, b asked) int { return a.at.Compare(b.at) })
	if len(all) == 0 || all[0].at.Equal(all[len(all)-1].at) {
		return 0
	}
	return sum(w.kinds()) / all[len(all)-1].at.Sub(all[0].at).Seconds()
}

// The kinds of requests that a look is made of: every look has one for metrics, and at
// most one for the workers.
const (
	metricsRead   = "GET /metrics"
	workersListed = "GET /workers"
)

// each is how many requests a process got for a retirement.
func (w *routed) each() float64 { return sum(w.kinds()) / float64(len(w.deletes)) }

// alone is how many it would have got if it had been asked about each replica on its
// own, as often: with each look that there is time for until the delete, and told as
// often as it was.
func (w *routed) alone() float64 {
	kinds := w.kinds()
	looks, look := kinds[metricsRead], 1.0
	if kinds[workersListed] > 0 {
		look = 2
	}
	told := sum(kinds) - look*looks
	var all float64
	for _, d := range w.deletes {
		all += look * float64(1+d/retire.ReadInterval)
	}
	return (all + told) / float64(len(w.deletes))
}

// routerFigures are those of (i).
func routerFigures(all []*routed) (figures []figure) {
	for _, w := range all {
		at := func(name string, p float64) figure {
			return figure{
				fmt.Sprintf("(i) %s, scale-down to proof, %s of %d", w.title(), name, len(w.waits)),
				percentile(slices.Clone(w.waits), p).Seconds(), w.floor.Seconds(), longer, "the protocol's waits",
			}
		}
		figures = append(figures, at("median", 0.5), at("p99", 0.99), figure{
			fmt.Sprintf("(i) %s, requests to each per retirement", w.title()), w.each(), w.alone(), decimal, "each replica asked about on its own",
		})
	}
	return figures
}

func (w *routed) title() string {
	if w.processes == 1 {
		return w.name + ", 1 process"
	}
	return fmt.Sprintf("%s, %d processes", w.name, w.processes)
}

// routerTable is a Markdown table of the requests that one process got, and of what else
// the retirements took.
func routerTable(all []*routed) string {
	kinds := map[string]bool{}
	for _, w := range all {
		for kind := range w.kinds() {
			kinds[kind] = true
		}
	}
	columns := slices.Sorted(maps.Keys(kinds))
	var text strings.Builder
	text.WriteString("| (i) requests to one process | load |")
	for _, kind := range columns {
		text.WriteString(" " + kind + " |")
	}
	text.WriteString(" a second | busiest second | scale-down to delete, longest | retirer's processor time per retirement |\n|---|--:|" + strings.Repeat("--:|", len(columns)+4) + "\n")
	for _, w := range all {
		fmt.Fprintf(&text, "| %d behind %s | %s |", len(w.deletes), w.title(), w.load)
		for _, kind := range columns {
			fmt.Fprintf(&text, " %s |", count(w.kinds()[kind]))
		}
		fmt.Fprintf(&text, " %s | %d | %s | %s |\n", decimal(w.rate()), w.busiest(), longer(slices.Max(w.deletes).Seconds()), seconds(w.retirer.Seconds()/float64(len(w.deletes))))
	}
	return text.String()
}
