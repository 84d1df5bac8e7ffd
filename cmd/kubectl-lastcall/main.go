// Command kubectl-lastcall is the kubectl plugin: kubectl lastcall.
package main

import (
	"os"

	"github.com/lastcall-dev/lastcall/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
