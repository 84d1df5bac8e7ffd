package envtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/test/refusal"
)

// A cache can be behind what this retirer or the one before it wrote, and behind
// what people want.
func TestTheRetirerActsOnNoOldView(t *testing.T) {
	t.Parallel()
	draining := func(s *retirement) bool { return s.state() == v1alpha1.StateDraining }
	for what, happen := range map[string]func(s *retirement) *retirerView{
		"of a scale-down that was undone": func(s *retirement) *retirerView {
			s.scale(1)
			old := s.view()
			s.scale(2)
			return old
		},
		"of an operation that has ended": func(s *retirement) *retirerView {
			s.engine("chat-server-1", busyEngine)
			s.scale(1)
			s.until(time.Minute, func() bool { return draining(s) })
			old := s.view()
			s.scale(2)
			s.until(time.Minute, s.ended)
			return old
		},
		"of the decision to delete, which was carried out on a Pod that was made again": func(s *retirement) *retirerView {
			s.scale(1)
			s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateDeleting })
			old := s.view()
			s.until(time.Minute, s.ended)
			s.scale(2)
			s.bringUp(render.Replica(s.ModelDeployment, &s.Spec.Roles[0], 1)[0])
			return old
		},
		"of an object that is younger than its deletion and its finalizer": func(s *retirement) *retirerView {
			old := s.view()
			old.deployment.Finalizers = nil
			s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{"example.com/other"} })
			s.delete()
			return old
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			onRetirement(t, "", servers(2), func(s *retirement) {
				s.pass(3 * time.Second)
				old := happen(s)
				want := s.present()
				before := s.md()
				s.retirer.stop()
				s.retirer = s.start()
				s.retirer.cached = old
				for range 20 {
					s.turn(time.Second)
				}
				assert.Empty(s, s.retirer.writes)
				assert.Equal(s, want, s.present())
				assert.Equal(s, before.ResourceVersion, s.md().ResourceVersion)
			})
		})
	}
}

func TestNothingIsDoneAboutADecisionThatCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		s.pass(3 * time.Second)
		// Somebody changes the object ahead of every first try to write.
		tries, number := 0, 0
		s.retirer.before = func(what string) error {
			if what != "apply status" {
				return nil
			}
			if tries++; tries%2 == 1 {
				number++
				s.edit(func(md *v1alpha1.ModelDeployment) { md.Labels = map[string]string{"edit": string(rune('a' + number))} })
			}
			return nil
		}
		s.scale(1)
		for s.turn(time.Second); len(s.deleted) == 0 || !s.ended(); s.turn(time.Second) {
			require.Less(s, tries, 60)
			for i, w := range s.retirer.writes {
				if strings.HasPrefix(w, "apply status: ") && i+1 < len(s.retirer.writes) {
					require.True(s, strings.HasPrefix(s.retirer.writes[i+1], "apply status"), "%q", s.retirer.writes)
				}
			}
		}
		assert.Greater(s, number, 5)
		assert.Equal(s, []string{"chat-server-0"}, s.present())
		assert.Equal(s, []string{"chat-server-1"}, s.deleted)
		assert.Equal(s, 1, strings.Count(strings.Join(s.events, " "), names.EventRetirementDeleting), "%q", s.events)
	})
}

// refuse has the API server refuse something in the namespace until the returned
// function is called.
func (s *retirement) refuse(operation admissionregistrationv1.OperationType, group, version, resource string, tried func(ctx context.Context) error) (allow func()) {
	refused := refusal.Refusal{
		Name: "refuse-" + s.Namespace, Namespace: s.Namespace,
		Operation: operation, Group: group, Version: version, Resource: resource, Tried: tried,
	}
	end, err := refused.Begin(context.Background(), s.api)
	require.NoError(s, err)
	return func() { require.NoError(s, end(context.Background())) }
}

func (s *retirement) refuseDeletes() (allow func()) {
	return s.refuse(admissionregistrationv1.Delete, "", "v1", "pods", func(ctx context.Context) error {
		return s.api.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "chat-server-0"}}, client.DryRunAll)
	})
}

func TestADeleteThatIsRefusedIsHeldAndNamed(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		allow := s.refuseDeletes()
		s.scale(1)
		s.until(time.Minute, func() bool {
			md := s.md()
			return md.Status.Retirement != nil && strings.Contains(md.Status.Retirement.Message, refusal.Message)
		})
		assert.Equal(s, v1alpha1.StateDeleting, s.state())
		tried := len(s.retirer.writes)
		s.pass(time.Minute)
		assert.Equal(s, []string{"chat-server-0", "chat-server-1 withdrawn"}, s.present())
		assert.Less(s, len(s.retirer.writes)-tried, 60, "it is tried again, and not all the time:\n%s", strings.Join(s.retirer.writes[tried:], "\n"))
		allow()
		s.until(time.Minute, s.ended)
		assert.Equal(s, []string{"chat-server-0"}, s.present())
	})
}

func TestADeleteThatIsRefusedForLongGivesTheReplicaUp(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		allow := s.refuseDeletes()
		s.edit(func(md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Replicas, md.Spec.Retirement.DrainSeconds = new(int32(1)), new(int32(30))
		})
		s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateDeleting })
		s.engine("chat-server-1", busyEngine)
		s.until(budgetsOver, func() bool { return slices.Equal(s.present(), []string{"chat-server-0", "chat-server-1"}) })
		assert.Equal(s, names.RetireNotProvenAgain, s.md().Status.Retirement.Reason)
		allow()
		s.pass(time.Minute)
		assert.Empty(s, s.deleted)
	})
}

func TestAPodThatWasReplacedUnderItsNameIsNotTouched(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		replaced := false
		s.retirer.before = func(what string) error {
			if what == "delete chat-server-1" && !replaced {
				replaced = true
				old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "chat-server-1"}}
				require.NoError(s, s.api.Delete(context.Background(), old, client.GracePeriodSeconds(0)))
				s.bringUp(render.Replica(s.ModelDeployment, &s.Spec.Roles[0], 1)[0])
				s.engine("chat-server-1", busyEngine)
			}
			return nil
		}
		s.scale(1)
		s.until(time.Minute, func() bool { return replaced })
		s.scale(2) // or the new one would be taken away too, by an operation of its own
		s.until(time.Minute, s.ended)
		s.pass(time.Minute)
		assert.Empty(s, s.deleted)
		assert.Equal(s, []string{"chat-server-0", "chat-server-1"}, s.present())
		assert.Equal(s, s.uids["chat-server-1"], s.pods()[1].UID)
	})
}

// What fails for ever for one replica keeps no other, and is not tried without a
// pause.
func TestAnActionThatFailsForEverKeepsNobodyElse(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(3), func(s *retirement) {
		s.pass(3 * time.Second)
		tries := 0
		s.retirer.before = func(what string) error {
			if strings.HasPrefix(what, "patch *v1.Pod chat-server-2 ") {
				tries++
				return errors.New("no more labels")
			}
			return nil
		}
		s.edit(func(md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Replicas, md.Spec.Retirement.TotalSeconds = new(int32(1)), new(int32(60))
		})
		took := s.until(time.Minute, func() bool { return slices.Equal(s.present(), []string{"chat-server-0", "chat-server-2"}) })
		assert.Less(s, took, 30*time.Second)
		s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateAborted })
		assert.Equal(s, names.RetireNotMarked, s.md().Status.Retirement.Reason)
		assert.Less(s, tries, 120, "at most two a second")
	})
}

func TestAMarkThatCannotBeTakenOffIsAnError(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		s.engine("chat-server-1", busyEngine)
		s.edit(func(md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Replicas, md.Spec.Retirement.TotalSeconds = new(int32(1)), new(int32(30))
		})
		s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateDraining })
		broken := errors.New("no more labels")
		s.retirer.before = func(what string) error {
			if strings.HasPrefix(what, "patch *v1.Pod ") {
				return broken
			}
			return nil
		}
		s.until(budgetsOver, func() bool { return s.state() == v1alpha1.StateAborted })
		for range 3 {
			done := s.retirer.reconcile()
			require.ErrorIs(s, done.err, broken, "so that the time to the next try grows")
			require.Zero(s, done.result)
		}
		s.retirer.before = nil
		s.turn(time.Second)
		assert.Equal(s, []string{"chat-server-0", "chat-server-1"}, s.present())
	})
}

func TestNothingToDoIsNothingDone(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(2), func(s *retirement) {
		s.turn(time.Second)
		require.Len(s, s.retirer.writes, 1, "the finalizer")
		version := s.md().ResourceVersion
		for range 20 {
			assert.Equal(s, reconciled{}, s.retirer.reconcile())
		}
		s.pass(time.Hour)
		assert.Zero(s, s.reads)
		assert.Equal(s, version, s.md().ResourceVersion)
	})
}
