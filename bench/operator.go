package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/bench/controlplane"
)

const (
	owners    = 200 // ModelDeployments, and StatefulSets
	replicas  = 5   // of each
	quietTime = time.Minute
)

// measureOperator takes the figures of (e), and a table of the API calls behind
// them: first the operator creates its Pods, then the StatefulSet controller the
// same ones, and then nothing changes for a minute.
func measureOperator(ctx context.Context, dir string) (_ []figure, calls string, err error) {
	say("(e) bringing up a control plane whose nodes kwok plays")
	limited, cancel := limit(ctx, most)
	defer cancel()
	cluster, err := bringUp(limited, dir, nil, "operator")
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, cluster.stop()) }()
	lastcall, yardstick := modelDeployments(cluster.plane, cluster.controllers["operator"], replicas), statefulSets(cluster.plane, replicas)
	return race(limited, cluster.plane, lastcall, yardstick)
}

// race has both create their Pods, one after the other, and leaves them alone then.
func race(ctx context.Context, plane *controlplane.Plane, lastcall, yardstick *contender) ([]figure, string, error) {
	for _, c := range []*contender{lastcall, yardstick} {
		if err := c.warmUp(ctx); err != nil {
			return nil, "", fmt.Errorf("warming up with %ss: %w", c.kind, err)
		}
	}
	for _, c := range []*contender{lastcall, yardstick} {
		say("(e) %d %ss with %d replicas", owners, c.kind, replicas)
		if err := c.run(ctx); err != nil {
			return nil, "", fmt.Errorf("running %ss: %w", c.kind, err)
		}
	}
	say("(e) nothing changes for %s", quietTime)
	for _, c := range []*contender{lastcall, yardstick} {
		var err error
		if c.idle, err = usageOf(c.pid); err != nil {
			return nil, "", err
		}
	}
	quiet, err := quietMinute(ctx, plane)
	if err != nil {
		return nil, "", err
	}
	for _, c := range []*contender{lastcall, yardstick} {
		c.quiet = plane.Calls.Between(c.user, quiet, quiet.Add(quietTime))
		var err error
		if c.settled, err = usageOf(c.pid); err != nil {
			return nil, "", err
		}
	}
	return operatorFigures(lastcall, yardstick), callTable(lastcall, yardstick), nil
}

// quietMinute lets it pass, and returns when it began.
func quietMinute(ctx context.Context, plane *controlplane.Plane) (begin time.Time, err error) {
	begin = time.Now()
	select {
	case <-time.After(quietTime):
	case <-ctx.Done():
		return begin, context.Cause(ctx)
	}
	return begin, errors.Join(plane.Check(), plane.Calls.Read())
}
