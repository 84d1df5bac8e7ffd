package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/lastcall-dev/lastcall/test/load"
)

// Replica is the end of one engine Pod that a removal took away.
type Replica struct {
	Pod     string    `json:"pod"`
	Engine  string    `json:"engine"`
	Deleted time.Time `json:"deleted"`
	SIGTERM time.Time `json:"sigterm"`
	Exited  time.Time `json:"exited"`
}

// Run is one scenario in one mode: what was sent, and which replicas left.
type Run struct {
	Scenario string         `json:"scenario"`
	Mode     string         `json:"mode"`
	Started  time.Time      `json:"started"`
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
	IdleLeave               float64 `json:"idleLeaveSeconds"`
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
	for _, replica := range r.Replicas {
		if last, served := lastRequestEnd(r.Requests, replica); served {
			waits = append(waits, replica.Exited.Sub(last))
		}
	}
	if len(waits) > 0 {
		slices.Sort(waits)
		s.LastRequestToExitMedian = seconds((waits[(len(waits)-1)/2] + waits[len(waits)/2]) / 2)
		s.LastRequestToExitMax = seconds(waits[len(waits)-1])
	}
	return s
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
	fmt.Fprintln(t, "scenario\tmode\trequests\tcompleted\tcut\trefused\tlast request to exit, median\tmax\tidle engine leaves in\t")
	for _, s := range summaries {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%.1f s\t%.1f s\t%.1f s\t\n", s.Scenario, s.Mode, s.Requests, s.Completed, s.Cut, s.Refused,
			s.LastRequestToExitMedian, s.LastRequestToExitMax, s.IdleLeave)
	}
	return t.Flush()
}

func writeSummaries(w io.Writer, summaries []Summary) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(summaries)
}
