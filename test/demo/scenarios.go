package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/load/clients"
)

// The columns of the picture.
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
	// rows are those of the picture.
	rows = []string{deletion, rollout, ownRollout, nodeDrain}
)

//go:embed engines.yaml
var engines string

//go:embed modeldeployment.yaml
var modelDeployment string

// stage is one mode: a namespace with the engines, and what is seen of them.
type stage struct {
	mode      string
	namespace string
	service   string // that the load goes to
	replicas  *replicas
	// own is set where the engines are replicas of a ModelDeployment.
	own bool
	// stop ends the load and returns its records.
	stop func() ([]load.Request, error)
}

// window is when a scenario was played.
type window struct {
	scenario   string
	began, end time.Time
}

// playAll plays the scenarios one after the other, each in all modes at once. The
// load goes on meanwhile.
func playAll(ctx context.Context, c *kube.Cluster) (runs []Run, err error) {
	node, err := c.Worker(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	stages := make([]stage, len(modes)+1)
	for i := range stages {
		if i < len(modes) {
			stages[i], err = prepare(ctx, c, node, modes[i])
		} else {
			stages[i], err = prepareOwn(ctx, c)
		}
		if err != nil {
			return nil, err
		}
		defer func() {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: stages[i].namespace}}
			err = errors.Join(err, c.Client.Delete(context.WithoutCancel(ctx), namespace))
		}()
	}
	var starting errgroup.Group
	for i := range stages {
		starting.Go(func() error { return stages[i].start(ctx, c) })
	}
	if err := starting.Wait(); err != nil {
		return nil, err
	}
	say("engines ready and busy in %s", elapsed(began))

	// The ModelDeployment's replicas leave one after the other, which takes long, and
	// nobody else waits for them.
	both := make([][]Run, 2)
	group, playing := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		both[0], err = playOn(playing, c, node, scenarios, stages[:len(modes)])
		return err
	})
	group.Go(func() (err error) {
		both[1], err = playOn(playing, c, node, []string{ownRollout}, stages[len(modes):])
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	runs = slices.Concat(both...)
	slices.SortStableFunc(runs, func(a, b Run) int {
		return cmp.Compare(slices.Index(rows, a.Scenario), slices.Index(rows, b.Scenario))
	})
	return runs, nil
}

// start waits for the stage's engines and sends them load until stop is called.
func (s *stage) start(ctx context.Context, c *kube.Cluster) (err error) {
	if err := s.settled(ctx, c); err != nil {
		return err
	}
	service := client.ObjectKey{Namespace: s.namespace, Name: s.service}
	// At 20 tokens per second the longest answer takes 17 s.
	s.stop, err = clients.Start(ctx, c, service, "--clients=10", "--min-tokens=10", "--max-tokens=400")
	return err
}

// playOn plays scenarios on stages, and ends their load after the last.
func playOn(ctx context.Context, c *kube.Cluster, node string, sequence []string, stages []stage) ([]Run, error) {
	var windows []window
	for _, scenario := range sequence {
		var with []string
		for _, s := range stages {
			with = append(with, s.mode)
		}
		say("%s, with %s", scenario, strings.Join(with, ", "))
		w := window{scenario: scenario, began: time.Now()}
		if err := play(ctx, c, node, scenario, stages); err != nil {
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
	var runs []Run
	for _, w := range windows {
		for i, s := range stages {
			runs = append(runs, s.run(w, records[i]))
		}
	}
	return runs, nil
}

// run is what happened in the stage during a window. A request belongs to where it
// ended: it was cut there, if at all.
func (s stage) run(w window, requests []load.Request) Run {
	r := Run{Scenario: w.scenario, Mode: s.mode, Started: w.began}
	for _, q := range requests {
		if q.End.After(w.began) && !q.End.After(w.end) {
			r.Requests = append(r.Requests, q)
		}
	}
	r.Replicas, r.IdleLeave = s.replicas.left(w)
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
	s := stage{mode: mode, namespace: namespace, service: "engine", replicas: watchReplicas(ctx, c, namespace)}
	return s, c.Apply(ctx, namespace, strings.NewReplacer("MODE", lifecycle, "NODE", node).Replace(engines))
}

// prepareOwn applies a ModelDeployment. Its namespace is not opted in: the operator's
// Pods always are.
func prepareOwn(ctx context.Context, c *kube.Cluster) (stage, error) {
	namespace, err := c.CreateNamespace(ctx, "demo-modeldeployment", nil)
	if err != nil {
		return stage{}, err
	}
	s := stage{mode: lastcall, namespace: namespace, service: "qwen-server", replicas: watchReplicas(ctx, c, namespace), own: true}
	return s, c.Apply(ctx, namespace, modelDeployment)
}

// play takes the engines of all stages away and waits for their replacements.
func play(ctx context.Context, c *kube.Cluster, node, scenario string, stages []stage) error {
	select { // some load before it, for the picture
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if scenario == nodeDrain {
		return drain(ctx, c, node, stages)
	}
	var group errgroup.Group
	for _, s := range stages {
		group.Go(func() error { return s.remove(ctx, c, scenario) })
	}
	return group.Wait()
}

// remove takes the stage's engines away and waits for their replacements.
func (s stage) remove(ctx context.Context, c *kube.Cluster, scenario string) (err error) {
	switch scenario {
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
	if !s.own {
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
