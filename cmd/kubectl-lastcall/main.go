// Command kubectl-lastcall is the kubectl plugin: kubectl lastcall.
package main

import (
	"os"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to log in that kubectl has

	"github.com/lastcall-dev/lastcall/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
