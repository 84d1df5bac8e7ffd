package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/load"
)

// Replica is the end of one engine Pod that a removal took away, or was to.
type Replica struct {
	Pod     string    `json:"pod"`
	Engine  string    `json:"engine"`
	Deleted time.Time `json:"deleted"`
	SIGTERM time.Time `json:"sigterm"`
	Exited  time.Time `json:"exited"`
	// States are those of the retirement protocol that it went through.
	States []Span `json:"-"`
	// Kept is why the retirement protocol gave it up; empty where it went.
	Kept string `json:"kept,omitempty"`
}

// Run is one scenario in one mode: what was sent, and which replicas left.
type Run struct {
	Scenario string         `json:"scenario"`
	Mode     string         `json:"mode"`
	Started  time.Time      `json:"started"`
	Asked    time.Time      `json:"asked"` // when the removal was
	Requests []load.Request `json:"requests"`
	Replicas []Replica      `json:"replicas"`
	// IdleLeave is how long an engine without work took from its delete to its
	// exit.
	IdleLeave time.Duration `json:"-"`
}

// Summary is what the demo reports of a Run. Times are in seconds.
type Summary struct {
	Scenario  string `json:"scenario"`
	Mode      string `json:"mode"`
	Requests  int    `json:"requests"`
	Completed int    `json:"completed"`
	Cut       int    `json:"cut"`
	Refused   int    `json:"refused"`
	// LastRequestToExit is the time an engine stayed after its last request had
	// ended: what was waited for nothing.
	LastRequestToExitMedian float64 `json:"lastRequestToExitMedianSeconds"`
	LastRequestToExitMax    float64 `json:"lastRequestToExitMaxSeconds"`
	// AskedToLastExit is the time from the edit or the delete to the exit of the last
	// engine that it takes away.
	AskedToLastExit float64 `json:"askedToLastExitSeconds"`
	// IdleLeave is 0 where there was no engine without work, as where replicas go for
	// good.
	IdleLeave float64 `json:"idleLeaveSeconds"`
	// LongestInState is, of each state of the retirement protocol, the longest time
	// that a replica was in it.
	LongestInState map[v1alpha1.RetirementState]float64 `json:"longestInStateSeconds,omitempty"`
	// Kept is how many replicas stayed that were to go.
	Kept int `json:"kept,omitempty"`
}

func summarize(r Run) Summary {
	s := Summary{Scenario: r.Scenario, Mode: r.Mode, Requests: len(r.Requests), IdleLeave: seconds(r.IdleLeave)}
	for _, q := range r.Requests {
		switch q.Outcome {
		case load.Completed:
			s.Completed++
		case load.Cut:
			s.Cut++
		case load.Refused:
			s.Refused++
		}
	}
	var waits []time.Duration
	var exit time.Time
	for _, replica := range r.Replicas {
		if replica.Exited.IsZero() {
			if replica.Kept != "" {
				s.Kept++
			}
			continue
		}
		if last, served := lastRequestEnd(r.Requests, replica); served {
			waits = append(waits, replica.Exited.Sub(last))
		}
		exit = later(exit, replica.Exited)
	}
	if !exit.IsZero() {
		s.AskedToLastExit = seconds(exit.Sub(r.Asked))
	}
	s.LongestInState = longestInState(r.Replicas)
	if len(waits) > 0 {
		slices.Sort(waits)
		s.LastRequestToExitMedian = seconds((waits[(len(waits)-1)/2] + waits[len(waits)/2]) / 2)
		s.LastRequestToExitMax = seconds(waits[len(waits)-1])
	}
	return s
}

// longestInState leaves out what lasted for less than is measured.
func longestInState(replicas []Replica) map[v1alpha1.RetirementState]float64 {
	var longest map[v1alpha1.RetirementState]float64
	for _, replica := range replicas {
		for _, span := range replica.States {
			took := seconds(span.To.Sub(span.From))
			if took <= longest[span.State] {
				continue
			}
			if longest == nil {
				longest = map[v1alpha1.RetirementState]float64{}
			}
			longest[span.State] = took
		}
	}
	return longest
}

// lastRequestEnd is when the replica's last request ended. One that began after it
// had left was served by a replacement of its name.
func lastRequestEnd(requests []load.Request, replica Replica) (last time.Time, served bool) {
	for _, q := range requests {
		if q.ServedBy == replica.Pod && q.Start.Before(replica.Exited) && q.End.After(last) {
			last, served = q.End, true
		}
	}
	return last, served
}

// seconds rounds to a tenth: the marks behind it are no finer.
func seconds(d time.Duration) float64 { return d.Round(100 * time.Millisecond).Seconds() }

func printTable(w io.Writer, summaries []Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tmode\trequests\tcompleted\tcut\trefused\tlast request to exit, median\tmax\tremoval to last exit\tidle engine leaves in\t")
	for _, s := range summaries {
		idle := fmt.Sprintf("%.1f s", s.IdleLeave)
		if _, none := retirements[s.Scenario]; none {
			idle = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t%s\t\n", s.Scenario, s.Mode, s.Requests, s.Completed, s.Cut, s.Refused,
			s.LastRequestToExitMedian, s.LastRequestToExitMax, s.AskedToLastExit, idle)
	}
	return t.Flush()
}

func writeSummaries(w io.Writer, summaries []Summary) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(summaries)
}
