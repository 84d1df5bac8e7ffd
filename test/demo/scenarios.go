package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/load/clients"
)

// The columns and rows of the picture.
const (
	noHook   = "no hook"
	sleep15  = "sleep 15"
	lastcall = "lastcall"
)

var (
	modes     = []string{noHook, sleep15, lastcall}
	scenarios = []string{"delete", "rollout", "node drain"}
)

//go:embed engines.yaml
var engines string

// stage is one mode: a namespace with the engines, and what is seen of them.
type stage struct {
	mode      string
	namespace string
	replicas  *replicas
}

// playAll plays each scenario in all modes at once.
func playAll(ctx context.Context, c *kube.Cluster) (runs []Run, err error) {
	node, err := c.Worker(ctx)
	if err != nil {
		return nil, err
	}
	stages := make([]stage, len(modes))
	for i, mode := range modes {
		if stages[i], err = prepare(ctx, c, node, mode); err != nil {
			return nil, err
		}
		defer func() {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stages[i].namespace}}
			err = errors.Join(err, c.Client.Delete(context.WithoutCancel(ctx), namespace))
		}()
	}
	for _, s := range stages {
		if err := s.replicas.settled(ctx); err != nil {
			return nil, err
		}
	}
	for _, scenario := range scenarios {
		say("%s, with %s", scenario, strings.Join(modes, ", "))
		played, err := play(ctx, c, node, scenario, stages)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scenario, err)
		}
		runs = append(runs, played...)
	}
	return runs, nil
}

func prepare(ctx context.Context, c *kube.Cluster, node, mode string) (stage, error) {
	labels, lifecycle := map[string]string{}, "null"
	switch mode {
	case sleep15:
		lifecycle = `{preStop: {exec: {command: [sleep, "15"]}}}`
	case lastcall:
		labels[names.LabelDrain] = names.DrainEnabled
	}
	namespace, err := c.CreateNamespace(ctx, "demo-"+strings.ReplaceAll(mode, " ", "-"), labels)
	if err != nil {
		return stage{}, err
	}
	s := stage{mode: mode, namespace: namespace, replicas: watchReplicas(ctx, c, namespace)}
	return s, c.Apply(ctx, namespace, strings.NewReplacer("MODE", lifecycle, "NODE", node).Replace(engines))
}

// play runs the same load in every mode while the scenario takes engines away.
func play(ctx context.Context, c *kube.Cluster, node, scenario string, stages []stage) ([]Run, error) {
	started := time.Now()
	stop := make([]func() ([]load.Request, error), len(stages))
	var starting errgroup.Group
	for i, s := range stages {
		starting.Go(func() (err error) {
			service := client.ObjectKey{Namespace: s.namespace, Name: "engine"}
			stop[i], err = clients.Start(ctx, c, service, "--clients=10", "--min-tokens=10", "--max-tokens=400")
			return err
		})
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	select { // the load is to be under way
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var group errgroup.Group
	if scenario == "node drain" {
		group.Go(func() error { return drain(ctx, c, node, stages) })
	} else {
		for _, s := range stages {
			group.Go(func() error { return s.remove(ctx, c, scenario) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var runs []Run
	for i, s := range stages {
		requests, err := stop[i]()
		if err != nil {
			return nil, err
		}
		r := Run{Scenario: scenario, Mode: s.mode, Started: started, Requests: requests}
		r.Replicas, r.IdleLeave = s.replicas.left(started)
		runs = append(runs, r)
	}
	return runs, nil
}

// remove deletes the engines one after the other, each once the last one's
// replacement is ready, or rolls all out at once.
func (s stage) remove(ctx context.Context, c *kube.Cluster, scenario string) error {
	if scenario == "rollout" {
		if _, err := c.Kubectl(ctx, "rollout", "restart", "-n", s.namespace, "deployment", "--selector=demo=removal"); err != nil {
			return err
		}
		if _, err := c.Kubectl(ctx, "rollout", "status", "-n", s.namespace, "deployment", "--selector=demo=removal", "--timeout=2m"); err != nil {
			return err
		}
		return s.replicas.settled(ctx)
	}
	for _, engine := range []string{"idle", "vllm", "sglang"} {
		pod := s.replicas.alive(engine)
		if _, err := c.Kubectl(ctx, "delete", "pod", "-n", s.namespace, pod, "--wait=false"); err != nil {
			return err
		}
		if engine == "idle" {
			continue // nobody is sent to it: it can leave beside the first
		}
		if err := s.replicas.replaced(ctx, engine, pod); err != nil {
			return err
		}
	}
	return s.replicas.settled(ctx)
}

// drain empties the node of all modes' engines with kubectl drain, and lets it
// take their replacements as another node would.
func drain(ctx context.Context, c *kube.Cluster, node string, stages []stage) error {
	drained := make(chan error, 1)
	go func() {
		_, err := c.Kubectl(ctx, "drain", node, "--pod-selector=demo=engine", "--ignore-daemonsets", "--timeout=3m")
		drained <- err
	}()
	for done := false; !done; {
		select {
		case err := <-drained:
			if err != nil {
				return err
			}
			done = true
		case <-time.After(500 * time.Millisecond):
		}
		if err := c.Uncordon(ctx, node); err != nil {
			return err
		}
	}
	for _, s := range stages {
		if err := s.replicas.settled(ctx); err != nil {
			return err
		}
	}
	return nil
}
