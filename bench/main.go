// Command bench takes the figures of bench/README.md, each beside a yardstick
// that is measured in the same minutes:
//
//	go run ./bench
//	go run ./bench -only operator
//
// It runs from the root of the checkout, prints progress on standard error and
// a Markdown table on standard output, and judges nothing. It needs Linux; the
// figures that need a cluster are skipped where none can run, and it says so.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
)

// most bounds each part but those of the retirer for itself: (e) on two cores that
// others use as well. Building programs takes as long as it takes.
const most = 8 * time.Minute

func limit(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("the measurements took more than %s", most))
}

func main() {
	only := flag.String("only", "", "measure this alone: "+strings.Join(partNames(), ", "))
	flag.IntVar(&atOnce, "at-once", 500, "how many owners (h) scales down at once, from 1")
	flag.IntVar(&targets, "targets", 100, "how many owners behind one router (i) scales down at once, from 1")
	flag.StringVar(&onlyRouter, "router", "", "have (i) measure this router alone: "+strings.Join(releaseNames(), ", "))
	flag.Parse()
	if err := bench(*only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A part is what can be measured alone.
type part struct {
	name string
	// build are the arguments of the go commands that make what it runs.
	build   func(dir string) [][]string
	measure func(ctx context.Context, dir string) (figures []figure, notes string, err error)
}

var parts = []part{
	{"code", testBinaries, bounded(measureCode)},
	{"creates", webhooks, measureCluster},
	{"webhook", webhooks, bounded(measureProcesses)},
	{"operator", onKwok("./cmd/webhook", "./cmd/operator"), measureOperator},
	{"retirer", retirerAndSimulation, measureRetirer},
	{"routers", onKwok(retiring...), measureRouters},
}

func partNames() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

// bounded is for what needs no cluster and has nothing to say.
func bounded(measure func(context.Context, string) ([]figure, error)) func(context.Context, string) ([]figure, string, error) {
	return func(ctx context.Context, dir string) ([]figure, string, error) {
		ctx, cancel := limit(ctx, most)
		defer cancel()
		figures, err := measure(ctx, dir)
		return figures, "", err
	}
}

func bench(only string) error {
	if only != "" && !slices.Contains(partNames(), only) {
		return fmt.Errorf("-only=%s: must be one of %s", only, strings.Join(partNames(), ", "))
	}
	if least := min(atOnce, targets); least < 1 {
		return fmt.Errorf("-at-once=%d, -targets=%d: must be 1 or more", atOnce, targets)
	}
	if onlyRouter != "" && !slices.Contains(releaseNames(), onlyRouter) {
		return fmt.Errorf("-router=%s: must be one of %s", onlyRouter, strings.Join(releaseNames(), ", "))
	}
	ctrl.SetLogger(logr.Discard()) // envtest's
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "lastcall-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	chosen := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return only != "" && p.name != only })
	say("building")
	for _, p := range chosen {
		if err := p.make(ctx, dir); err != nil {
			return err
		}
	}
	where := machine(ctx)
	var figures []figure
	var notes []string
	var failed error
	for _, p := range chosen {
		more, said, err := p.measure(ctx, dir)
		figures = append(figures, more...)
		if said != "" {
			notes = append(notes, said)
		}
		if err != nil {
			failed = fmt.Errorf("measuring %s: %w", p.name, err)
			break
		}
	}
	// What was measured before something failed took minutes too.
	fmt.Printf("%s\n\n", where)
	if err := writeTable(os.Stdout, figures); err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Printf("\n%s\n", note)
	}
	return failed
}

// measureCluster takes the figures of (c), or says why it cannot.
func measureCluster(ctx context.Context, dir string) (figures []figure, skipped string, err error) {
	say("(c) bringing a cluster up")
	cluster, closeCluster, err := kube.Open(ctx, os.Stderr)
	if unavailable := (*node.UnavailableError)(nil); errors.As(err, &unavailable) {
		return nil, "(c) was skipped: " + unavailable.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, closeCluster()) }()
	if cluster.HostAddress() == "" {
		return nil, "(c) was skipped: the API server of KUBECONFIG has no known way to webhooks on this machine; unset KUBECONFIG", nil
	}
	limited, cancel := limit(ctx, most)
	defer cancel()
	figures, err = measureCreates(limited, dir, cluster)
	return figures, "", err
}

func testBinaries(dir string) (commands [][]string) {
	for _, pkg := range benchmarked {
		commands = append(commands, testBinary(dir, pkg))
	}
	return commands
}

func testBinary(dir, pkg string) []string {
	return []string{"test", "-trimpath", "-c", "-o", filepath.Join(dir, filepath.Base(pkg)+".test"), "./" + pkg}
}

func webhooks(dir string) [][]string {
	return [][]string{program(dir, "./cmd/webhook", "./bench/noop")}
}

func onKwok(packages ...string) func(dir string) [][]string {
	return func(dir string) [][]string {
		return [][]string{
			program(dir, packages...),
			// kwok has a module of its own: what it needs is not what lastcall needs.
			append([]string{"-C", "hack/kwok"}, program(dir, "sigs.k8s.io/kwok/cmd/kwok")...),
		}
	}
}

// retiring are the programs of a retirement.
var retiring = []string{"./cmd/webhook", "./cmd/operator", "./cmd/retirer", "./bench/python3"}

func retirerAndSimulation(dir string) [][]string {
	return append(onKwok(retiring...)(dir), testBinary(dir, simulated))
}

// program builds with the Makefile's settings.
func program(dir string, packages ...string) []string {
	return append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", dir}, packages...)
}

func (p part) make(ctx context.Context, dir string) error {
	for _, args := range p.build(dir) {
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
