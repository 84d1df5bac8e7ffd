package certificate

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestASecretThatIsDeletedIsNamedWithTheWayOut(t *testing.T) {
	c := newCluster(t)
	var logged []string
	logger := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	ctx := logr.NewContext(t.Context(), logger)
	serving := &Serving{Clock: realTime}
	follower := &Follower{Client: c, Secret: own, Serving: serving}
	follow := func() {
		_, err := follower.Reconcile(ctx, ctrl.Request{NamespacedName: own})
		require.NoError(t, err)
	}

	secret := c.secret(t)
	require.NoError(t, c.Delete(t.Context(), secret))
	follow()
	require.Len(t, logged, 1)
	assert.Contains(t, logged[0], "helm upgrade")
	require.ErrorContains(t, serving.Check(nil), "`helm upgrade` with the same values brings it back")

	secret.ResourceVersion = ""
	require.NoError(t, c.Create(t.Context(), secret))
	follow()
	require.EqualError(t, serving.Check(nil), "there is no serving certificate yet")
	c.settle(t)
	follow()
	require.NoError(t, serving.Check(nil))

	require.NoError(t, c.Delete(t.Context(), c.secret(t)))
	follow()
	require.NoError(t, serving.Check(nil), "what was served is good until it expires")
}

// The role has no verb to create with; without this, the election would log "forbidden".
func TestALeaseThatIsDeletedIsNamedWithTheWayOut(t *testing.T) {
	var found resourcelock.Interface = lock{}
	require.ErrorContains(t, found.Create(t.Context(), resourcelock.LeaderElectionRecord{}), "`helm upgrade` with the same values brings it back")
}
