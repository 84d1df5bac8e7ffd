// Command demo deletes busy engines on a real Kubernetes node in three ways and
// three modes, side by side: without a hook, with the usual fixed sleep, and
// with lastcall. It prints a table and writes summary.json and timeline.svg.
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

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
	"github.com/lastcall-dev/lastcall/test/install"
)

// limit bounds the whole demo once the programs are built.
const limit = 12 * time.Minute

func main() {
	out := flag.String("out", "out/demo", "the folder for summary.json and timeline.svg")
	flag.Parse()
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
	say("bringing a cluster up")
	cluster, closeCluster, err := kube.Open(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeCluster()) }()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo took more than %s", limit))
	defer cancel()

	say("building images and installing lastcall into the cluster at %s", cluster.Config.Host)
	if err := install.Check(ctx, cluster); err != nil {
		return err
	}
	if err := install.Images(ctx, cluster); err != nil {
		return err
	}
	if err := install.Chart(ctx, cluster, install.Namespace); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, install.Uninstall(context.WithoutCancel(ctx), cluster, install.Namespace))
	}()

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
	fmt.Printf("\n%s and %s have the rest.\n", filepath.Join(out, "summary.json"), filepath.Join(out, "timeline.svg"))
	return nil
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
	return errors.Join(err, writeTimeline(timeline, scenarios, modes, runs), timeline.Close())
}

func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
