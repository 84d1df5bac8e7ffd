// Command operator makes and replaces the replicas of ModelDeployments.
package main

import (
	"context"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lastcall-dev/lastcall/internal/operator"
	"github.com/lastcall-dev/lastcall/internal/process"
)

// version is set by the linker.
var version = "dev"

func main() {
	var c process.Controller
	c.AddController("lastcall-operator")
	os.Exit(process.Run(version, &c.Flags, func(signalled context.Context) error {
		mgr, err := c.Manager(operator.AddToScheme, operator.CacheOptions())
		if err != nil {
			return err
		}
		if err := operator.Register(mgr, operator.Options{Workers: c.Workers, Registry: metrics.Registry}); err != nil {
			return err
		}
		return mgr.Start(signalled)
	}))
}
