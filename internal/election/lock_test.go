package election

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// answering is a lock that the API server gives one answer about.
type answering struct {
	resourcelock.Interface
	err error
}

func (a answering) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, a.err
}
func (a answering) Create(context.Context, resourcelock.LeaderElectionRecord) error { return a.err }
func (a answering) Update(context.Context, resourcelock.LeaderElectionRecord) error { return a.err }

func TestAReplicaIsReadyAsItLastReachedTheLease(t *testing.T) {
	away, lock := errors.New("away"), &Lock{}
	require.ErrorIs(t, lock.Check(nil), errNoContact)

	for name, ask := range map[string]func() error{
		"reading":  func() error { _, _, err := lock.Get(t.Context()); return err },
		"creating": func() error { return lock.Create(t.Context(), resourcelock.LeaderElectionRecord{}) },
		"writing":  func() error { return lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}) },
	} {
		for _, answer := range []error{nil, away, nil} {
			lock.Interface = answering{err: answer}
			assert.Equal(t, answer, ask(), name)
			assert.Equal(t, answer, lock.Check(nil), name)
		}
	}
}

func TestAProcessThatStartsAgainIsAnotherReplica(t *testing.T) {
	lease := types.NamespacedName{Namespace: "lastcall-system", Name: "lastcall-operator"}
	first, err := New(&rest.Config{}, lease)
	require.NoError(t, err)
	second, err := New(&rest.Config{}, lease)
	require.NoError(t, err)
	assert.NotEqual(t, first.Identity(), second.Identity())
	assert.Equal(t, lease.String(), first.Describe())
}
