package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"
)

// measureRetirer takes the figures of (f), (g) and (h).
func measureRetirer(ctx context.Context, dir string) (figures []figure, notes string, err error) {
	const most = 25 * time.Minute // 4000 Pods on two cores that others use as well
	limited, cancel := limit(ctx, most)
	defer cancel()
	if figures, err = measureSimulation(limited, dir); err != nil {
		return nil, "", err
	}
	say("(g) and (h) bringing up a control plane whose nodes kwok plays")
	cluster, engines, err := bringUpRetirer(limited, dir)
	if err != nil {
		return figures, "", err
	}
	defer func() { err = errors.Join(err, cluster.stop()) }()
	one, calls, err := measureRetirement(limited, cluster, engines)
	figures = append(figures, one...)
	if err != nil {
		return figures, calls, err
	}
	many, said, err := measureScaleDown(limited, cluster)
	return append(figures, many...), calls + "\n" + said, err
}

// bringUpRetirer brings up operator and retirer on a control plane, with engines that
// are idle until it is said otherwise.
func bringUpRetirer(ctx context.Context, dir string) (*running, served, error) {
	engines := served(filepath.Join(dir, "metrics"))
	if err := engines.inFlight(0); err != nil {
		return nil, "", err
	}
	// The shell of a read finds bench/python3 there, and nothing else.
	environment := map[string]string{"PATH": dir, "LASTCALL_BENCH_BODY": string(engines)}
	cluster, err := bringUp(ctx, dir, environment, "operator", "retirer")
	return cluster, engines, err
}
