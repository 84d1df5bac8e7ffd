package envtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

func servers(replicas int32) []v1alpha1.Role { return []v1alpha1.Role{role("server", replicas, 1)} }

func reasonsOf(events []string) (all []string) {
	for _, e := range events {
		all = append(all, strings.TrimSuffix(strings.Fields(e)[1], ":"))
	}
	return all
}

func TestAScaleDownTakesTheHighestWhenTheyAreIdle(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(3), func(s *retirement) {
		s.engine("chat-server-1", busyEngine)
		s.scale(1)
		s.until(time.Minute, func() bool { return slices.Equal(s.present(), []string{"chat-server-0", "chat-server-1 withdrawn"}) })
		op := s.md().Status.Retirement
		assert.Equal(s, v1alpha1.StateDraining, op.State)
		assert.Equal(s, names.HeldServingRequests, op.Reason)
		assert.Equal(s, "chat-server-1: 3 in flight (2 replicas)", op.Message)
		s.pass(30 * time.Second)
		s.engine("chat-server-1", idleEngine)
		took := s.until(time.Minute, s.ended)
		assert.Less(s, took, 20*time.Second)
		assert.Equal(s, []string{"chat-server-0"}, s.present())
		assert.Equal(s, []string{"chat-server-2", "chat-server-1"}, s.deleted)
		assert.Equal(s, v1alpha1.EndCompleted, s.md().Status.LastRetirement.End)
		assert.Equal(s, []string{
			names.EventRetirementStarted, names.HeldServingRequests, names.EventRetirementDeleting, names.EventRetirementCompleted,
			names.EventRetirementDeleting, names.EventRetirementCompleted,
		}, reasonsOf(s.events), "%q", s.events)
	})
}

func TestWhatIsGivenUpServesAgainAndIsTriedOnceForEachToken(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		s.engine("chat-server-1", silentEngine)
		s.scale(1)
		s.until(budgetsOver, func() bool { return s.state() == v1alpha1.StateAborted })
		s.until(time.Minute, func() bool { return slices.Equal(s.present(), []string{"chat-server-0", "chat-server-1"}) })
		assert.Equal(s, names.HeldReadFailed, s.md().Status.Retirement.Reason)
		assert.Contains(s, s.events[len(s.events)-1], "Warning RetirementAborted: chat-server-1 stays and serves: ReadFailed: connection refused")

		// Parked: nothing is written, nothing is read, and it is the same to the next.
		for range 2 {
			s.pass(10 * time.Second)
			reads, writes := s.reads, len(s.retirer.writes)
			version := s.md().ResourceVersion
			s.pass(time.Hour)
			for range 10 {
				assert.Equal(s, reconciled{}, s.retirer.reconcile())
			}
			assert.Equal(s, reads, s.reads)
			assert.Len(s, s.retirer.writes, writes)
			assert.Equal(s, version, s.md().ResourceVersion)
			s.retirer.stop()
			s.retirer = s.start()
		}

		s.engine("chat-server-1", idleEngine)
		// Longer than the status can record: it must not ask for ever.
		token := strings.Repeat("now", 100)
		s.edit(func(md *v1alpha1.ModelDeployment) {
			md.Annotations = map[string]string{names.AnnotationRetryRetirement: token}
		})
		s.until(time.Minute, s.ended)
		assert.Equal(s, []string{"chat-server-0"}, s.present())
		s.until(time.Minute, func() bool { return len(s.md().Annotations) == 0 })
	})
}

func TestWhatIsWantedAgainServesAgain(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		s.engine("chat-server-1", busyEngine)
		s.scale(1)
		s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateDraining })
		s.scale(2)
		s.until(time.Minute, s.ended)
		assert.Equal(s, []string{"chat-server-0", "chat-server-1"}, s.present())
		assert.Empty(s, s.deleted)
		assert.Equal(s, v1alpha1.EndCancelled, s.md().Status.LastRetirement.End)
		assert.Equal(s, names.EventRetirementCancelled, reasonsOf(s.events)[len(s.events)-1])
	})
}

func TestADeletionWaitsForWorkAndEnds(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", []v1alpha1.Role{role("server", 2, 1), role("pair", 1, 2)}, func(s *retirement) {
		s.pass(time.Second)
		require.Contains(s, s.md().Finalizers, names.Finalizer)
		s.engine("chat-server-1", busyEngine)
		s.edit(func(md *v1alpha1.ModelDeployment) { md.Spec.Retirement.DrainSeconds = new(int32(60)) })
		s.delete()
		s.until(time.Minute, func() bool { return slices.Equal(s.present(), []string{"chat-server-1 withdrawn"}) })
		assert.Equal(s, v1alpha1.CauseDeletion, s.md().Status.Retirement.Cause)
		took := s.until(budgetsOver, s.gone)
		assert.Greater(s, took, 30*time.Second)
		assert.Empty(s, s.present())
		assert.Less(s, slices.Index(s.deleted, "chat-pair-0-0"), slices.Index(s.deleted, "chat-pair-0-1"), "%q", s.deleted)
		assert.Contains(s, reasonsOf(s.events), names.EventRetirementUnproven)
	})
}

// The retirer may do no more than the chart gives it. There is no kubelet to exec
// at, so what is asked is whether it may.
func TestTheRetirersOwnAccountIsEnough(t *testing.T) {
	t.Parallel()
	account := installAccess(t, "retirer/rbac.yaml")
	c := clientOf(t, account)
	may := func(ns, group, resource, subresource string, verbs ...string) {
		for _, verb := range verbs {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Group: group, Resource: resource, Subresource: subresource, Verb: verb},
			}}
			require.NoError(t, c.Create(t.Context(), review))
			assert.True(t, review.Status.Allowed, "%s %s/%s", verb, resource, subresource)
		}
	}
	token := tokenOf(t, account)
	onRetirement(t, token, []v1alpha1.Role{role("server", 2, 1), role("pair", 1, 2)}, func(s *retirement) {
		s.scale(1)
		s.until(time.Minute, s.ended)
		require.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1", "chat-server-0"}, s.present())
		s.engine("chat-server-0", silentEngine)
		s.edit(func(md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Replicas, md.Spec.Retirement.TotalSeconds = new(int32(0)), new(int32(60))
		})
		s.until(2*time.Minute, func() bool { return s.state() == v1alpha1.StateAborted })
		s.engine("chat-server-0", idleEngine)
		s.edit(func(md *v1alpha1.ModelDeployment) {
			md.Annotations = map[string]string{names.AnnotationRetryRetirement: "t"}
		})
		s.until(time.Minute, s.ended)
		require.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1"}, s.present())
		s.delete()
		s.until(time.Minute, s.gone)
		assert.ElementsMatch(s, slices.Collect(maps.Keys(s.uids)), s.deleted)
	})
	for _, ns := range []string{"default", account.Namespace} {
		may(ns, "", "pods", "exec", "get", "create")
		may(ns, "events.k8s.io", "events", "", "create", "patch")
	}
}

// remains is what can be seen in the end.
func (s *retirement) remains() string {
	md := s.md()
	if md == nil {
		return fmt.Sprint("gone; ", s.present())
	}
	last := md.Status.LastRetirement
	require.NotNil(s, last)
	return fmt.Sprint(md.Finalizers, md.Status.Retirement == nil, last.Cause, last.End, last.Reason, s.present())
}

// The retirer is ended after each of its writes in turn. What it leaves behind is
// enough to go on from.
func TestARetirerThatEndsAfterAnyWriteChangesNothing(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		roles  []v1alpha1.Role
		happen func(s *retirement)
		// from is the first write that another case does not have too.
		from int
	}{
		"a scale-down": {servers(2), func(s *retirement) {
			s.scale(1)
			s.until(2*time.Minute, s.ended)
		}, 1},
		"a cancelled scale-down": {servers(2), func(s *retirement) {
			s.engine("chat-server-1", busyEngine)
			s.scale(1)
			s.until(2*time.Minute, func() bool { return s.state() == v1alpha1.StateDraining })
			s.scale(2)
			s.until(2*time.Minute, s.ended)
		}, 7},
		"a deletion": {[]v1alpha1.Role{role("pair", 1, 2)}, func(s *retirement) {
			s.pass(3 * time.Second) // the finalizer
			s.delete()
			s.until(2*time.Minute, s.gone)
		}, 2},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			// play returns how it ended, and how many writes there were up to the crash.
			play := func(t *testing.T, number int) (outcome string, writes int) {
				onRetirement(t, "", tc.roles, func(s *retirement) {
					first := s.retirer
					first.fault = func(n int) error {
						if n == number {
							return errCrash
						}
						return nil
					}
					tc.happen(s)
					outcome, writes = s.remains(), len(first.writes)
					deleted := slices.Sorted(slices.Values(s.deleted))
					outcome += fmt.Sprint(" deleted ", deleted)
					for _, reason := range []string{names.EventRetirementAborted, names.EventRetirementUnproven} {
						assert.NotContains(s, reasonsOf(s.events), reason)
					}
				})
				return outcome, writes
			}
			want, total := play(t, 0)
			t.Logf("%d writes: %s", total, want)
			require.Greater(t, total, 6)
			for number := tc.from; number <= total; number++ {
				t.Run(fmt.Sprintf("after write %d", number), func(t *testing.T) {
					t.Parallel()
					got, writes := play(t, number)
					assert.Equal(t, want, got)
					assert.Equal(t, number, writes)
				})
			}
		})
	}
}

// An object that was deleted and made anew under the same name is another one.
func TestAnOldDecisionDoesNotLandOnANewObjectOfTheName(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		s.pass(3 * time.Second)
		s.scale(1)
		again := 0
		// Ahead of the write of the decision, all of it is gone and made anew.
		s.retirer.before = func(what string) error {
			if what != "apply status" || again > 0 {
				return nil
			}
			again++
			ctx := context.Background()
			s.clear()
			md := modelDeployment(s.Namespace, "chat")
			md.Spec.Roles, md.Spec.Withdrawal.Direct = servers(2), v1alpha1.DirectConnections
			require.NoError(s, s.api.Create(ctx, md))
			s.ModelDeployment = md
			for ordinal := range int32(2) {
				s.bringUp(render.Replica(md, &md.Spec.Roles[0], ordinal)[0])
			}
			return nil
		}
		s.turn(time.Second)
		require.Equal(s, 1, again)
		require.Len(s, s.retirer.writes, 2, "%q", s.retirer.writes)
		assert.Contains(s, s.retirer.writes[1], "the object has been modified")
		s.pass(time.Minute)
		assert.Nil(s, s.md().Status.Retirement)
		assert.Nil(s, s.md().Status.LastRetirement)
		assert.Equal(s, []string{"chat-server-0", "chat-server-1"}, s.present())
		for name, uid := range s.uids {
			pod := s.pods()[slices.IndexFunc(s.pods(), func(p corev1.Pod) bool { return p.Name == name })]
			assert.Equal(s, uid, pod.UID)
		}
	})
}
