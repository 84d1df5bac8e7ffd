package main

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load/clients"
)

// The scenarios in which replicas go for good.
const (
	scaleDown = "scale-down"
	deleteMD  = "delete md"
)

// How the engines are taken away there: of a Deployment without a hook or with
// lastcall's, or of a ModelDeployment.
const (
	windowOnly = "drain window"
	byProtocol = "protocol"
)

//go:embed deployment.yaml
var plainDeployment string

//go:embed retirement.yaml
var retiredModelDeployment string

// retired says for a scenario how many engines there are, how many stay, and
// what they are sent.
type retired struct {
	modes          []string
	replicas, stay int
	graceSeconds   int
	load           []string
}

var retirements = map[string]retired{
	// Answers of up to 15 s, so that the demo does not wait long for the last one.
	scaleDown: {
		modes: []string{noHook, byProtocol}, replicas: 3, stay: 1, graceSeconds: 30,
		load: []string{"--clients=10", "--min-tokens=10", "--max-tokens=300"},
	},
	// Answers of 10 to 28 s, most of them longer than the grace period.
	deleteMD: {
		modes: []string{noHook, windowOnly, byProtocol}, replicas: 1, stay: 0, graceSeconds: 15,
		load: []string{"--clients=6", "--min-tokens=200", "--max-tokens=560"},
	},
}

// prepareRetirement makes the stage of a scenario in a mode: a ModelDeployment, or
// a Deployment of as many engines. It returns what it made also with an error.
func prepareRetirement(ctx context.Context, c *kube.Cluster, scenario, mode string) (stage, error) {
	r := retirements[scenario]
	labels, objects := map[string]string{}, plainDeployment
	switch mode {
	case windowOnly:
		labels[names.LabelDrain] = names.DrainEnabled
	case byProtocol: // the operator's Pods need not opt in
		objects = retiredModelDeployment
	}
	namespace, err := c.CreateNamespace(ctx, "demo-"+strings.ReplaceAll(scenario+"-"+mode, " ", "-"), labels)
	if err != nil {
		return stage{}, err
	}
	s := stage{
		mode: mode, namespace: namespace, service: "qwen-server", replicas: watchReplicas(ctx, c, namespace),
		own: mode == byProtocol, size: r.replicas, load: r.load,
	}
	if s.own {
		if s.protocol, err = watchProtocol(ctx, c, namespace); err != nil {
			return s, err
		}
	}
	return s, c.Apply(ctx, namespace, strings.NewReplacer(
		"REPLICAS", strconv.Itoa(r.replicas), "GRACE", strconv.Itoa(r.graceSeconds)).Replace(objects))
}

// sendOnce sends each stage one request of each client. A deletion waits for as
// long as there is work, so nobody may send a second one.
func sendOnce(ctx context.Context, c *kube.Cluster, stages []stage) error {
	var group errgroup.Group
	for i := range stages {
		s := &stages[i]
		group.Go(func() (err error) {
			s.stop, err = clients.Once(ctx, c, client.ObjectKey{Namespace: s.namespace, Name: s.service}, s.load...)
			return err
		})
	}
	return group.Wait()
}

// retire takes engines away for good and waits until they are gone.
func (s stage) retire(ctx context.Context, c *kube.Cluster, scenario string) error {
	stay := retirements[scenario].stay
	var command []string
	switch {
	case scenario == deleteMD && s.own:
		command = []string{"delete", "md", "qwen", "--wait=false"}
	case scenario == deleteMD:
		command = []string{"delete", "deployment", "qwen", "--wait=false"}
	case s.own:
		command = []string{"patch", "md", "qwen", "--type=json", fmt.Sprintf(`-p=[{"op":"replace","path":"/spec/roles/0/replicas","value":%d}]`, stay)}
	default:
		command = []string{"scale", "deployment", "qwen", fmt.Sprintf("--replicas=%d", stay)}
	}
	if _, err := c.Kubectl(ctx, append([]string{"--namespace", s.namespace}, command...)...); err != nil {
		return err
	}
	if s.own {
		if done, err := s.ended(ctx, c); err != nil || !done {
			return err
		}
	}
	return s.replicas.number(ctx, stay)
}

// ended waits for the end of the retirement that the present spec asks for, or of
// the ModelDeployment. It tells whether the replicas are gone; if not, they were
// given up and are kept.
func (s stage) ended(ctx context.Context, c *kube.Cluster) (done bool, err error) {
	for {
		md := &v1alpha1.ModelDeployment{}
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "qwen"}, md); err != nil {
			return true, client.IgnoreNotFound(err)
		}
		last := md.Status.LastRetirement
		if last != nil && last.Generation == md.Generation && md.DeletionTimestamp == nil {
			return last.End == v1alpha1.EndCompleted, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for the retirement, which is %+v: %w", md.Status.Retirement, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
