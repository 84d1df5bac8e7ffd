package retire

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// TestSimulation plays the protocol in worlds that do not help it: clients send
// requests to whatever they can reach, gauges and caches lag, processes end between
// any two writes, reads fail and come late, actions are lost and done twice, marks
// are taken away by strangers, engines restart, Pods are replaced, deletes are
// refused, and people change their minds. invariants_test.go says what must hold.
//
// SIMULATION_SEEDS is how many worlds there are. SIMULATION_SEED plays one and
// tells what happened in it.
func TestSimulation(t *testing.T) {
	if one := os.Getenv("SIMULATION_SEED"); one != "" {
		seed, err := strconv.ParseUint(one, 10, 64)
		require.NoError(t, err, "SIMULATION_SEED is a number")
		require.Empty(t, simulate(seed, os.Getenv("SIMULATION_BUG"), t.Logf, nil))
		return
	}
	worlds := uint64(5000)
	if text := os.Getenv("SIMULATION_SEEDS"); text != "" {
		var err error
		worlds, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "SIMULATION_SEEDS is a number")
	}
	reached, found, seed := playAll(worlds)
	if found != "" {
		simulate(seed, "", t.Logf, nil)
		require.Fail(t, found, "again: SIMULATION_SEED=%d go test -run Simulation -v ./internal/retire", seed)
	}
	for _, what := range slices.Sorted(maps.Keys(reached)) {
		t.Logf("%8d %s", reached[what], what)
	}
	if worlds < 1000 {
		return
	}
	for _, what := range mustBeReached() {
		require.Positive(t, reached[what], "%q never happened, so nothing is known of it", what)
	}
}

// playAll plays so many worlds side by side. It returns what happened in how many, and
// the first of them in which something did not hold.
func playAll(worlds uint64) (reached map[string]int, found string, seed uint64) {
	reached = map[string]int{}
	var next atomic.Uint64
	var mu sync.Mutex
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			mine := map[string]int{}
			for n := next.Add(1) - 1; n < worlds; n = next.Add(1) - 1 {
				what := simulate(n, "", nil, mine)
				if what == "" {
					continue
				}
				next.Store(worlds) // the others end after theirs
				mu.Lock()
				if found == "" || n < seed {
					found, seed = what, n
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			for what, n := range mine {
				reached[what] += n
			}
		})
	}
	players.Wait()
	return reached, found, seed
}

// mustBeReached is what has to happen in some world.
func mustBeReached() []string {
	all := []string{
		"conflict", "refused: away", "refused: conflict", "refused: Workload",
		"released", "released orphans", "released in a foreground deletion", "released with its namespace", "released overdue",
		"aborted then replaced", "retried", "taken over", "Workload deleted", "Workload deleted of what others deleted", "told", "told otherwise",
	}
	for _, fault := range []string{
		"crash", "replaced", "stranger", "stranger deletes", "unrelated write", "flap", "restart", "engine crash", "ended", "node",
		"API server away", "gauges", "plan", "rollout", "orphan", "foreground", "namespace",
		"Workload deleted", "Workload replaced",
		"router restarts", "router silent", "router added", "router ends",
	} {
		all = append(all, "fault "+fault)
	}
	for _, cause := range []v1alpha1.RetirementCause{v1alpha1.CauseScaleDown, v1alpha1.CauseSurplus, v1alpha1.CauseRoleDropped, v1alpha1.CauseDeletion} {
		all = append(all, "cause "+string(cause))
	}
	for _, end := range []v1alpha1.RetirementEnd{v1alpha1.EndCompleted, v1alpha1.EndAborted, v1alpha1.EndCancelled} {
		all = append(all, "end "+string(end))
	}
	for _, state := range order {
		all = append(all, "state "+string(state))
	}
	for _, reason := range []string{
		names.HeldRouterNotAsked, names.HeldRouterUnread, names.HeldRouterSelects, names.HeldRouterHolds, names.HeldRouterNotFound,
		names.HeldRecentDispatches, names.HeldEndpointsRemain, names.HeldConnectionsOpen, names.HeldConnectionsUnread, names.HeldServingRequests,
		names.HeldProvingIdle, names.HeldNotReadYet, names.HeldReadFailed, names.HeldExecForbidden, names.HeldReadTimedOut,
		names.HeldReadIncomplete, names.HeldContainerRestarted, names.HeldCommandTakenOver, names.HeldAnsweringMemberUnknown,
		names.HeldNodeUnreachable, names.HeldPrefillDecode, names.HeldNoGaugeList, names.ReadGaugesMissing,
		names.RetireIdle, names.RetireNeverStarted, names.RetireNotRunning, names.RetireOrphaned, names.RetireNamespaceTerminating,
		names.RetireMemberReplaced, names.RetireWithdrawalUnobservable, names.RetireNotMarked, names.RetireMarkLost,
		names.RetireNotProvenAgain, names.RetireSettlingOverran, names.RetireCancelled,
	} {
		all = append(all, "reason "+reason)
	}
	return all
}

// simulate plays one world, and returns what did not hold in it.
func simulate(seed uint64, bug string, log func(string, ...any), reached map[string]int) (found string) {
	w := newWorld(seed)
	if reached != nil {
		w.reached = reached
	}
	if log != nil {
		w.log = func(format string, args ...any) {
			log("%4d:%02d  %s", w.tick/60, w.tick%60, fmt.Sprintf(format, args...))
		}
	}
	defer func() {
		if v, ok := recover().(violation); ok {
			found = string(v)
			w.log("%s", found)
		}
	}()
	h := newHost(w, bug)
	for range 150 + w.random.IntN(300) {
		w.fault(h)
		w.pass()
		h.pass()
		if w.released {
			return ""
		}
	}
	w.calm()
	h.calmDown()
	return ""
}

// calmDown plays on without faults until nothing is to be done any more.
func (h *host) calmDown() {
	calm := h.tick
	marked := map[*pod]int{}
	for h.tick < calm+1800 {
		h.patience(calm)
		h.world.pass()
		h.pass()
		if h.released {
			return
		}
		h.checkCalm(calm, marked)
		busy := h.due || h.changed || !h.wake.IsZero() || h.round != nil || len(h.acting) > 0 || len(h.reading) > 0 || len(h.asked) > 0
		if !busy && h.tick > calm+60 && !h.spec.Deleting {
			break
		}
	}
	h.checkEnd()
}

// violation is what did not hold.
type violation string

func (h *host) must(ok bool, format string, args ...any) {
	if !ok {
		panic(violation(fmt.Sprintf(format, args...)))
	}
}

// BenchmarkSimulation plays worlds, and tells how many rounds they had a second.
func BenchmarkSimulation(b *testing.B) {
	rounds := 0
	for b.Loop() {
		w := newWorld(uint64(rounds))
		h := newHost(w, "")
		for range 300 {
			w.fault(h)
			w.pass()
			h.pass()
		}
		rounds += h.rounds
	}
	b.ReportMetric(float64(rounds)/b.Elapsed().Seconds(), "steps/s")
}

// BenchmarkStep is a round of an operation with 64 replicas that are busy.
func BenchmarkStep(b *testing.B) {
	w := newWorld(1)
	w.spec.Plan, w.faulty = PlanConnections, false
	w.pods = nil
	for ordinal := range int32(64) {
		w.create(key{"a", ordinal})
	}
	w.spec.Wanted = map[string]int32{"a": 0}
	for _, p := range w.pods {
		p.TakenOver, p.Split, p.Index, p.Refresh = false, false, 0, 6*time.Second
		p.Withdrawn = true
		if p.run == 0 {
			w.startEngine(p, 0)
		}
	}
	seen := Observations{Replicas: w.replicas(), Reads: map[types.UID][]Read{}}
	now := w.now()
	status, _ := Step(now, w.spec, Status{}, seen)
	for i := range status.Retirement.Targets {
		t := &status.Retirement.Targets[i]
		t.State, t.Reason = v1alpha1.StateDraining, names.HeldServingRequests
		for n := range 20 {
			r := Read{SentAt: now.Add(time.Duration(n) * ReadInterval), ContainerID: t.Members[0].ContainerID, Verdict: ReadBusy, InFlight: 1}
			seen.Reads[t.Members[0].UID] = append(seen.Reads[t.Members[0].UID], r)
		}
	}
	now = now.Add(40 * time.Second)
	b.ReportAllocs()
	for b.Loop() {
		status, _ = Step(now, w.spec, status, seen)
	}
	require.Equal(b, v1alpha1.StateDraining, status.Retirement.State)
}
