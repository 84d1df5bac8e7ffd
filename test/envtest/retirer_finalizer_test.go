package envtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/test/refusal"
)

const othersFinalizer = "kueue.x-k8s.io/managed-resources"

func TestTheFinalizerIsAddedToOlderObjectsBesideThoseOfOthers(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(1), func(s *retirement) {
		s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{othersFinalizer} })
		s.pass(3 * time.Second)
		assert.Equal(s, []string{othersFinalizer, names.Finalizer}, s.md().Finalizers)
		s.delete()
		s.until(time.Minute, func() bool { return slices.Equal(s.md().Finalizers, []string{othersFinalizer}) })
		assert.Empty(s, s.present())
		writes := len(s.retirer.writes)
		s.pass(time.Hour)
		assert.Len(s, s.retirer.writes, writes, "it is not held any more, and nothing more is done")
		assert.Equal(s, []string{othersFinalizer}, s.md().Finalizers)
	})
}

// The API server takes no finalizer then, and a controller that tries does so for
// ever; see https://github.com/kubernetes-sigs/cluster-api/issues/8946
func TestAnObjectThatIsBeingDeletedGetsNoFinalizer(t *testing.T) {
	t.Parallel()
	t.Run("as it is seen", func(t *testing.T) {
		t.Parallel()
		onRetirement(t, "", servers(1), func(s *retirement) {
			s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{othersFinalizer} })
			s.delete()
			for range 10 {
				assert.Equal(s, reconciled{}, s.retirer.reconcile())
			}
			assert.Empty(s, s.retirer.writes)
		})
	})
	t.Run("as it comes about meanwhile", func(t *testing.T) {
		t.Parallel()
		onRetirement(t, "", servers(1), func(s *retirement) {
			s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{othersFinalizer} })
			s.retirer.before = func(string) error {
				s.delete()
				return nil
			}
			require.NoError(s, s.retirer.reconcile().err)
			s.retirer.before = nil
			s.pass(time.Minute)
			assert.Len(s, s.retirer.writes, 1)
			assert.Contains(s, s.retirer.writes[0], "the object has been modified")
			assert.Equal(s, []string{othersFinalizer}, s.md().Finalizers)
		})
	})
}

func TestAnObjectIsLetGoWithWhatGoesOrStaysWithoutIt(t *testing.T) {
	t.Parallel()
	busy := func(s *retirement) {
		s.engine("chat-server-0", busyEngine)
		s.engine("chat-server-1", busyEngine)
		s.pass(3 * time.Second)
		s.scale(1)
		s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateDraining })
		require.Equal(s, []string{"chat-server-0", "chat-server-1 withdrawn"}, s.present())
	}
	t.Run("its namespace is terminating", func(t *testing.T) {
		t.Parallel()
		onRetirement(t, "", servers(2), func(s *retirement) {
			busy(s)
			require.NoError(s, s.api.Delete(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}))
			s.delete()
			assert.Less(s, s.until(time.Minute, s.gone), 10*time.Second)
			assert.Empty(s, s.deleted, "that is another's work")
		})
	})
	t.Run("its Pods are left behind, and serve again", func(t *testing.T) {
		t.Parallel()
		onRetirement(t, "", servers(2), func(s *retirement) {
			busy(s)
			s.delete(client.PropagationPolicy(metav1.DeletePropagationOrphan))
			s.until(time.Minute, func() bool { return slices.Equal(s.md().Finalizers, []string{metav1.FinalizerOrphanDependents}) })
			assert.Equal(s, []string{"chat-server-0", "chat-server-1"}, s.present())
			assert.Equal(s, names.RetireOrphaned, s.md().Status.LastRetirement.Reason)
		})
	})
	t.Run("its Pods are left behind, and the garbage collector was faster", func(t *testing.T) {
		t.Parallel()
		onRetirement(t, "", servers(2), func(s *retirement) {
			busy(s)
			s.delete(client.PropagationPolicy(metav1.DeletePropagationOrphan))
			for _, pod := range s.pods() {
				pod.OwnerReferences = nil
				require.NoError(s, s.api.Update(context.Background(), &pod))
			}
			s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{names.Finalizer} })
			s.until(time.Minute, s.gone)
			assert.Equal(s, []string{"chat-server-0", "chat-server-1"}, s.present())
			assert.Empty(s, s.deleted)
		})
	})
	t.Run("a foreground cascade takes its Pods", func(t *testing.T) {
		t.Parallel()
		onRetirement(t, "", servers(2), func(s *retirement) {
			busy(s)
			s.delete(client.PropagationPolicy(metav1.DeletePropagationForeground))
			for _, pod := range s.pods() {
				require.NoError(s, s.api.Delete(context.Background(), &pod))
			}
			took := s.until(time.Minute, func() bool { return slices.Equal(s.md().Finalizers, []string{metav1.FinalizerDeleteDependents}) })
			assert.Less(s, took, 5*time.Second)
			assert.Equal(s, []string{"chat-server-0 leaving", "chat-server-1 withdrawn leaving"}, s.present(), "while they drain")
		})
	})
}

// A finalizer that somebody else took off first is no error; one that must not be
// taken off is, or nobody would ever hear of it.
func TestWhatKeepsAnObjectFromBeingLetGoIsTold(t *testing.T) {
	t.Parallel()
	onRetirement(t, "", servers(0), func(s *retirement) {
		ctx := context.Background()
		s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{othersFinalizer, names.Finalizer} })
		old := s.md()
		s.edit(func(md *v1alpha1.ModelDeployment) { md.Finalizers = []string{names.Finalizer} })
		err := finalizer.Remove(ctx, s.api, old, "test")
		require.True(s, apierrors.IsConflict(err), "%v", err)

		s.delete()
		touch := 0
		allow := s.refuse(admissionregistrationv1.Update, names.Group, "v1alpha1", "modeldeployments", func(ctx context.Context) error {
			touch++
			md := s.md()
			md.Annotations = map[string]string{"touch": string(rune('a' + touch%20))}
			return s.api.Update(ctx, md, client.DryRunAll)
		})
		done := s.retirer.reconcile()
		require.ErrorContains(s, done.err, refusal.Message)
		require.NotNil(s, s.md())
		allow()
		s.until(time.Minute, s.gone)
	})
}
