package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// The packages whose Go benchmarks are run, and how often: the rounds take turns,
// so that a busy second does not fall on one side alone.
var benchmarked = []string{"internal/admission", "internal/engine"}

const codeRounds = 5

// A cost is what one iteration of a benchmark takes.
type cost struct{ seconds, bytes, allocations float64 }

// measureCode takes the figures of (a) and (b).
func measureCode(ctx context.Context, dir string) ([]figure, error) {
	say("(a) and (b) Go benchmarks, %d rounds", codeRounds)
	samples := map[string][]cost{}
	for range codeRounds {
		for _, pkg := range benchmarked {
			cmd := exec.CommandContext(ctx, filepath.Join(dir, filepath.Base(pkg)+".test"),
				"-test.run=^$", "-test.bench=.", "-test.benchmem", "-test.benchtime=500ms")
			cmd.Dir = pkg
			out, err := cmd.CombinedOutput()
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", pkg, err, out)
			}
			for name, c := range parseBenchmarks(string(out)) {
				samples[name] = append(samples[name], c)
			}
		}
	}
	handler, err := compare(samples, "(a) mutating handler, 12 KB Pod", "BenchmarkPods/lastcall", "BenchmarkPods/yardstick", "no-op typed Defaulter")
	if err != nil {
		return nil, err
	}
	reading, err := compare(samples, "(b) Reading of a 300 KB body", "BenchmarkRead", "BenchmarkExpfmt", "expfmt parse of the body")
	return append(handler, reading...), err
}

var benchmarkLine = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op.*?\s(\d+) B/op\s+(\d+) allocs/op`)

// parseBenchmarks reads what a test binary prints with -test.benchmem.
func parseBenchmarks(out string) map[string]cost {
	costs := map[string]cost{}
	for _, m := range benchmarkLine.FindAllStringSubmatch(out, -1) {
		number := func(i int) float64 {
			n, _ := strconv.ParseFloat(m[i], 64) // the expression lets nothing else through
			return n
		}
		costs[m[1]] = cost{seconds: number(2) / 1e9, bytes: number(3), allocations: number(4)}
	}
	return costs
}

// compare makes the figures of two benchmarks from the medians of their rounds.
func compare(samples map[string][]cost, what, lastcall, yardstick, beside string) ([]figure, error) {
	for _, name := range []string{lastcall, yardstick} {
		if len(samples[name]) == 0 {
			return nil, fmt.Errorf("no benchmark is called %s", name)
		}
	}
	row := func(name string, of func(cost) float64, unit func(float64) string) figure {
		median := func(costs []cost) float64 {
			values := make([]float64, len(costs))
			for i, c := range costs {
				values[i] = of(c)
			}
			return percentile(values, 0.5)
		}
		return figure{what + ", " + name, median(samples[lastcall]), median(samples[yardstick]), unit, beside}
	}
	return []figure{
		row("time", func(c cost) float64 { return c.seconds }, seconds),
		row("memory allocated", func(c cost) float64 { return c.bytes }, kibibytes),
		row("allocations", func(c cost) float64 { return c.allocations }, count),
	}, nil
}
