package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// simulated is the package with the retirement protocol and its simulation.
const simulated = "internal/retire"

// measureSimulation takes the figure of (f): both benchmarks take turns in one
// process.
func measureSimulation(ctx context.Context, dir string) ([]figure, error) {
	say("(f) simulation, %d rounds", codeRounds)
	cmd := exec.CommandContext(ctx, filepath.Join(dir, filepath.Base(simulated)+".test"),
		"-test.run=^$", "-test.bench=^Benchmark(Simulation|Worlds)$", "-test.benchtime=2s", "-test.count="+strconv.Itoa(codeRounds))
	cmd.Dir = simulated
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", simulated, err, out)
	}
	rates := parseSteps(string(out))
	protocol, worlds := rates["BenchmarkSimulation"], rates["BenchmarkWorlds"]
	if len(protocol) != codeRounds || len(worlds) != codeRounds {
		return nil, fmt.Errorf("%s: the benchmarks do not tell their steps:\n%s", simulated, out)
	}
	return []figure{{
		"(f) simulation, steps of one process", percentile(protocol, 0.5), percentile(worlds, 0.5), perSecond,
		"worlds and observations alone",
	}}, nil
}

var stepsLine = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s.*?\s([\d.e+]+) steps/s`)

// parseSteps reads the steps a second that a test binary prints, in the order of
// the rounds.
func parseSteps(out string) map[string][]float64 {
	rates := map[string][]float64{}
	for _, m := range stepsLine.FindAllStringSubmatch(out, -1) {
		rate, _ := strconv.ParseFloat(m[2], 64) // what is no number is 0, and shows
		rates[m[1]] = append(rates[m[1]], rate)
	}
	return rates
}
