package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

const (
	// watched is how many engines of each kind (g) makes idle at a time.
	watched = 9
	// withdrawal is the shortest proof that no client reaches a replica, without a
	// router: 5 s after the EndpointSlices dropped it, and 6 s without a connection.
	withdrawal = 11 * time.Second
)

// measureRetirement takes the figures of (g), and a table of the API calls of one
// retirement.
func measureRetirement(ctx context.Context, cluster *running, engines served) ([]figure, string, error) {
	lastcall, yardstick := lastcallScaler(cluster, sizeBefore), statefulSetScaler(cluster)
	for _, s := range []*scaler{lastcall, yardstick} {
		say("(g) one replica of one %s goes", s.kind)
		if err := s.once(ctx); err != nil {
			return nil, "", fmt.Errorf("taking a replica of a %s away: %w", s.kind, err)
		}
	}
	figures := oneFigures(lastcall, yardstick)
	var waiting []*scaler
	for _, e := range engine.All() {
		waiting = append(waiting, of(lastcallScaler(cluster, sizeBefore), e))
	}
	say("(g) %d busy engines of each kind become idle", watched)
	idleAt, err := becomeIdle(ctx, waiting, engines)
	if err != nil {
		return nil, "", err
	}
	for i, e := range engine.All() {
		more, err := idleFigures(e, waiting[i], idleAt)
		if err != nil {
			return nil, "", err
		}
		figures = append(figures, more...)
	}
	return figures, oneTable(lastcall, yardstick), nil
}

// once warms its controllers up, and takes one replica away.
func (s *scaler) once(ctx context.Context) error {
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	if err := s.create(ctx, 1); err != nil {
		return err
	}
	if _, err := settle(ctx, s.plane, s.users...); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	return s.checkAllWent()
}

// checkAllWent is an error unless every replica that was to go did.
func (s *scaler) checkAllWent() error {
	if n := len(s.deleted()); n != s.owners || s.ends[string(v1alpha1.EndCompleted)] != s.owners {
		return fmt.Errorf("%d of %d replicas went, and the ends are %v", n, s.owners, s.ends)
	}
	return nil
}

// of makes the owners run this engine.
func of(s *scaler, e engine.Engine) *scaler {
	runs := map[engine.Name]v1alpha1.Engine{
		engine.VLLM:   {Name: v1alpha1.VLLM, Version: "0.29.0", Image: "vllm/vllm-openai:v0.29.0"},
		engine.SGLang: {Name: v1alpha1.SGLang, Version: "0.5.6", Image: "lmsysorg/sglang:v0.5.6"},
	}[e.Name]
	s.objects = func(namespace, name string) []client.Object {
		md := modelDeployment(namespace, name, s.replicas)
		md.Spec.Engine = runs
		return []client.Object{md}
	}
	return s
}

// becomeIdle takes a replica of busy engines away, makes all engines idle as soon
// as nothing else holds the replicas, and waits for the end.
func becomeIdle(ctx context.Context, all []*scaler, engines served) (idleAt time.Time, err error) {
	if err := engines.inFlight(1); err != nil {
		return idleAt, err
	}
	for _, s := range all {
		if err := errors.Join(s.create(ctx, watched), s.scale(ctx)); err != nil {
			return idleAt, err
		}
	}
	for _, s := range all {
		if err := s.awaitHeld(ctx); err != nil {
			return idleAt, err
		}
	}
	if err := engines.inFlight(0); err != nil {
		return idleAt, err
	}
	idleAt = time.Now()
	for _, s := range all {
		if err := s.await(ctx); err != nil {
			return idleAt, err
		}
	}
	for _, s := range all {
		end, err := settle(ctx, s.plane, s.users...)
		if err != nil {
			return idleAt, err
		}
		s.calls = s.callsBetween(s.first, end)
		if err := s.checkAllWent(); err != nil {
			return idleAt, err
		}
	}
	return idleAt, nil
}

// awaitHeld waits until all that holds the replicas is their work.
func (s *scaler) awaitHeld(ctx context.Context) error {
	return s.plane.Wait(ctx, "replicas that are held by their work", func(ctx context.Context) error {
		var list v1alpha1.ModelDeploymentList
		if err := s.plane.Cluster.Client.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for _, md := range list.Items {
			if r := md.Status.Retirement; r == nil || r.State != v1alpha1.StateDraining || r.Targets[0].InFlight == nil {
				return fmt.Errorf("%s is not drained yet", md.Name)
			}
		}
		return nil
	})
}
