// Command bench takes the figures of bench/README.md, each beside a yardstick
// that is measured in the same minutes:
//
//	go run ./bench
//
// It runs from the root of the checkout, prints progress on standard error and
// a Markdown table on standard output, and judges nothing. It needs Linux; the
// figures that need a cluster are skipped where none can run, and it says so.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
)

// limit bounds the measurements without a cluster, and those with one. Building
// programs takes as long as it takes.
func limit(ctx context.Context) (context.Context, context.CancelFunc) {
	const most = 3 * time.Minute
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("the measurements took more than %s", most))
}

func main() {
	if err := bench(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "lastcall-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	say("building")
	if err := build(ctx, dir); err != nil {
		return err
	}
	where := machine(ctx)
	limited, cancel := limit(ctx)
	defer cancel()
	code, err := measureCode(limited, dir)
	if err != nil {
		return fmt.Errorf("running the Go benchmarks: %w", err)
	}
	memory, err := measureProcesses(limited, dir)
	if err != nil {
		return fmt.Errorf("measuring the webhook's process: %w", err)
	}
	creates, skipped, err := measureCluster(ctx, dir)
	if err != nil {
		return fmt.Errorf("measuring Pod creates: %w", err)
	}
	fmt.Printf("%s\n\n", where)
	if skipped != "" {
		fmt.Printf("(c) was skipped: %s\n\n", skipped)
	}
	return writeTable(os.Stdout, append(append(code, creates...), memory...))
}

// measureCluster takes the figures of (c), or says why it cannot.
func measureCluster(ctx context.Context, dir string) (figures []figure, skipped string, err error) {
	say("(c) bringing a cluster up")
	cluster, closeCluster, err := kube.Open(ctx, os.Stderr)
	if unavailable := (*node.UnavailableError)(nil); errors.As(err, &unavailable) {
		return nil, unavailable.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, closeCluster()) }()
	if cluster.HostAddress() == "" {
		return nil, "the API server of KUBECONFIG has no known way to webhooks on this machine; unset KUBECONFIG", nil
	}
	limited, cancel := limit(ctx)
	defer cancel()
	figures, err = measureCreates(limited, dir, cluster)
	return figures, "", err
}

// build makes the Go benchmarks and both webhooks, with the Makefile's settings.
func build(ctx context.Context, dir string) error {
	commands := [][]string{{"build", "-trimpath", "-ldflags=-s -w", "-o", dir, "./cmd/webhook", "./bench/noop"}}
	for _, pkg := range benchmarked {
		commands = append(commands, []string{"test", "-trimpath", "-c", "-o", filepath.Join(dir, filepath.Base(pkg)+".test"), "./" + pkg})
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
