package process

import (
	"errors"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/lastcall-dev/lastcall/internal/election"
)

// Controller is a binary whose replicas elect one that works.
type Controller struct {
	Flags
	Lease   types.NamespacedName
	Workers int
}

// AddController adds the flags of a controller, with its Lease's name, to the
// command line.
func (c *Controller) AddController(lease string) {
	flag.StringVar(&c.Lease.Name, "name", lease, "name of the Lease that the replicas elect with")
	flag.StringVar(&c.Lease.Namespace, "namespace", "", "namespace of the Lease")
	flag.IntVar(&c.Workers, "workers", 8, "how many ModelDeployments are worked on at a time, from 1")
}

// Manager is a manager that works while this process holds the Lease, with its
// health checks.
func (c *Controller) Manager(addToScheme func(*runtime.Scheme) error, cached cache.Options) (ctrl.Manager, error) {
	if c.Lease.Namespace == "" {
		return nil, errors.New("--namespace is needed: the replicas elect with a Lease in it")
	}
	if c.Workers < 1 {
		return nil, fmt.Errorf("--workers=%d: must be 1 or more", c.Workers)
	}
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		return nil, err
	}
	// Without limits on the client's side. --workers bounds how many requests are
	// under way, and the API server's priority and fairness keeps them from crowding
	// out others; a limit here would only queue what is urgent behind what is not,
	// however idle the API server is.
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	lock, err := election.New(config, c.Lease)
	if err != nil {
		return nil, err
	}
	managed := c.Flags.Manager(scheme)
	managed.Cache = cached
	managed.LeaderElection = true
	managed.LeaderElectionResourceLockInterface = lock
	// The next leader need not wait for the lease to end: the process ends with the
	// manager, so nothing of this one is still at work.
	managed.LeaderElectionReleaseOnCancel = true
	mgr, err := ctrl.NewManager(config, managed)
	if err != nil {
		return nil, err
	}
	return mgr, errors.Join(
		mgr.AddReadyzCheck("lease", lock.Check),
		mgr.AddReadyzCheck("cache", Synced(mgr.GetCache())),
		mgr.AddHealthzCheck("ping", healthz.Ping),
	)
}
