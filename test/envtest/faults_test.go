package envtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// life is all that the operator does for a ModelDeployment, in parts that each come
// to rest.
var life = []func(*stage){
	func(s *stage) { s.create() },
	func(s *stage) { s.roll("vllm/vllm-openai:v0.30.0") },
	func(s *stage) {
		// A member that restarts makes the whole replica be replaced, once: see
		// https://github.com/kubernetes-sigs/lws/issues/291 and
		// https://github.com/kubernetes-sigs/lws/issues/998
		s.setStatus(s.pod("chat-pair-0-1"), func(status *corev1.PodStatus) { status.ContainerStatuses[0].RestartCount++ })
	},
	func(s *stage) {
		s.change(s.T, func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles = spec.Roles[:2] })
	},
	func(s *stage) { s.take(s.pod("chat-spare-0")) },
}

func newLife(t *testing.T) *stage {
	return newStage(t, role("server", 2, 1), role("pair", 1, 2), role("spare", 1, 1))
}

// ending is how things are at the end of a part of life.
type ending struct {
	outcome []string
	// made is how many Pods of each name there were.
	made map[string]int
	// writes were done until then.
	writes int
}

// live plays the parts, and returns what each ended in, up to the last.
func (s *stage) live(isLast func() bool) (endings []ending) {
	for _, happen := range life {
		happen(s)
		s.settle()
		e := ending{outcome: s.outcome(), made: map[string]int{}, writes: len(s.operator.writes)}
		for name, uids := range s.history.uids(s.T, s.Namespace) {
			e.made[name] = len(uids)
		}
		if endings = append(endings, e); isLast() {
			break
		}
	}
	return endings
}

// The operator is ended after each of its writes in turn, and it loses the answers
// to its writes. What it leaves behind must be enough to go on from; see
// https://github.com/k8ssandra/cass-operator/issues/118
func TestACrashBetweenAnyTwoWritesChangesNothing(t *testing.T) {
	t.Parallel()
	undisturbed := newLife(t)
	want := undisturbed.live(func() bool { return false })
	undisturbed.mustBe(v1alpha1.PhaseReady)
	total := want[len(want)-1].writes
	require.Greater(t, total, 40)
	t.Logf("%d writes, %d reads from the API server", total, undisturbed.operator.liveReads)
	require.Equal(t, map[string]int{
		"chat-server-0": 2, "chat-server-1": 2, "chat-pair-0-0": 3, "chat-pair-0-1": 3, "chat-spare-0": 2,
	}, want[len(want)-1].made, "no replica is made more often than there is a reason")

	for number := 1; number <= total; number++ {
		t.Run(fmt.Sprintf("the process ends after write %d", number), func(t *testing.T) {
			t.Parallel()
			s := newLife(t)
			reached := false
			s.operator.fault = func(n int) error {
				if n == number {
					reached = true
					return errCrash
				}
				return nil
			}
			// Where a part ends as it should, so do those that follow.
			got := s.live(func() bool { return reached })
			require.True(t, reached)
			last := len(got) - 1
			assert.Equal(t, want[last].outcome, got[last].outcome)
			assert.Equal(t, want[last].made, got[last].made)
		})
	}
	for offset := range 3 {
		t.Run(fmt.Sprintf("the answer to every third write is lost, from %d", offset+1), func(t *testing.T) {
			t.Parallel()
			s := newLife(t)
			s.operator.fault = func(n int) error {
				if n%3 == offset {
					return errors.New("connection reset by peer")
				}
				return nil
			}
			got := s.live(func() bool { return false })
			for i := range want {
				assert.Equal(t, want[i].outcome, got[i].outcome)
				assert.Equal(t, want[i].made, got[i].made)
			}
		})
	}
}

// A cache that lags shows a Pod that is no more. Its delete must not land on the
// new Pod of that name; see https://github.com/volcano-sh/volcano/issues/5986 and
// https://github.com/actions/actions-runner-controller/pull/4673
func TestAnOldViewDoesNoHarm(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{true, false} {
		cases := map[string]func(*stage){
			"of a replica that was rolled since": func(s *stage) {
				s.roll("vllm/vllm-openai:v0.30.0")
			},
			"of a Pod that ended and was made again since": func(s *stage) {
				s.setStatus(s.pod("chat-server-1"), func(status *corev1.PodStatus) { status.Phase = corev1.PodFailed })
			},
			"of a slot that was filled since": func(s *stage) {
				s.take(s.pod("chat-server-2"), client.GracePeriodSeconds(0))
			},
			"of a Pod that was leaving": func(s *stage) {
				s.take(s.pod("chat-server-0"))
			},
		}
		for what, happen := range cases {
			t.Run(fmt.Sprintf("%s, confirmed %t", what, live), func(t *testing.T) {
				t.Parallel()
				s := newRunningStage(t, role("server", 3, 1))
				happen(s)
				old := s.view()
				s.settle()
				before := s.uidsNow()

				late := s.start()
				late.cached = old
				if !live {
					// As if it had been held up between its look at the API server and its writes.
					late.live = old
				}
				for range 5 {
					late.reconcile()
				}
				assert.Equal(t, before, s.uidsNow(), "%q", late.writes)
				s.settle()
				s.mustBe(v1alpha1.PhaseReady)
			})
		}
	}

	// What the UID does not keep from harm, the second look does.
	for what, happen := range map[string]func(*stage){
		"while one is being rolled": func(s *stage) {
			s.operator.reconcile()
			require.NotNil(s, s.pod("chat-server-2").DeletionTimestamp)
		},
		"while another one is not Ready": func(s *stage) {
			s.setStatus(s.pod("chat-server-0"), func(status *corev1.PodStatus) { status.Conditions[0].Status = corev1.ConditionFalse })
		},
		"after the edit was undone": func(s *stage) { s.roll("vllm/vllm-openai:v0.29.0") },
	} {
		t.Run("of a rollout that was about to start, "+what, func(t *testing.T) {
			t.Parallel()
			s := newRunningStage(t, role("server", 3, 1))
			s.roll("vllm/vllm-openai:v0.30.0")
			old := s.view()
			happen(s)
			late := s.start()
			late.cached = old
			for range 5 {
				late.reconcile()
			}
			leaving := 0
			for _, pod := range s.built() {
				if pod.DeletionTimestamp != nil {
					leaving++
				}
			}
			assert.LessOrEqual(t, leaving, 1)
			s.settle()
			s.mustBe(v1alpha1.PhaseReady)
		})
	}
}

// uidsNow are those of the Pods that are there, by name.
func (s *stage) uidsNow() map[string]types.UID {
	uids := map[string]types.UID{}
	for name, pod := range s.built() {
		uids[name] = pod.UID
	}
	return uids
}

// Leader election cannot keep an operator that was paused from going on. The
// audit of the stage holds for both together.
func TestTwoOperatorsAtOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := newRunningStage(t, role("server", 3, 1), role("pair", 2, 2))
			before := s.uidsNow()
			s.roll("vllm/vllm-openai:v0.30.0")
			var working sync.WaitGroup
			writes := make([][]string, 2)
			for i := range writes {
				p, random := s.start(), rand.New(rand.NewPCG(seed, uint64(i)))
				working.Go(func() {
					// 300 reconciles are several times what the roll takes.
					for quiet := 0; quiet < 40 && len(p.writes) < 300; quiet++ {
						done := p.reconcile()
						if done.err != nil {
							t.Error(done.err)
							return
						}
						if done.wrote || random.IntN(3) == 0 && s.kubelet() {
							quiet = 0
						}
						// No leader gets overdue, for which the others would go before it.
						s.clock.Step(50 * time.Millisecond)
					}
					writes[i] = p.writes
				})
			}
			working.Wait()
			for i := range writes {
				assert.True(t, slices.ContainsFunc(writes[i], func(w string) bool { return w != "" }), "operator %d did nothing", i)
			}
			s.settle()
			s.mustBe(v1alpha1.PhaseReady)
			after := s.uidsNow()
			for name, uid := range before {
				assert.NotEqual(t, uid, after[name], "%s is rolled", name)
			}
			for name, uids := range s.history.uids(t, s.Namespace) {
				assert.Len(t, uids, 2, "%s is rolled once", name)
			}
		})
	}
}
