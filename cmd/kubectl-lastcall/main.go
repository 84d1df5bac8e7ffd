// Command kubectl-lastcall is the kubectl plugin: kubectl lastcall.
package main

import (
	"os"

	"github.com/go-logr/logr"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the ways to log in that kubectl has
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/internal/cli"
)

func main() {
	log.SetLogger(logr.Discard()) // without one, a slow cluster gets a complaint and a stack trace
	os.Exit(cli.Run(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
