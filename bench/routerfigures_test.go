package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/validate"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// asks are requests of one kind at these times after noon.
func asks(kind string, after ...time.Duration) (all []asked) {
	for _, d := range after {
		all = append(all, asked{kind, noon.Add(d)})
	}
	return all
}

func join(all ...[]asked) (joined []asked) {
	for _, one := range all {
		joined = append(joined, one...)
	}
	return joined
}

// withdrawn is a router of two processes that is told to let go of two replicas, with
// two looks at both.
func withdrawn() *routed {
	look := join(asks(workersListed, 0, 3*time.Second), asks(metricsRead, 10*time.Millisecond, 3010*time.Millisecond))
	told := join(asks(workersListed, time.Second, time.Second), asks("DELETE /workers", 1100*time.Millisecond, 1200*time.Millisecond))
	return &routed{
		name: "vllm-router 0.1.15", processes: 2, floor: 18 * time.Second, load: "1.00", retirer: 300 * time.Millisecond,
		waits: []time.Duration{20 * time.Second, 19 * time.Second}, deletes: []time.Duration{29 * time.Second, 30 * time.Second},
		asked: [][]asked{join(look, told), join(look, told)},
	}
}

func TestTheRoutersFigures(t *testing.T) {
	follower := &routed{
		name: "llm-d 0.10.0", processes: 1, floor: 8 * time.Second, load: "2.00", retirer: 50 * time.Millisecond,
		waits: []time.Duration{9 * time.Second}, deletes: []time.Duration{18 * time.Second},
		asked: [][]asked{asks(metricsRead, 0, 3*time.Second, 6*time.Second)},
	}
	all := []*routed{withdrawn(), follower}
	var table strings.Builder
	require.NoError(t, writeTable(&table, routerFigures(all)))
	assert.Equal(t, `| | lastcall | yardstick | ratio | the yardstick |
|---|--:|--:|--:|---|
| (i) vllm-router 0.1.15, 2 processes, scale-down to proof, median of 2 | 19.0 s | 18.0 s | 1.06x | the protocol's waits |
| (i) vllm-router 0.1.15, 2 processes, scale-down to proof, p99 of 2 | 20.0 s | 18.0 s | 1.11x | the protocol's waits |
| (i) vllm-router 0.1.15, 2 processes, requests to each per retirement | 4.00 | 23.00 | 0.17x | each replica asked about on its own |
| (i) llm-d 0.10.0, 1 process, scale-down to proof, median of 1 | 9.0 s | 8.0 s | 1.12x | the protocol's waits |
| (i) llm-d 0.10.0, 1 process, scale-down to proof, p99 of 1 | 9.0 s | 8.0 s | 1.12x | the protocol's waits |
| (i) llm-d 0.10.0, 1 process, requests to each per retirement | 3.00 | 7.00 | 0.43x | each replica asked about on its own |
`, table.String(), "alone: 10 looks in 29 s and 11 in 30 s with two requests each, and two commands with two each")

	assert.Equal(t, `| (i) requests to one process | load | DELETE /workers | GET /metrics | GET /workers | a second | busiest second | scale-down to delete, longest | retirer's processor time per retirement |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
| 2 behind vllm-router 0.1.15, 2 processes | 1.00 | 2 | 2 | 4 | 2.66 | 4 | 30.0 s | 150.00 ms |
| 1 behind llm-d 0.10.0, 1 process | 2.00 | 0 | 3 | 0 | 0.50 | 1 | 18.0 s | 50.00 ms |
`, routerTable(all))
}

func TestTheBusiestSecondIsThatOfAnyProcess(t *testing.T) {
	w := &routed{asked: [][]asked{
		asks(metricsRead, 0, 600*time.Millisecond, 1200*time.Millisecond),
		asks(metricsRead, 1599*time.Millisecond, 600*time.Millisecond, 1200*time.Millisecond, 1600*time.Millisecond),
	}}
	assert.Equal(t, 3, w.busiest(), "a second after the first one has ended")
	assert.Zero(t, (&routed{asked: [][]asked{nil}}).busiest())
	assert.Zero(t, (&routed{asked: [][]asked{asks(metricsRead, 0)}}).rate(), "one has no rate")
}

func TestRequestsAreOfAKindWhicheverWorkerTheyAreAbout(t *testing.T) {
	assert.Equal(t, workersListed, kindOf("GET", "/workers"))
	assert.Equal(t, metricsRead, kindOf("GET", "/metrics"))
	assert.Equal(t, "DELETE /workers", kindOf("DELETE", "/workers/http://10.0.0.1:8000"))
	assert.Equal(t, "DELETE /workers", kindOf("DELETE", "/workers/0b0b0b0b"))
	assert.Equal(t, "GET /", kindOf("GET", "/"))
}

func TestRequestsBeforeTheScaleDownAreNotCounted(t *testing.T) {
	p := &routerProcess{all: asks(metricsRead, 0, time.Second, 2*time.Second)}
	assert.Equal(t, asks(metricsRead, time.Second, 2*time.Second), p.since(noon.Add(time.Second)))
}

func TestAFloorIsTheLooksThatMustBeBeforeAndTheWindow(t *testing.T) {
	assert.Equal(t, 15*time.Second, floorOf(12*time.Second, false))
	assert.Equal(t, 18*time.Second, floorOf(12*time.Second, true), "one more shows that it was done")
}

func TestAProofThatWasLostIsTheOneThatWasMadeAnew(t *testing.T) {
	p := &proofs{at: map[string]time.Time{}}
	see := func(name string, at *time.Time) {
		md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
		target := v1alpha1.RetirementTarget{State: v1alpha1.StateDraining}
		if at != nil {
			target.WithdrawnAt = new(metav1.NewMicroTime(*at))
		}
		md.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{target}}
		p.see(watch.Event{Type: watch.Modified, Object: md})
	}
	scaled := map[string]time.Time{"a": noon, "b": noon}
	see("a", new(noon.Add(20*time.Second)))
	see("a", nil)
	see("a", new(noon.Add(25*time.Second)))
	p.see(watch.Event{Type: watch.Error, Object: &metav1.Status{}})
	_, err := p.waits(scaled)
	require.EqualError(t, err, "no status of b was seen with a proof")
	see("b", new(noon.Add(20*time.Second)))
	p.see(watch.Event{Type: watch.Modified, Object: &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Name: "b"}}})
	waits, err := p.waits(scaled)
	require.NoError(t, err)
	assert.ElementsMatch(t, []time.Duration{25 * time.Second, 20 * time.Second}, waits)
}

func TestRoutersAreWhatUsersWouldWrite(t *testing.T) {
	cluster := stoppedCluster()
	for _, release := range releases {
		r := router.Router{Name: routerName, Release: release.Release, Policy: release.policy, Args: release.args, Selector: servingSelector}
		options, err := fake.Parse(r.Command("a"))
		require.NoError(t, err)
		assert.Equal(t, release.Family, options.Family)
		assert.Equal(t, []int{enginePort}, options.Ports)

		s := behind(lastcallScaler(cluster, sizeBehind), specOf(r, release.name, release.port))
		md, isOne := s.objects("a", "bench-0")[0].(*v1alpha1.ModelDeployment)
		require.True(t, isOne)
		errs, warnings := validate.ModelDeployment(md)
		require.Empty(t, errs, release.Family)
		assert.Empty(t, warnings, release.Family)
		assert.Equal(t, "bench-0-server-1", s.pod("bench-0"))
	}
}

func TestTheRouterSeesPodsAsTheyBecome(t *testing.T) {
	f := newFleet(router.Router{Replicas: 2}, nil, "127.90.7")
	assert.Equal(t, "127.90.7.2", f.processes[1].ip)
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	f.follow(fake.Event{Kind: fake.Listed, Pods: []*corev1.Pod{pod("a"), pod("b")}})
	f.follow(fake.Event{Kind: fake.Applied, Pod: pod("c")})
	f.follow(fake.Event{Kind: fake.Deleted, Pod: pod("a")})
	pods, err := f.script.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []*corev1.Pod{pod("b"), pod("c")}, pods)
}
