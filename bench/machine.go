package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine says where and when figures were taken, and how busy it was there.
func machine(ctx context.Context) string {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	_, model, _ := strings.Cut(string(info), "model name")
	model, _, _ = strings.Cut(model, "\n")
	return fmt.Sprintf("%s, commit %s, %s, %d cores of %s, load %s at the start.",
		time.Now().UTC().Format("2 January 2006 15:04 UTC"), strings.TrimSpace(string(commit)),
		runtime.Version(), runtime.NumCPU(), strings.Trim(model, "\t :"), loadAverage())
}

// loadAverage is how many threads wanted to run in the last minute.
func loadAverage() string {
	load, _ := os.ReadFile("/proc/loadavg")
	busy, _, _ := strings.Cut(string(load), " ")
	return busy
}
