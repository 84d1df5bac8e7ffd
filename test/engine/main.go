// Command engine is a stand-in inference engine; see package standin. In its
// image it is called vllm.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/lastcall-dev/lastcall/test/engine/standin"
)

func main() {
	options, err := standin.Parse(os.Args, os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(2)
	}
	options.Output = os.Stdout
	engine, err := standin.New(options)
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
		os.Exit(2)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for range signals {
			engine.Terminate()
		}
	}()
	code, err := engine.Run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "engine:", err)
	}
	os.Exit(code)
}
