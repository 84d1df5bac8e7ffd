package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
)

// part is a sequence of scenarios on the same stages.
type part struct {
	scenarios []string
	stages    []stage
}

// playAll plays the scenarios, each in all its modes at once, some beside others.
// The load goes on meanwhile.
func playAll(ctx context.Context, c *kube.Cluster) (runs []Run, err error) {
	node, err := c.Worker(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	parts, err := prepareAll(ctx, c, node)
	defer func() { err = errors.Join(err, forget(context.WithoutCancel(ctx), c, parts)) }()
	if err != nil {
		return nil, err
	}
	var starting errgroup.Group
	for _, p := range parts {
		for i := range p.stages {
			starting.Go(func() error { return p.stages[i].start(ctx, c, slices.Contains(p.scenarios, deleteMD)) })
		}
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	say("engines ready and busy in %s", elapsed(began))

	// What takes long and nobody else waits for is played beside the rest: the
	// ModelDeployment's replicas that leave one after the other, and those that leave
	// when they are idle.
	beside := [][]part{parts[:1], parts[1:2], parts[2:]}
	played := make([][]Run, len(beside))
	group, playing := errgroup.WithContext(ctx)
	for i, sequence := range beside {
		group.Go(func() error {
			for _, p := range sequence {
				more, err := playOn(playing, c, node, p)
				if err != nil {
					return err
				}
				played[i] = append(played[i], more...)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	runs = slices.Concat(played...)
	slices.SortStableFunc(runs, func(a, b Run) int {
		return cmp.Compare(slices.Index(rows, a.Scenario), slices.Index(rows, b.Scenario))
	})
	return runs, nil
}

// prepareAll makes the stages of all scenarios. It returns those it made also with
// an error.
func prepareAll(ctx context.Context, c *kube.Cluster, node string) (parts []part, err error) {
	add := func(scenarios, modes []string, prepare func(mode string) (stage, error)) {
		p := part{scenarios: scenarios}
		for _, mode := range modes {
			if err != nil {
				break
			}
			var s stage
			s, err = prepare(mode)
			p.stages = append(p.stages, s)
		}
		parts = append(parts, p)
	}
	add(scenarios, modes, func(mode string) (stage, error) { return prepare(ctx, c, node, mode) })
	add([]string{ownRollout}, []string{lastcall}, func(string) (stage, error) { return prepareOwn(ctx, c) })
	for _, scenario := range []string{scaleDown, deleteMD} {
		add([]string{scenario}, retirements[scenario].modes, func(mode string) (stage, error) {
			return prepareRetirement(ctx, c, scenario, mode)
		})
	}
	return parts, err
}

// forget deletes the namespaces of stages.
func forget(ctx context.Context, c *kube.Cluster, parts []part) (err error) {
	for _, p := range parts {
		for _, s := range p.stages {
			if s.namespace != "" {
				err = errors.Join(err, c.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}))
			}
		}
	}
	return err
}

// playOn plays the scenarios of a part, and ends their load after the last.
func playOn(ctx context.Context, c *kube.Cluster, node string, p part) (runs []Run, err error) {
	stages := p.stages
	var windows []window
	for _, scenario := range p.scenarios {
		var with []string
		for _, s := range stages {
			with = append(with, s.mode)
		}
		say("%s, with %s", scenario, strings.Join(with, ", "))
		w := window{scenario: scenario, began: time.Now()}
		if w.asked, err = play(ctx, c, node, scenario, stages); err != nil {
			return nil, fmt.Errorf("%s: %w", scenario, err)
		}
		w.end = time.Now()
		windows = append(windows, w)
		say("%s took %s", scenario, elapsed(w.began))
	}
	records := make([][]load.Request, len(stages))
	var stopping errgroup.Group // each has an answer to wait for
	for i, s := range stages {
		stopping.Go(func() (err error) {
			records[i], err = s.stop()
			return err
		})
	}
	if err := stopping.Wait(); err != nil {
		return nil, err
	}
	windows[len(windows)-1].end = time.Now()
	for _, w := range windows {
		for i, s := range stages {
			runs = append(runs, s.run(w, records[i]))
		}
	}
	return runs, nil
}
