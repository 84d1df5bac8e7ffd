// Command loadgen sends streaming requests and prints one JSON record a line,
// as each ends. After SIGTERM no request starts, and those in flight go on to
// their end.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/test/load"
)

func main() {
	var o load.Options
	flag.StringVar(&o.URL, "url", "", "the engine or its Service, without a path")
	flag.StringVar(&o.Model, "model", "Qwen/Qwen2.5-7B-Instruct", "as the engine calls it")
	flag.IntVar(&o.Clients, "clients", 4, "requests in flight at once")
	flag.DurationVar(&o.For, "for", 30*time.Second, "no request starts later than this")
	flag.IntVar(&o.MinTokens, "min-tokens", 10, "the shortest answer")
	flag.IntVar(&o.MaxTokens, "max-tokens", 160, "the longest answer")
	flag.Float64Var(&o.TokensPerSecond, "tokens-per-second", 20, "of each answer")
	flag.DurationVar(&o.Pause, "pause", 200*time.Millisecond, "waited after a refusal")
	flag.DurationVar(&o.Think, "think", 0, "waited after an answer")
	flag.BoolVar(&o.KeepAlive, "keep-alive", false, "reuse connections")
	flag.Uint64Var(&o.Seed, "seed", 1, "of the answers' lengths")
	flag.Parse()
	if o.URL == "" || o.Clients < 1 || o.MinTokens < 1 || o.MaxTokens < o.MinTokens {
		log.Fatalf("usage: --url http://SERVICE:PORT, --clients 1 or more, 1 <= --min-tokens <= --max-tokens")
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	records := json.NewEncoder(os.Stdout)
	load.Run(ctx, o, func(r load.Request) {
		if err := records.Encode(r); err != nil {
			log.Fatalf("writing a record: %v", err)
		}
	})
}
