// Command demo deletes busy engines on a real Kubernetes node in three ways and
// three modes, side by side: without a hook, with the usual fixed sleep, and
// with lastcall. Beside them it rolls a ModelDeployment, and takes replicas away
// for good, by the retirement protocol and without it: fewer replicas, and
// `kubectl delete md`. It prints a table and writes summary.json and timeline.svg.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/install"
)

// limit bounds the whole demo once the programs are built.
const limit = 12 * time.Minute

func main() {
	out := flag.String("out", "out/demo", "the folder for summary.json and timeline.svg")
	flag.Parse()
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demo(ctx, *out)
	stop()
	if unavailable := (*node.UnavailableError)(nil); errors.As(err, &unavailable) && os.Geteuid() != 0 {
		fmt.Println("The demo is skipped:", unavailable)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, out string) (err error) {
	began := time.Now()
	say("bringing a cluster up and building images")
	building := buildImages(ctx)
	defer building.stop()
	cluster, closeCluster, err := kube.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeCluster()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took more than %s", limit))
	defer cancel()

	if err := install.Check(ctx, cluster); err != nil {
		return err
	}
	archives, err := building.wait()
	if err != nil {
		return err
	}
	if err := cluster.Load(ctx, archives...); err != nil {
		return err
	}
	say("installing lastcall into the cluster at %s", cluster.Config.Host)
	if err := install.Chart(ctx, cluster, install.Namespace); err != nil {
		return err
	}
	say("set up in %s", elapsed(began))
	defer func() { err = errors.Join(err, leave(context.WithoutCancel(ctx), cluster)) }()

	runs, err := playAll(ctx, cluster)
	if err != nil {
		return err
	}
	var summaries []Summary
	for _, r := range runs {
		summaries = append(summaries, summarize(r))
	}
	fmt.Println()
	if err := printTable(os.Stdout, summaries); err != nil {
		return err
	}
	if err := write(out, summaries, runs); err != nil {
		return err
	}
	fmt.Printf("\n%s and %s have the rest. All of it took %s.\n", filepath.Join(out, "summary.json"), filepath.Join(out, "timeline.svg"), elapsed(began))
	return kept(runs)
}

// kept is the error of replicas that the protocol gave up. What there is to be seen
// has been written by then.
func kept(runs []Run) error {
	var errs []error
	for _, r := range runs {
		for _, replica := range r.Replicas {
			if replica.Kept != "" {
				errs = append(errs, fmt.Errorf("%s: %s was not proven idle and stayed (%s); is the machine too busy?", r.Scenario, replica.Pod, replica.Kept))
			}
		}
	}
	return errors.Join(errs...)
}

// leave takes lastcall away again from a cluster that outlives the demo.
func leave(ctx context.Context, c *kube.Cluster) error {
	if c.Own() {
		return nil
	}
	return errors.Join(install.Uninstall(ctx, c, install.Namespace), install.RemoveCRD(ctx, c))
}

// images are being built while the cluster comes up.
type images struct {
	stop func()
	wait func() ([]string, error)
}

// buildImages starts to build what the demo runs. Stop gives up and removes what
// was built.
func buildImages(ctx context.Context) images {
	ctx, cancel := context.WithCancel(ctx)
	var archives []string
	var err error
	var remove func()
	done := make(chan struct{})
	go func() {
		defer close(done)
		archives, remove, err = install.Build(ctx, bundle.Full)
	}()
	return images{
		wait: func() ([]string, error) {
			<-done
			return archives, err
		},
		stop: func() {
			cancel()
			<-done
			if err == nil {
				remove()
			}
		},
	}
}

func write(dir string, summaries []Summary, runs []Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	summary, err := os.Create(filepath.Join(dir, "summary.json"))
	if err != nil {
		return err
	}
	err = errors.Join(writeSummaries(summary, summaries), summary.Close())
	timeline, createErr := os.Create(filepath.Join(dir, "timeline.svg"))
	if createErr != nil {
		return errors.Join(err, createErr)
	}
	return errors.Join(err, writeTimeline(timeline, rows, columns, runs), timeline.Close())
}

// elapsed is the time since a moment in whole seconds.
func elapsed(since time.Time) time.Duration { return time.Since(since).Round(time.Second) }

func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
