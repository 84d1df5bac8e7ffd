package main

import (
	"context"
	"fmt"

	"github.com/lastcall-dev/lastcall/bench/controlplane"
)

// atOnce is how many owners (h) scales down at once.
var atOnce int

// A process is a controller whose cost (h) measures beside the contender's own.
type process struct {
	pid int
	// before and after the scale-down, and before and after the quiet minute that
	// follows.
	before, after, idle, settled usage
}

func (p *process) measure(into *usage) (err error) {
	*into, err = usageOf(p.pid)
	return err
}

// measureScaleDown takes the figures of (h): nothing changes for a minute, then all
// owners of one kind are scaled down by one, then nothing changes again.
func measureScaleDown(ctx context.Context, cluster *running) ([]figure, string, error) {
	lastcall, yardstick := lastcallScaler(cluster, sizeBefore), statefulSetScaler(cluster)
	retirer := &process{pid: cluster.controllers["retirer"].PID}
	manager := &process{pid: cluster.plane.ControllerManager.PID}
	for _, s := range []*scaler{lastcall, yardstick} {
		say("(h) %d %ss with %d replicas", atOnce, s.kind, sizeBefore)
		if err := s.create(ctx, atOnce); err != nil {
			return nil, "", fmt.Errorf("creating %ss: %w", s.kind, err)
		}
		if _, err := settle(ctx, s.plane, s.users...); err != nil {
			return nil, "", err
		}
	}
	say("(h) nothing changes for %s", quietTime)
	begin, err := quietMinute(ctx, cluster.plane)
	if err != nil {
		return nil, "", err
	}
	for _, s := range []*scaler{lastcall, yardstick} {
		s.quietBefore = s.callsBetween(begin, begin.Add(quietTime))
	}
	for _, turn := range []struct {
		scaler  *scaler
		process *process
	}{{lastcall, retirer}, {yardstick, manager}} {
		if err := scaleDown(ctx, turn.scaler, turn.process); err != nil {
			return nil, "", fmt.Errorf("scaling %ss down: %w", turn.scaler.kind, err)
		}
	}
	if err := afterwards(ctx, cluster.plane, []*scaler{lastcall, yardstick}, []*process{retirer, manager}); err != nil {
		return nil, "", err
	}
	return scaleFigures(lastcall, yardstick, retirer, manager), scaleTable(lastcall, yardstick), nil
}

// scaleDown is the turn of one contender.
func scaleDown(ctx context.Context, s *scaler, p *process) error {
	say("(h) every %s is scaled down by one", s.kind)
	if err := p.measure(&p.before); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	if len(s.deleted()) == 0 {
		return fmt.Errorf("no replica went, and the ends are %v", s.ends)
	}
	return p.measure(&p.after)
}

// afterwards is the second quiet minute.
func afterwards(ctx context.Context, plane *controlplane.Plane, scalers []*scaler, processes []*process) error {
	say("(h) nothing changes for %s", quietTime)
	for _, p := range processes {
		if err := p.measure(&p.idle); err != nil {
			return err
		}
	}
	begin, err := quietMinute(ctx, plane)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if err := p.measure(&p.settled); err != nil {
			return err
		}
	}
	for _, s := range scalers {
		s.quietAfter = s.callsBetween(begin, begin.Add(quietTime))
	}
	return nil
}
