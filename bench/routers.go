package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

var (
	// targets is how many owners behind one router (i) scales down at once.
	targets int
	// onlyRouter is the router that (i) measures, of releaseNames; empty for all.
	onlyRouter string
)

// releases are the routers of (i), with what a user would set that wants proofs.
var releases = []struct {
	bundle.Release
	name   v1alpha1.RouterName
	port   int32 // of spec.router
	policy string
	args   []string
}{
	{bundle.Release{Family: fake.VLLMRouter, Version: "0.1.15"}, v1alpha1.VLLMRouter, router.Port, "round_robin", nil},
	{bundle.Release{Family: fake.SGLModelGateway, Version: "0.3.0"}, v1alpha1.SGLangGateway, router.Port, "round_robin", nil},
	{bundle.Release{Family: fake.SMG, Version: "1.10.0"}, v1alpha1.SGLangGateway, router.Port, "round_robin", []string{"--drain-settle-secs", "600"}},
	{bundle.Release{Family: fake.LLMD, Version: "0.10.0"}, v1alpha1.LLMDRouter, router.EPPPort, "", nil},
}

func releaseNames() (all []string) {
	for _, r := range releases {
		all = append(all, string(r.Family))
	}
	return all
}

// processesOf are how many processes each router has, in turn.
var processesOf = []int{1, 3, 10}

const (
	// sizeBehind is how many replicas each owner of (i) has until one is taken away.
	sizeBehind = 2
	routerName = "router"
	// enginePort is that of the engines that the operator renders.
	enginePort = 8000
	// servingSelector is what it chooses its workers by.
	servingSelector = names.LabelManagedBy + "=" + names.Operator + "," + names.LabelServing + "=" + names.Serving
)

// measureRouters takes the figures of (i): each router with one process, with some and
// with many is withdrawn from, each time with owners of its own.
func measureRouters(ctx context.Context, dir string) (figures []figure, notes string, err error) {
	const most = 45 * time.Minute // a dozen scale-downs on two cores that others use as well
	limited, cancel := limit(ctx, most)
	defer cancel()
	say("(i) bringing up a control plane whose nodes kwok plays")
	cluster, _, err := bringUpRetirer(limited, dir)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, cluster.stop()) }()
	if err := lastcallScaler(cluster, sizeBehind).warmUp(limited); err != nil {
		return nil, "", err
	}
	var all []*routed
	for i, release := range releases {
		if onlyRouter != "" && onlyRouter != string(release.Family) {
			continue
		}
		for _, n := range processesOf {
			r := router.Router{
				Name: routerName, Release: release.Release, Replicas: int32(n), EnginePort: enginePort, Policy: release.policy, Args: release.args,
				Selector: servingSelector,
			}
			w := &routed{name: fmt.Sprintf("%s %s", release.Family, release.Version), processes: n}
			say("(i) %d ModelDeployments behind %s", targets, w.title())
			// Addresses of its own, so that nothing that is open from before is in the way.
			f := newFleet(r, specOf(r, release.name, release.port), fmt.Sprintf("127.90.%d", i*len(processesOf)+slices.Index(processesOf, n)))
			if err := w.measure(limited, cluster, f); err != nil {
				return routerFigures(all), routerTable(all), fmt.Errorf("withdrawing from %s: %w", w.title(), err)
			}
			all = append(all, w)
		}
	}
	return routerFigures(all), routerTable(all), nil
}

// specOf is a router as a ModelDeployment names it.
func specOf(r router.Router, name v1alpha1.RouterName, port int32) *v1alpha1.Router {
	return &v1alpha1.Router{Name: name, PodSelector: metav1.LabelSelector{MatchLabels: r.PodLabels()}, Port: port}
}

// behind has the owners be served through a router.
func behind(s *scaler, r *v1alpha1.Router) *scaler {
	s.objects = func(namespace, name string) []client.Object {
		md := modelDeployment(namespace, name, s.replicas)
		md.Spec.Withdrawal, md.Spec.Router = v1alpha1.Withdrawal{}, r.DeepCopy()
		return []client.Object{md}
	}
	return s
}

// measure scales all owners behind a router down by one.
func (w *routed) measure(ctx context.Context, cluster *running, f *fleet) (err error) {
	s := behind(lastcallScaler(cluster, sizeBehind), f.spec)
	if err := s.create(ctx, targets); err != nil {
		return err
	}
	if err := f.start(ctx, cluster.plane, s.namespace); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	window, told, err := f.ready(ctx, targets*sizeBehind)
	if err != nil {
		return err
	}
	w.floor = floorOf(window, told)
	if _, err := settle(ctx, s.plane, s.users...); err != nil {
		return err
	}
	proofs, stop, err := watchProofs(ctx, cluster.plane.Cluster.Client, s.namespace)
	if err != nil {
		return err
	}
	defer stop()
	retirer := &process{pid: cluster.controllers["retirer"].PID}
	if err := retirer.measure(&retirer.before); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	if err := retirer.measure(&retirer.after); err != nil {
		return err
	}
	if err := s.checkAllWent(); err != nil {
		return err
	}
	w.retirer, w.load, w.deletes = retirer.after.cpu-retirer.before.cpu, s.load, s.waits()
	if w.waits, err = proofs.waits(s.at); err != nil {
		return err
	}
	for _, p := range f.processes {
		w.asked = append(w.asked, p.since(s.first))
	}
	return nil
}

// floorOf is the shortest time in which a replica can be proven to be out of reach: a
// look that shows which processes there are and, where these are told, one that shows
// that it was done; and from the next look on the window of the family, which is how
// long after its choice a request can still be sent.
func floorOf(window time.Duration, told bool) time.Duration {
	looks := 1
	if told {
		looks = 2
	}
	return time.Duration(looks)*retire.ReadInterval + window
}
