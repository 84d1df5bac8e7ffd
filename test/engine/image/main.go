// Command image writes the stand-in engine's container images as tars, for
// "ctr images import", "docker load" or "kind load image-archive".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/lastcall-dev/lastcall/test/engine/bundle"
)

func main() {
	out := flag.String("o", "out/images", "the folder to write the tars to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	files, err := bundle.Write(ctx, *out, bundle.Variants...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	for _, file := range files {
		fmt.Println(file)
	}
}
