// Command retirer takes away the replicas that ModelDeployments no longer ask for.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/retirer"
)

// version is set by the linker.
var version = "dev"

func main() {
	var c process.Controller
	var budgets retire.Budgets
	c.AddController("lastcall-retirer")
	flag.DurationVar(&budgets.Withdraw, "withdraw-budget", retire.DefaultWithdraw, "how long it may take to prove that no client reaches a replica any more, from 1s")
	flag.DurationVar(&budgets.Drain, "drain-budget", retire.DefaultDrain, "how long a replica may take to become idle, from 1s; a ModelDeployment's spec.retirement.drainSeconds goes first")
	flag.DurationVar(&budgets.Total, "total-budget", retire.DefaultTotal, "how long a retirement may take up to the last decision to delete, from 1s; a ModelDeployment's spec.retirement.totalSeconds goes first")
	os.Exit(process.Run(version, &c.Flags, func(signalled context.Context) error { return run(signalled, &c, budgets) }))
}

func run(signalled context.Context, c *process.Controller, budgets retire.Budgets) error {
	for name, budget := range map[string]time.Duration{"withdraw": budgets.Withdraw, "drain": budgets.Drain, "total": budgets.Total} {
		if budget < time.Second {
			return fmt.Errorf("--%s-budget=%s: must be 1s or more", name, budget)
		}
	}
	mgr, err := c.Manager(retirer.AddToScheme, retirer.CacheOptions())
	if err != nil {
		return err
	}
	if err := retirer.Register(mgr, retirer.Options{Workers: c.Workers, Budgets: budgets, Registry: metrics.Registry}); err != nil {
		return err
	}
	return mgr.Start(signalled)
}
