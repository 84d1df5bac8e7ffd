// Command image writes the fake routers' container image as a tar, for "ctr images
// import", "docker load" or "kind load image-archive".
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/lastcall-dev/lastcall/test/router/bundle"
)

func main() {
	out := flag.String("o", "out/images", "the folder to write the tar to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	file, err := bundle.Write(ctx, *out, bundle.Releases...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(file)
}
