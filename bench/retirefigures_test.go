package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/bench/controlplane"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func called(user, verb, resource, name string, code int32, after time.Duration) controlplane.Call {
	return controlplane.Call{User: user, Verb: verb, Resource: resource, Namespace: "a", Name: name, Code: code, Answered: noon.Add(after)}
}

// scaledDown is two owners that were scaled down a second apart.
func scaledDown(s *scaler, calls ...controlplane.Call) *scaler {
	s.namespace, s.owners, s.first = "a", 2, noon
	s.at = map[string]time.Time{"bench-0": noon, "bench-1": noon.Add(time.Second)}
	s.ends = map[string]int{"Completed": 2}
	s.calls = calls
	return s
}

// stoppedCluster is one in which nothing runs.
func stoppedCluster() *running {
	return &running{
		plane:       &controlplane.Plane{ControllerManager: &controlplane.Process{}},
		controllers: map[string]*controlplane.Process{"operator": {}},
	}
}

func scalers() (lastcall, yardstick *scaler) {
	cluster := stoppedCluster()
	lastcall = scaledDown(
		lastcallScaler(cluster, sizeBefore),
		called(retirerUser, "get", "pods/exec", "bench-0-server-3", 101, 2*time.Second),
		called(retirerUser, "get", "pods/exec", "bench-1-server-3", 101, 3*time.Second),
		called(retirerUser, "get", "pods/exec", "bench-1-server-3", 101, 4*time.Second),
		called(retirerUser, "delete", "pods", "bench-0-server-3", 409, 17*time.Second),
		called(retirerUser, "delete", "pods", "bench-0-server-3", 200, 18*time.Second),
		called(retirerUser, "delete", "pods", "bench-0-server-3", 200, 19*time.Second),
		called(retirerUser, "delete", "pods", "bench-1-server-3", 200, 20*time.Second),
		called(operatorUser, "delete", "pods", "bench-1-server-3", 200, 5*time.Second),
		called(retirerUser, "update", "leases", "lastcall-retirer", 200, 5*time.Second),
	)
	yardstick = scaledDown(
		statefulSetScaler(cluster),
		called(statefulSetUser, "delete", "pods", "bench-0-3", 200, time.Second),
		called(statefulSetUser, "delete", "pods", "bench-1-3", 200, 2*time.Second),
		called(statefulSetUser, "delete", "pods", "bench-1-2", 200, 3*time.Second),
	)
	return lastcall, yardstick
}

func TestARetirementLastsFromTheScaleDownToTheFirstDeleteThatWasAccepted(t *testing.T) {
	lastcall, yardstick := scalers()
	assert.ElementsMatch(t, []time.Duration{18 * time.Second, 19 * time.Second}, lastcall.waits())
	assert.ElementsMatch(t, []time.Duration{time.Second, time.Second}, yardstick.waits())
	require.NoError(t, lastcall.checkAllWent())

	lastcall.calls = lastcall.calls[:6]
	require.EqualError(t, lastcall.checkAllWent(), "1 of 2 replicas went, and the ends are map[Completed:2]")
}

func TestReadsAreCountedFromTheFirstToTheLast(t *testing.T) {
	lastcall, yardstick := scalers()
	assert.InDelta(t, 1, readsPerSecond(lastcall.calls), 1e-9, "three in two seconds")
	assert.Zero(t, readsPerSecond(yardstick.calls))
	assert.Zero(t, readsPerSecond(lastcall.calls[:1]), "one has no rate")
}

func TestTheRetirersFigures(t *testing.T) {
	lastcall, yardstick := scalers()
	lastcall.load, yardstick.load = "1.00", "2.00"
	lastcall.quietAfter = []controlplane.Call{called(retirerUser, "get", "pods/exec", "p", 101, 0), called(retirerUser, "update", "leases", "l", 200, 0)}
	retirer := &process{before: usage{resident: 30 << 20}, after: usage{peak: 40 << 20, cpu: 3 * time.Second}}
	manager := &process{before: usage{resident: 60 << 20}, after: usage{peak: 80 << 20, cpu: time.Second}}

	var table strings.Builder
	require.NoError(t, writeTable(&table, append(oneFigures(lastcall, yardstick), scaleFigures(lastcall, yardstick, retirer, manager)...)))
	for _, row := range []string{
		"| (g) scale-down to delete, idle replica | 19.0 s | 17.0 s | 1.12x |",
		"| (g) reads of the engine, one exec each | 3 | 0 | – |",
		"| (h) 2 scaled down at once, scale-down to delete, median | 18.0 s | 1.0 s | 18.00x |",
		"| (h) 2 scaled down at once, scale-down to delete, longest | 19.0 s | 1.0 s | 19.00x |",
		"| (h) first scale-down to last delete | 20.0 s | 2.0 s | 10.00x |",
		"| (h) reads of engines per retirement | 1.50 | 0.00 | – |",
		"| (h) API calls per retirement | 4.00 | 1.50 | 2.67x |",
		"| (h) API calls per retirement, get | 1.50 | 0.00 | – |",
		"| (h) API calls, execs too, in the quiet minute before | 0 | 0 | – |",
		"| (h) API calls, execs too, in the quiet minute after | 1 | 0 | – |",
		"| (h) processor time per retirement | 1500.00 ms | 500.00 ms | 3.00x |",
		"| (h) resident memory, peak | 40.0 MiB | 80.0 MiB | 0.50x |",
	} {
		assert.Contains(t, table.String(), row)
	}
	assert.NotContains(t, table.String(), "update", "a Lease is no call of a retirement")

	assert.Equal(t, `(h) The load was 1.00 when the ModelDeployments were scaled down and 2.00 when the StatefulSets were. Of the 2, 2 deleted: 2 Completed.

| (h) API calls of 2 retirements | retirer | operator | StatefulSet controller |
|---|--:|--:|--:|
| delete pods | 3 | 1 | 3 |
| get pods/exec | 3 | 0 | 0 |
| delete pods, answered 409 | 1 | 0 | 0 |
`, scaleTable(lastcall, yardstick))
}

func TestADeleteBeforeTheGaugesCouldShowItIsAnError(t *testing.T) {
	lastcall, _ := scalers()
	vllm, known := engine.Lookup(engine.VLLM)
	require.True(t, known)
	_, err := idleFigures(vllm, lastcall, noon.Add(12500*time.Millisecond))
	require.EqualError(t, err, "a replica of vllm was deleted 5.5s after its work ended, which is too early")
	figures, err := idleFigures(vllm, lastcall, noon.Add(11*time.Second))
	require.NoError(t, err)
	require.Len(t, figures, 2)
	assert.InDelta(t, 7, figures[0].lastcall, 1e-9)
	assert.InDelta(t, 9, figures[1].lastcall, 1e-9)
	assert.InDelta(t, 6, figures[0].yardstick, 1e-9)
}

func TestAScaleDownHasEndedWhenNothingHoldsItsReplicas(t *testing.T) {
	aborted := &v1alpha1.RetirementStatus{State: v1alpha1.StateAborted, Reason: "ServingRequests"}
	draining := &v1alpha1.RetirementStatus{State: v1alpha1.StateDraining}
	last := &v1alpha1.LastRetirement{End: v1alpha1.EndCompleted}
	for what, c := range map[string]struct {
		status v1alpha1.ModelDeploymentStatus
		want   string
	}{
		"not begun":             {v1alpha1.ModelDeploymentStatus{}, ""},
		"under way":             {v1alpha1.ModelDeploymentStatus{Retirement: draining, LastRetirement: last}, ""},
		"ended":                 {v1alpha1.ModelDeploymentStatus{LastRetirement: last}, "Completed"},
		"kept, and it says why": {v1alpha1.ModelDeploymentStatus{Retirement: aborted}, "Aborted: ServingRequests"},
	} {
		assert.Equal(t, c.want, endOf(c.status), what)
	}
}

func TestEnginesServeWhatTheyAreRead(t *testing.T) {
	for _, e := range engine.All() {
		assert.Equal(t, engine.Idle, e.Read([]byte(metrics(0))).Verdict, e.Name)
		busy := e.Read([]byte(metrics(1)))
		assert.Equal(t, engine.Busy, busy.Verdict, e.Name)
		assert.InDelta(t, 1, busy.InFlight, 0, e.Name)

		lastcall, _ := scalers()
		md, isOne := of(lastcall, e).objects("a", "bench-0")[0].(*v1alpha1.ModelDeployment)
		require.True(t, isOne)
		errs, _ := validate.ModelDeployment(md)
		require.Empty(t, errs, e.Name)
		assert.Equal(t, string(e.Name), strings.ToLower(string(md.Spec.Engine.Name)))
	}
}

func TestStepsAreReadInTheOrderOfTheRounds(t *testing.T) {
	assert.Equal(t, map[string][]float64{
		"BenchmarkSimulation": {250000, 260000.5},
		"BenchmarkWorlds":     {1.5e+06},
	}, parseSteps(`goos: linux
BenchmarkSimulation-2     	     481	   2195717 ns/op	    250000 steps/s
BenchmarkSimulation-2     	     481	   2195717 ns/op	    260000.5 steps/s
BenchmarkWorlds-2         	     999	     95717 ns/op	   1.5e+06 steps/s	 12 B/op
BenchmarkStep             	     482	   95.5 ns/op	   76750 B/op	     663 allocs/op
PASS
`))
}
