package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
)

const usage = `usage: go run ./test/cluster COMMAND [--name NAME]

  up                 bring a one-node Kubernetes up on this machine
  down               take it down, leaving nothing behind
  kubeconfig         print the path of its kubeconfig
  load IMAGE.tar...  import image archives
  binaries [NAME...] download or build the named programs and print their folder; without names,
                     all that "up" needs, or none where it cannot run

`

func main() { os.Exit(exitCode(os.Args[1:])) }

func exitCode(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	name, command, args, err := parse(args)
	if err == nil {
		err = run(ctx, name, command, args)
	}
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
	if errors.Is(err, errUsage) {
		return 2
	}
	return 1
}

var errUsage = errors.New("see --help")

// parse takes flags before the command and after it.
func parse(args []string) (name, command string, rest []string, err error) {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&name, "name", node.DefaultName, "the cluster's name; several can run side by side")
	if err := flags.Parse(args); err != nil {
		return "", "", nil, fmt.Errorf("%w: %w", err, errUsage)
	}
	if flags.NArg() == 0 {
		return "", "", nil, fmt.Errorf("no command: %w", errUsage)
	}
	command = flags.Arg(0)
	if err := flags.Parse(flags.Args()[1:]); err != nil {
		return "", "", nil, fmt.Errorf("%w: %w", err, errUsage)
	}
	return name, command, flags.Args(), nil
}

func run(ctx context.Context, name, command string, args []string) error {
	switch command {
	case "load":
		return load(ctx, name, args)
	case "binaries":
		return provide(ctx, args)
	}
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, not %q: %w", command, args[0], errUsage)
	}
	switch command {
	case "up":
		cluster, err := node.Up(ctx, name, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Printf("export KUBECONFIG=%s\n", cluster.Kubeconfig())
		return nil
	case "down":
		return node.Down(ctx, name)
	case "kubeconfig":
		cluster, err := node.Find(ctx, name)
		if err != nil {
			return err
		}
		fmt.Println(cluster.Kubeconfig())
		return nil
	}
	return fmt.Errorf("unknown command %q: %w", command, errUsage)
}

func load(ctx context.Context, name string, archives []string) error {
	if len(archives) == 0 {
		return fmt.Errorf("load wants at least one image archive: %w", errUsage)
	}
	cluster, err := node.Find(ctx, name)
	if err != nil {
		return err
	}
	return cluster.Load(ctx, archives...)
}

func provide(ctx context.Context, names []string) error {
	if len(names) == 0 {
		if err := node.Requirements(); err != nil {
			fmt.Fprintf(os.Stderr, "no program is needed: %v\n", err)
			return nil
		}
		names = binaries.All()
	}
	dir, err := binaries.Provide(ctx, os.Stderr, names...)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}
