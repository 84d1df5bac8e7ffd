package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/test/load"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// twoReplicas is a run in which "a" is deleted at 10 s with a request in flight
// and exits 1 s after it, and "b" is deleted at 20 s and cuts one.
func twoReplicas() Run {
	return Run{
		Scenario: "rollout", Mode: "lastcall", Started: start, IdleLeave: 6040 * time.Millisecond,
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
		LastRequestToExitMedian: 2.5, LastRequestToExitMax: 4, IdleLeave: 6,
	}, summarize(twoReplicas()))
}

func TestARequestBelongsToTheScenarioInWhichItEnded(t *testing.T) {
	s := stage{mode: lastcall, replicas: &replicas{}}
	first, second := window{"delete", at(0), at(10)}, window{"rollout", at(10), at(20)}
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
	var picture bytes.Buffer
	require.NoError(t, writeTimeline(&picture, []string{"rollout"}, []string{"no hook", "lastcall"}, []Run{twoReplicas()}))
	if path := os.Getenv("LASTCALL_KEEP_TIMELINE"); path != "" {
		require.NoError(t, os.WriteFile(path, picture.Bytes(), 0o644))
	}
	for _, pod := range []string{">a<", ">b<", ">c<", ">no replica answered<", "1 of 5 requests cut"} {
		assert.Contains(t, picture.String(), pod)
	}
	decoder := xml.NewDecoder(&picture)
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
	}
}
