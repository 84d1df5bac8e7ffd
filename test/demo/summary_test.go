package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/load"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// twoReplicas is a run in which "a" is deleted at 10 s with a request in flight
// and exits 1 s after it, and "b" is deleted at 20 s and cuts one.
func twoReplicas() Run {
	return Run{
		Scenario: "rollout", Mode: "lastcall", Started: start, Asked: at(8), IdleLeave: 6040 * time.Millisecond,
		Requests: []load.Request{
			{Start: at(1), End: at(12), Outcome: load.Completed, ServedBy: "a"},
			{Start: at(2), End: at(9), Outcome: load.Completed, ServedBy: "a"},
			{Start: at(12), End: at(25), Outcome: load.Cut, ServedBy: "b"},
			{Start: at(13), End: at(13.1), Outcome: load.Refused},
			{Start: at(14), End: at(30), Outcome: load.Completed, ServedBy: "c"},
		},
		Replicas: []Replica{
			{Pod: "a", Engine: "vllm", Deleted: at(10), SIGTERM: at(12.6), Exited: at(13)},
			{Pod: "b", Engine: "sglang", Deleted: at(20), SIGTERM: at(25), Exited: at(29)},
		},
	}
}

func TestSummaryCountsOutcomesAndWaits(t *testing.T) {
	assert.Equal(t, Summary{
		Scenario: "rollout", Mode: "lastcall", Requests: 5, Completed: 3, Cut: 1, Refused: 1,
		LastRequestToExitMedian: 2.5, LastRequestToExitMax: 4, AskedToLastExit: 21, IdleLeave: 6,
	}, summarize(twoReplicas()))
}

func TestARequestBelongsToTheScenarioInWhichItEnded(t *testing.T) {
	s := stage{mode: lastcall, replicas: &replicas{}}
	first, second := window{scenario: "delete", began: at(0), end: at(10)}, window{scenario: "rollout", began: at(10), end: at(20)}
	requests := []load.Request{
		{Start: at(-1), End: at(0)},
		{Start: at(1), End: at(10)},
		{Start: at(1), End: at(13), Outcome: load.Cut}, // by the rollout
		{Start: at(19), End: at(21)},
	}
	assert.Equal(t, requests[1:2], s.run(first, requests).Requests)
	assert.Equal(t, requests[2:3], s.run(second, requests).Requests)
}

func TestAReplacementOfTheSameNameIsAnotherReplica(t *testing.T) {
	r := twoReplicas()
	r.Requests = append(r.Requests, load.Request{Start: at(20), End: at(40), Outcome: load.Completed, ServedBy: "a"})
	assert.Equal(t, summarize(twoReplicas()).LastRequestToExitMedian, summarize(r).LastRequestToExitMedian)
}

func TestStatesAreSummedUpByTheLongest(t *testing.T) {
	r := twoReplicas()
	r.Replicas[0].States = []Span{{v1alpha1.StateAdmitted, at(1), at(1.01)}, {v1alpha1.StateDraining, at(1.01), at(9)}}
	r.Replicas[1].States = []Span{{v1alpha1.StateDraining, at(1), at(19.5)}, {State: v1alpha1.StateSettling, From: at(19.5)}}
	assert.Equal(t, map[v1alpha1.RetirementState]float64{v1alpha1.StateDraining: 18.5}, summarize(r).LongestInState)
}

func TestAReplicaThatWasKeptHasNoExit(t *testing.T) {
	want := summarize(twoReplicas())
	want.Kept = 1
	r := twoReplicas()
	r.Replicas = append(r.Replicas, Replica{Pod: "c", Kept: "ServingRequests"})
	assert.Equal(t, want, summarize(r))
	assert.ErrorContains(t, kept([]Run{r}), "c was not proven idle and stayed (ServingRequests)")
	assert.NoError(t, kept([]Run{twoReplicas()}))
}

func TestNothingLeftIsNoTime(t *testing.T) {
	r := twoReplicas()
	r.Replicas = nil
	assert.Zero(t, summarize(r).AskedToLastExit)
}

func TestTableLeavesOutWhatThereWasNot(t *testing.T) {
	var table bytes.Buffer
	require.NoError(t, printTable(&table, []Summary{
		{Scenario: "delete", Mode: "lastcall", Requests: 9, Completed: 9, AskedToLastExit: 20, IdleLeave: 6},
		{Scenario: "delete md", Mode: "no hook", Requests: 6, Cut: 6, AskedToLastExit: 0.3},
		{Scenario: "delete", Mode: "no hook", Requests: 9, Completed: 9, AskedToLastExit: 20},
	}))
	lines := strings.Split(table.String(), "\n")
	assert.Regexp(t, `20\.0 s +6\.0 s$`, lines[1])
	assert.Regexp(t, `0\.3 s +-$`, lines[2])
	assert.Regexp(t, `20\.0 s +0\.0 s$`, lines[3], "an idle engine that left at once")
}

func TestAReplicaThatServedNothingHasNoWait(t *testing.T) {
	r := twoReplicas()
	r.Replicas = []Replica{{Pod: "never-served", Deleted: at(1), Exited: at(20)}}
	assert.Zero(t, summarize(r).LastRequestToExitMax)
}

func TestRequestsOfABandDoNotOverlap(t *testing.T) {
	for _, d := range bands(twoReplicas()) {
		for i, q := range d.requests {
			for j, other := range d.requests[:i] {
				if d.lanes[i] == d.lanes[j] {
					assert.False(t, q.Start.Before(other.End), "%s: requests %d and %d share lane %d", d.pod, i, j, d.lanes[i])
				}
			}
		}
	}
}

func TestTimelineIsWellFormedAndNamesEveryReplica(t *testing.T) {
	picture := drawn(t, twoReplicas())
	for _, pod := range []string{">a<", ">b<", ">c<", ">no replica answered<", "1 of 5 requests cut"} {
		assert.Contains(t, picture, pod)
	}
}

func TestTimelineDrawsTheStatesOfTheProtocol(t *testing.T) {
	r := twoReplicas()
	r.Replicas[0].States = []Span{
		{v1alpha1.StateWithdrawing, at(5), at(8)}, {v1alpha1.StateDraining, at(8), at(10)}, {State: v1alpha1.StateSettling, From: at(10)},
	}
	picture := drawn(t, r)
	for _, span := range []string{"Withdrawing, 3.0 s", "Draining, 2.0 s", "Settling, 20.0 s"} {
		assert.Contains(t, picture, "<title>"+span+"</title>", "a state whose end was not seen lasts to the end")
	}
	assert.Contains(t, picture, ">Draining</text>", "the legend has what is drawn")
	assert.NotContains(t, picture, ">Aborted</text>", "and nothing else")
	for _, d := range bands(r) {
		if d.pod == "a" {
			assert.GreaterOrEqual(t, d.top(), labelHeight+stateHeight, "requests do not cover the states")
		}
	}
}

func TestTimelinePutsAModeIntoItsColumn(t *testing.T) {
	r := twoReplicas()
	first := drawn(t, r)
	r.Mode = "drain window"
	second := drawn(t, r)
	title := func(x int) string {
		return fmt.Sprintf(`<text x="%d" y="%d" font-size="13" font-weight="600">rollout, `, x, headHeight)
	}
	assert.Contains(t, first, title(marginLeft)+"lastcall")
	assert.Contains(t, second, title(marginLeft+panelWidth+panelGap)+"drain window")
}

// drawn is the picture of a run, which is well-formed.
func drawn(t *testing.T, r Run) string {
	t.Helper()
	var picture bytes.Buffer
	require.NoError(t, writeTimeline(&picture, []string{"rollout"}, [][]string{{"lastcall"}, {"sleep 15", "drain window"}}, []Run{r}))
	if path := os.Getenv("LASTCALL_KEEP_TIMELINE"); path != "" {
		require.NoError(t, os.WriteFile(path, picture.Bytes(), 0o644))
	}
	decoder := xml.NewDecoder(bytes.NewReader(picture.Bytes()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return picture.String()
		}
		require.NoError(t, err)
	}
}
