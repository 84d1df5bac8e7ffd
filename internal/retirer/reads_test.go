package retirer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// deployments are all that a cache has.
type deployments []v1alpha1.ModelDeployment

func (d deployments) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("unused")
}

func (d deployments) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.ModelDeploymentList).Items = d
	return nil
}

var chat = types.NamespacedName{Namespace: "serving", Name: "chat"}

// engines answer reads when they are told to, or at once.
type engines struct {
	// answer ends a read of a member; those without a channel end at once.
	answer map[types.UID]chan probe.Result

	mu      sync.Mutex
	started map[types.UID][]time.Time
	present int
	most    int
	twice   bool
	busy    map[types.UID]bool
}

func (e *engines) Read(ctx context.Context, t probe.Target) probe.Result {
	sentAt := clock.RealClock{}.Now()
	e.mu.Lock()
	e.started[t.UID] = append(e.started[t.UID], sentAt)
	e.present++
	e.most = max(e.most, e.present)
	e.twice = e.twice || e.busy[t.UID]
	e.busy[t.UID] = true
	answer := e.answer[t.UID]
	e.mu.Unlock()
	result := probe.Result{Verdict: engine.Idle, ConnectionsKnown: true}
	if answer != nil {
		select {
		case result = <-answer:
		case <-ctx.Done():
			result = probe.Result{Message: "called off"}
		}
	}
	e.mu.Lock()
	e.present--
	e.busy[t.UID] = false
	e.mu.Unlock()
	result.SentAt, result.ReceivedAt = sentAt, clock.RealClock{}.Now()
	return result
}

// bench is reads under test in a bubble, with how often each ModelDeployment was
// woken.
type bench struct {
	*reads
	engines *engines
	mu      sync.Mutex
	woken   map[types.NamespacedName]int
	stop    func()
}

func inBubble(t *testing.T, slots int, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			engines: &engines{answer: map[types.UID]chan probe.Result{}, started: map[types.UID][]time.Time{}, busy: map[types.UID]bool{}},
			woken:   map[types.NamespacedName]int{},
		}
		b.reads = New(nil, nil, nil, clock.RealClock{}, Options{Prober: b.engines, Registry: prometheus.NewRegistry()}, func(key types.NamespacedName) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.woken[key]++
		}).reads
		b.slots = make(chan struct{}, slots)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- b.Start(ctx) }()
		b.stop = sync.OnceFunc(func() {
			cancel()
			require.NoError(t, <-ended)
		})
		synctest.Wait()
		test(t, b)
		b.stop() // and what is left in the bubble then fails the test
	})
}

func (b *bench) read(uid types.UID) {
	b.ask(request{of: chat, target: probe.Target{UID: uid, ContainerID: "c"}})
	synctest.Wait()
}

func (b *bench) heard(uid types.UID) []retire.Read {
	all, _, _ := b.of(chat)
	return all[uid]
}

func TestOneMemberIsReadOnceAtATimeAndNotSoonerThanItsInterval(t *testing.T) {
	inBubble(t, atOnce, func(t *testing.T, b *bench) {
		b.engines.answer["a"] = make(chan probe.Result)
		start := clock.RealClock{}.Now()
		for range 5 {
			b.read("a")
		}
		require.Len(t, b.engines.started["a"], 1)
		clock.RealClock{}.Sleep(500 * time.Millisecond)
		b.engines.answer["a"] <- probe.Result{Verdict: engine.Busy, InFlight: 2}
		synctest.Wait()
		assert.Equal(t, 1, b.woken[chat])
		for range 5 {
			b.read("a")
		}
		require.Len(t, b.engines.started["a"], 1, "from start to start")
		clock.RealClock{}.Sleep(retire.ReadInterval - 500*time.Millisecond)
		synctest.Wait()
		require.Len(t, b.engines.started["a"], 2)
		assert.Equal(t, retire.ReadInterval, b.engines.started["a"][1].Sub(start))
		clock.RealClock{}.Sleep(3 * time.Second) // a slow one
		b.engines.answer["a"] <- probe.Result{Verdict: engine.Idle}
		synctest.Wait()
		b.read("a")
		assert.Len(t, b.engines.started["a"], 3, "long enough ago")
		assert.False(t, b.engines.twice)
		got := b.heard("a")
		require.Len(t, got, 2)
		assert.Equal(t, retire.Read{SentAt: start, ReceivedAt: start.Add(500 * time.Millisecond), ContainerID: "c", Verdict: retire.ReadBusy, InFlight: 2}, got[0])
		assert.Equal(t, retire.ReadIdle, got[1].Verdict)
	})
}

func TestASlowMemberDelaysNobody(t *testing.T) {
	inBubble(t, atOnce, func(t *testing.T, b *bench) {
		b.engines.answer["slow"] = make(chan probe.Result)
		b.read("slow")
		for range 10 {
			b.read("a")
			clock.RealClock{}.Sleep(retire.ReadInterval)
		}
		assert.Len(t, b.heard("a"), 10)
		assert.Empty(t, b.heard("slow"))
		assert.Equal(t, 10, b.woken[chat])
	})
}

func TestNoMoreReadsAreUnderWayThanThereAreSlots(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, b *bench) {
		answer := make(chan probe.Result)
		for i := range 10 {
			uid := types.UID(fmt.Sprint(i))
			b.engines.answer[uid] = answer
			b.read(uid)
		}
		assert.Equal(t, 3, b.engines.present)
		for range 10 {
			answer <- probe.Result{}
			synctest.Wait()
		}
		assert.Equal(t, 3, b.engines.most)
		assert.Len(t, b.engines.started, 10, "everybody comes to it")
		assert.Equal(t, 10, b.woken[chat])
	})
}

func TestTheEndCallsEverythingOff(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bench) {
		b.read("done")
		b.read("done") // waits for its interval
		b.engines.answer["under way"] = make(chan probe.Result)
		b.read("under way")
		b.read("waits for the slot")
		at := clock.RealClock{}.Now()
		b.stop()
		assert.Zero(t, time.Since(at))
		assert.Zero(t, b.engines.present)
		b.read("late")
		clock.RealClock{}.Sleep(time.Minute)
		assert.NotContains(t, b.engines.started, types.UID("late"))
		assert.NotContains(t, b.engines.started, types.UID("waits for the slot"))
		assert.Len(t, b.engines.started["done"], 1)
	})
}

func TestNothingIsReadBeforeThisProcessLeads(t *testing.T) {
	e := &engines{}
	r := New(nil, nil, nil, clock.RealClock{}, Options{Prober: e, Registry: prometheus.NewRegistry()}, nil)
	r.reads.ask(request{of: chat, target: probe.Target{UID: "a"}})
	r.reads.running.Wait()
	assert.Empty(t, e.started)
	assert.True(t, r.NeedLeaderElection())
}

// A target is given up by how long this process has looked.
func TestSinceIsWhenThisProcessBeganToLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(nil, nil, nil, clock.RealClock{}, Options{Prober: &engines{}, Registry: prometheus.NewRegistry()}, nil)
		clock.RealClock{}.Sleep(time.Minute)
		assert.Equal(t, clock.RealClock{}.Now(), r.reads.since(), "it has not begun")
		ctx, stop := context.WithCancel(t.Context())
		go func() { _ = r.Start(ctx) }()
		synctest.Wait()
		began := clock.RealClock{}.Now()
		clock.RealClock{}.Sleep(time.Minute)
		assert.Equal(t, began, r.reads.since())
		stop()
		synctest.Wait()
		assert.Equal(t, clock.RealClock{}.Now(), r.reads.since(), "it leads no more")
	})
}

func TestAForgottenMembersReadDoesNoHarm(t *testing.T) {
	t.Run("under way", func(t *testing.T) {
		inBubble(t, atOnce, func(t *testing.T, b *bench) {
			b.engines.answer["a"] = make(chan probe.Result)
			b.read("a")
			b.forget(chat)
			b.engines.answer["a"] <- probe.Result{Verdict: engine.Idle}
			synctest.Wait()
			assert.Empty(t, b.members, "nor is anything left of it")
		})
	})
	t.Run("waiting", func(t *testing.T) {
		inBubble(t, atOnce, func(t *testing.T, b *bench) {
			b.read("a")
			b.read("a")
			b.forget(chat)
			assert.Empty(t, b.heard("a"))
			clock.RealClock{}.Sleep(time.Minute)
			assert.Len(t, b.engines.started["a"], 1, "it is not made at all")
			assert.Empty(t, b.members)
		})
	})
	t.Run("and asked for again", func(t *testing.T) {
		inBubble(t, atOnce, func(t *testing.T, b *bench) {
			b.engines.answer["a"] = make(chan probe.Result)
			b.read("a")
			b.forget(chat)
			b.read("a")
			require.Len(t, b.engines.started["a"], 1)
			b.engines.answer["a"] <- probe.Result{Verdict: engine.Idle}
			synctest.Wait()
			assert.Len(t, b.heard("a"), 1)
			assert.False(t, b.engines.twice)
		})
	})
}

func TestMembersThatAreNoTargetsAreForgotten(t *testing.T) {
	inBubble(t, atOnce, func(t *testing.T, b *bench) {
		b.read("a")
		b.read("b")
		assert.True(t, b.refuse(chat, "b", retire.Refusal{Message: "no"}))
		assert.False(t, b.refuse(chat, "b", retire.Refusal{Message: "no"}), "no news")
		assert.True(t, b.refuse(chat, "b", retire.Refusal{Message: "never"}))
		other := types.NamespacedName{Namespace: "serving", Name: "other"}
		b.ask(request{of: other, target: probe.Target{UID: "c"}})
		synctest.Wait()
		_, _, refused := b.of(chat)
		assert.Equal(t, map[types.UID]retire.Refusal{"b": {Message: "never"}}, refused)

		b.keep(chat, map[types.UID]bool{"a": true})
		all, _, refused := b.of(chat)
		assert.Len(t, all["a"], 1)
		assert.NotContains(t, all, types.UID("b"))
		assert.Empty(t, refused)
		all, _, _ = b.of(other)
		assert.Len(t, all["c"], 1)
		b.forget(other)
		b.forget(chat)
		assert.Empty(t, b.members)
	})
}

func TestWhatIsRememberedIsBoundedAndStaysAsItWasGiven(t *testing.T) {
	inBubble(t, atOnce, func(t *testing.T, b *bench) {
		var held []retire.Read
		for i := range kept + 10 {
			b.read("a")
			clock.RealClock{}.Sleep(retire.ReadInterval)
			if i == kept {
				held = b.heard("a")
			}
		}
		before := slices.Clone(held)
		b.read("a")
		assert.Equal(t, before, held)
		all := b.heard("a")
		require.Len(t, all, kept)
		assert.True(t, slices.IsSortedFunc(all, func(x, y retire.Read) int { return x.SentAt.Compare(y.SentAt) }))
	})
}

func TestAMemberIsDroppedWhenNoServiceHasItAnyMore(t *testing.T) {
	inBubble(t, atOnce, func(t *testing.T, b *bench) {
		l := &listed{}
		b.clients = newClients(l)
		look := func() (in []string, dropped time.Time) {
			b.ask(request{of: chat, target: probe.Target{UID: "a"}, clients: &clientsOf{namespace: "serving", uid: "a"}})
			clock.RealClock{}.Sleep(retire.ReadInterval)
			synctest.Wait()
			_, direct, _ := b.of(chat)
			return direct["a"].In, direct["a"].DroppedAt
		}
		l.fail = fmt.Errorf("away")
		_, dropped := look()
		assert.Zero(t, dropped, "not to know is not to be dropped")
		l.fail, l.slices = nil, append(l.slices, slice("chat", ofPod("a")))
		in, dropped := look()
		assert.Equal(t, []string{"chat"}, in)
		assert.Zero(t, dropped)

		l.slices = nil
		at := clock.RealClock{}.Now()
		in, dropped = look()
		assert.Empty(t, in)
		assert.Equal(t, at, dropped)
		_, again := look()
		assert.Equal(t, at, again, "since the first look without it")
		assert.Len(t, b.engines.started["a"], 1, "none but that of which nothing was known: an exec would count for nothing")
		look()
		assert.Len(t, b.engines.started["a"], 2, "5 s after it left")

		l.fail = fmt.Errorf("away")
		_, unknown := look()
		assert.Equal(t, at, unknown, "not to know is not to be back")
		_, direct, _ := b.of(chat)
		assert.False(t, direct["a"].Samples[0].Known)
		assert.True(t, direct["a"].Samples[1].Known)
		assert.False(t, direct["a"].Samples[len(direct["a"].Samples)-1].Known)

		l.fail, l.slices = nil, append(l.slices, slice("chat", ofPod("a")))
		_, dropped = look()
		assert.Zero(t, dropped)
	})
}

// A process that comes later need not wait anew for what another one has seen.
func TestAMemberThatLeftLongAgoIsReadAtOnce(t *testing.T) {
	inBubble(t, atOnce, func(t *testing.T, b *bench) {
		b.clients = newClients(&listed{})
		b.ask(request{
			of: chat, target: probe.Target{UID: "a"}, clients: &clientsOf{namespace: "serving", uid: "a"},
			droppedAt: clock.RealClock{}.Now().Add(-5 * time.Second),
		})
		synctest.Wait()
		assert.Len(t, b.engines.started["a"], 1)
	})
}

// What is read while rounds come late would be too old for them.
func TestNoReadBeginsBeforeARoundHasHeardTheOneBefore(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *bench) {
		b.read("a")
		b.read("b")
		require.Len(t, b.engines.started["a"], 1)
		require.Empty(t, b.engines.started["b"])
		require.Len(t, b.heard("a"), 1)
		synctest.Wait()
		require.Len(t, b.engines.started["b"], 1)

		b.read("c")
		clock.RealClock{}.Sleep(retire.ProofAge)
		synctest.Wait()
		assert.Len(t, b.engines.started["c"], 1, "what nobody hears in time proves nothing")
		b.forget(chat)
		b.read("d")
		assert.Len(t, b.engines.started["d"], 1, "and what nobody wants to hear is not waited for")
	})
}
