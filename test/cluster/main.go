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

const usage = `usage: go run ./test/cluster [--name NAME] COMMAND

  up                 bring a one-node Kubernetes up on this machine
  down               take it down, leaving nothing behind
  kubeconfig         print the path of its kubeconfig
  load IMAGE.tar...  import image archives
  binaries [NAME...] build or download the programs, all by default, and print their folder

`

func main() {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage) //nolint:errcheck // nobody to tell
		flags.PrintDefaults()
	}
	name := flags.String("name", node.DefaultName, "the cluster's name; several can run side by side")
	parse := func(args []string) {
		if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		} else if err != nil {
			os.Exit(2)
		}
	}
	parse(os.Args[1:])
	if flags.NArg() == 0 {
		flags.Usage()
		os.Exit(2)
	}
	command := flags.Arg(0)
	parse(flags.Args()[1:]) // flags may come after the command too
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *name, command, flags.Args())
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "cluster: %v\n", err) //nolint:errcheck // nobody to tell
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}

var errUsage = errors.New("see --help")

func run(ctx context.Context, name, command string, args []string) error {
	takesArguments := command == "load" || command == "binaries"
	if len(args) > 0 && !takesArguments {
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
	case "load":
		if len(args) == 0 {
			return fmt.Errorf("load wants at least one image archive: %w", errUsage)
		}
		cluster, err := node.Find(ctx, name)
		if err != nil {
			return err
		}
		return cluster.Load(ctx, args...)
	case "binaries":
		if len(args) == 0 {
			args = binaries.All()
		}
		dir, err := binaries.Provide(ctx, os.Stderr, args...)
		if err != nil {
			return err
		}
		fmt.Println(dir)
		return nil
	}
	return fmt.Errorf("unknown command %q: %w", command, errUsage)
}
