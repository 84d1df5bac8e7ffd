// Command operator makes and replaces the replicas of ModelDeployments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lastcall-dev/lastcall/internal/election"
	"github.com/lastcall-dev/lastcall/internal/operator"
	"github.com/lastcall-dev/lastcall/internal/process"
)

// version is set by the linker.
var version = "dev"

type options struct {
	process.Flags
	lease   types.NamespacedName
	workers int
}

func main() {
	var o options
	flag.StringVar(&o.lease.Name, "name", "lastcall-operator", "name of the Lease that the replicas elect with")
	flag.StringVar(&o.lease.Namespace, "namespace", "", "namespace of the Lease")
	flag.IntVar(&o.workers, "workers", 8, "how many ModelDeployments are worked on at a time, from 1")
	os.Exit(process.Run(version, &o.Flags, func(signalled context.Context) error { return run(signalled, o) }))
}

func run(signalled context.Context, o options) error {
	if o.lease.Namespace == "" {
		return errors.New("--namespace is needed: the replicas elect with a Lease in it")
	}
	if o.workers < 1 {
		return fmt.Errorf("--workers=%d: must be 1 or more", o.workers)
	}
	scheme := runtime.NewScheme()
	if err := operator.AddToScheme(scheme); err != nil {
		return err
	}
	// Without limits on the client's side. --workers bounds how many requests are
	// under way, and the API server's priority and fairness keeps them from crowding
	// out others; a limit here would only queue a rollout's creates before the writes
	// of status, however idle the API server is.
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	lock, err := election.New(config, o.lease)
	if err != nil {
		return err
	}
	managed := o.Manager(scheme)
	managed.Cache = operator.CacheOptions()
	managed.LeaderElection = true
	managed.LeaderElectionResourceLockInterface = lock
	// The next leader need not wait for the lease to end: the process ends with the
	// manager, so nothing of this one is still at work.
	managed.LeaderElectionReleaseOnCancel = true
	mgr, err := ctrl.NewManager(config, managed)
	if err != nil {
		return err
	}
	if err := errors.Join(
		operator.Register(mgr, operator.Options{Workers: o.workers, Registry: metrics.Registry}),
		mgr.AddReadyzCheck("lease", lock.Check),
		mgr.AddReadyzCheck("cache", process.Synced(mgr.GetCache())),
		mgr.AddHealthzCheck("ping", healthz.Ping),
	); err != nil {
		return err
	}
	return mgr.Start(signalled)
}
