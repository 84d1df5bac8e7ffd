package election

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// patience is how long one answer may take. Without a limit a single request that
// hangs would use up the time in which the leader must renew.
const patience = 5 * time.Second

var errNoContact = errors.New("the API server has not been asked for the Lease yet")

// Lock is the Lease that the replicas elect with, and what came of asking for it
// last. A manager's own lock would also write events of the legacy API about the
// Lease, which is one permission more.
type Lock struct {
	resourcelock.Interface
	last atomic.Pointer[error]
}

// New returns the lock of this process. The Lease is created where it is missing.
func New(config *rest.Config, lease types.NamespacedName) (*Lock, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = patience
	leases, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Lock{Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
		Client:    leases,
		// A container that restarts keeps its host name, and must not take itself for
		// the leader that it was.
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
	}}, nil
}

// Get reads the Lease.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	l.last.Store(&err)
	return record, raw, err
}

// Create makes the Lease.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, record)
	l.last.Store(&err)
	return err
}

// Update writes the Lease.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, record)
	l.last.Store(&err)
	return err
}

// Check is a readiness check: a replica that could not reach the Lease when it last
// tried neither works nor could take over.
func (l *Lock) Check(*http.Request) error {
	last := l.last.Load()
	if last == nil {
		return errNoContact
	}
	return *last
}
