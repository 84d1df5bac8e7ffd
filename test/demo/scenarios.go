package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/load/clients"
)

// How engines are taken away and replaced.
const (
	noHook   = "no hook"
	sleep15  = "sleep 15"
	lastcall = "lastcall"
)

// The scenarios, and the one that is played beside them.
const (
	deletion  = "delete"
	rollout   = "rollout"
	nodeDrain = "node drain"

	ownRollout = "ModelDeployment rollout"
)

var (
	modes     = []string{noHook, sleep15, lastcall}
	scenarios = []string{deletion, rollout, nodeDrain}
	// rows and columns are those of the picture.
	rows    = []string{deletion, rollout, ownRollout, nodeDrain, scaleDown, deleteMD}
	columns = [][]string{{noHook}, {sleep15, windowOnly}, {lastcall, byProtocol}}
)

//go:embed engines.yaml
var engines string

//go:embed modeldeployment.yaml
var modelDeployment string

// streaming is the load of the stages whose engines are replaced. At 20 tokens per
// second the longest answer takes 17 s.
var streaming = []string{"--clients=10", "--min-tokens=10", "--max-tokens=400"}

// stage is one mode: a namespace with the engines, and what is seen of them.
type stage struct {
	mode      string
	namespace string
	service   string // that the load goes to
	replicas  *replicas
	// own is set where the engines are replicas of a ModelDeployment.
	own bool
	// size is how many engines there are where they are all alike.
	size int
	load []string // what the clients are told
	// protocol is set where replicas of a ModelDeployment go for good.
	protocol *protocol
	// stop ends the load and returns its records.
	stop func() ([]load.Request, error)
}

// window is when a scenario was played, and when the removal was asked for.
type window struct {
	scenario          string
	began, asked, end time.Time
}

// start waits for the stage's engines and, unless that is left for later, sends
// them load until stop is called.
func (s *stage) start(ctx context.Context, c *kube.Cluster, later bool) (err error) {
	if err := s.settled(ctx, c); err != nil || later {
		return err
	}
	s.stop, err = clients.Start(ctx, c, client.ObjectKey{Namespace: s.namespace, Name: s.service}, s.load...)
	return err
}

// run is what happened in the stage during a window. A request belongs to where it
// ended: it was cut there, if at all.
func (s stage) run(w window, requests []load.Request) Run {
	r := Run{Scenario: w.scenario, Mode: s.mode, Started: w.began, Asked: w.asked}
	for _, q := range requests {
		if q.End.After(w.began) && !q.End.After(w.end) {
			r.Requests = append(r.Requests, q)
		}
	}
	r.Replicas, r.IdleLeave = s.replicas.left(w)
	if s.protocol != nil {
		r.Replicas = append(r.Replicas, s.protocol.kept()...)
		for i := range r.Replicas {
			r.Replicas[i].States = s.protocol.of(r.Replicas[i].Pod)
		}
	}
	return r
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
	s := stage{mode: mode, namespace: namespace, service: "engine", replicas: watchReplicas(ctx, c, namespace), load: streaming}
	return s, c.Apply(ctx, namespace, strings.NewReplacer("MODE", lifecycle, "NODE", node).Replace(engines))
}

// prepareOwn applies a ModelDeployment. Its namespace is not opted in: the operator's
// Pods always are.
func prepareOwn(ctx context.Context, c *kube.Cluster) (stage, error) {
	namespace, err := c.CreateNamespace(ctx, "demo-modeldeployment", nil)
	if err != nil {
		return stage{}, err
	}
	s := stage{mode: lastcall, namespace: namespace, service: "qwen-server", replicas: watchReplicas(ctx, c, namespace), own: true, load: streaming}
	return s, c.Apply(ctx, namespace, modelDeployment)
}

// play takes engines of all stages away and waits for their replacements, if there
// are to be any. It returns when it began to.
func play(ctx context.Context, c *kube.Cluster, node, scenario string, stages []stage) (asked time.Time, err error) {
	if scenario == deleteMD {
		if err := sendOnce(ctx, c, stages); err != nil {
			return asked, err
		}
	}
	select { // some load before it, for the picture
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return asked, context.Cause(ctx)
	}
	asked = time.Now()
	if scenario == nodeDrain {
		return asked, drain(ctx, c, node, stages)
	}
	var group errgroup.Group
	for _, s := range stages {
		group.Go(func() error { return s.remove(ctx, c, scenario) })
	}
	return asked, group.Wait()
}

// remove takes the stage's engines away and waits for their replacements, if there
// are to be any.
func (s stage) remove(ctx context.Context, c *kube.Cluster, scenario string) (err error) {
	switch scenario {
	case scaleDown, deleteMD:
		return s.retire(ctx, c, scenario)
	case rollout:
		err = s.restart(ctx, c)
	case ownRollout: // another grace period, in each role
		_, err = c.Kubectl(ctx, "patch", "md", "-n", s.namespace, "qwen", "--type=json",
			`-p=[{"op":"add","path":"/spec/roles/0/terminationGracePeriodSeconds","value":45},`+
				`{"op":"add","path":"/spec/roles/1/terminationGracePeriodSeconds","value":45}]`)
	default:
		err = s.deleteEach(ctx, c)
	}
	if err != nil {
		return err
	}
	return s.settled(ctx, c)
}

// restart rolls all Deployments at once.
func (s stage) restart(ctx context.Context, c *kube.Cluster) error {
	if _, err := c.Kubectl(ctx, "rollout", "restart", "-n", s.namespace, "deployment", "--selector=demo=removal"); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "rollout", "status", "-n", s.namespace, "deployment", "--selector=demo=removal", "--timeout=2m")
	return err
}

// deleteEach deletes one engine after the other, each once the last one's
// replacement is ready.
func (s stage) deleteEach(ctx context.Context, c *kube.Cluster) error {
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
	return nil
}

// settled waits until nothing is leaving and every engine is there.
func (s stage) settled(ctx context.Context, c *kube.Cluster) error {
	switch {
	case s.own:
	case s.size > 0:
		return s.replicas.number(ctx, s.size)
	default:
		return s.replicas.settled(ctx)
	}
	md := &v1alpha1.ModelDeployment{}
	for {
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "qwen"}, md); err != nil {
			return err
		}
		progressing := meta.FindStatusCondition(md.Status.Conditions, names.ConditionProgressing)
		if md.Status.ObservedGeneration == md.Generation && md.Status.Phase == v1alpha1.PhaseReady &&
			progressing != nil && progressing.Reason == names.ReasonUpToDate {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the ModelDeployment, which is %s: %w", md.Status.Phase, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
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
		if err := s.settled(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
