package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/bench/controlplane"
)

func TestTheLastAnswerOfCallsThatSucceeded(t *testing.T) {
	begin := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	call := func(verb, resource, namespace string, code int32, after time.Duration) controlplane.Call {
		return controlplane.Call{Verb: verb, Resource: resource, Namespace: namespace, Code: code, Answered: begin.Add(after)}
	}
	calls := []controlplane.Call{
		call("create", "pods", "a", 201, 2*time.Second),
		call("create", "pods", "a", 201, 1*time.Second),
		call("create", "pods", "a", 409, 3*time.Second),
		call("create", "pods", "b", 201, 4*time.Second),
		call("create", "events", "a", 201, 5*time.Second),
		call("delete", "pods", "a", 200, 6*time.Second),
	}
	last, err := lastAnswer(calls, []string{"create", "update"}, "pods", "a", 2, begin)
	require.NoError(t, err)
	assert.Equal(t, 2*time.Second, last)
	_, err = lastAnswer(calls, []string{"create", "update"}, "pods", "a", 3, begin)
	assert.EqualError(t, err, "the audit log has 2 calls that create or update pods, want 3 or more")
}

func TestTheOperatorsFiguresSetLeasesAndWatchesApart(t *testing.T) {
	call := func(verb, resource string, code int32) controlplane.Call {
		return controlplane.Call{Verb: verb, Resource: resource, Code: code}
	}
	var creates []controlplane.Call
	for range owners * replicas {
		creates = append(creates, call("create", "pods", 201))
	}
	lastcall := &contender{
		kind: "ModelDeployment", load: "1.00", created: 3 * time.Second,
		calls: slices.Concat(creates, []controlplane.Call{call("get", "services", 404), call("update", "leases", 200)}),
		quiet: []controlplane.Call{call("watch", "pods", 200), call("update", "leases", 200), call("update", "leases", 200), call("list", "pods", 200)},
	}
	yardstick := &contender{kind: "StatefulSet", load: "2.00", created: 2 * time.Second, calls: slices.Concat(creates, creates)}

	var table strings.Builder
	require.NoError(t, writeTable(&table, operatorFigures(lastcall, yardstick)))
	for _, row := range []string{
		"| (e) first create to all of 1000 Pods created | 3.0 s | 2.0 s | 1.50x |",
		"| (e) API calls per replica | 1.00 | 2.00 | 0.50x |",
		"| (e) API calls per replica, create | 1.00 | 2.00 | 0.50x |",
		"| (e) API calls per replica, get | 0.00 | 0.00 | – |",
		"| (e) API calls in a quiet minute | 1 | 0 | – |",
		"| (e) Lease renewals and watches in a quiet minute | 3 | 0 | – |",
	} {
		assert.Contains(t, table.String(), row)
	}
	assert.NotContains(t, table.String(), "replica, update", "a Lease is no call per replica")

	assert.Equal(t, `(e) The load was 1.00 when the ModelDeployments were created and 2.00 when the StatefulSets were.

| (e) API calls | operator | StatefulSet controller |
|---|--:|--:|
| creating: create pods | 1000 | 2000 |
| creating: get services, answered 404 | 1 | 0 |
| quiet minute: list pods | 1 | 0 |
| quiet minute, standing: update leases | 2 | 0 |
| quiet minute, standing: watch pods | 1 | 0 |
`, callTable(lastcall, yardstick))
}
