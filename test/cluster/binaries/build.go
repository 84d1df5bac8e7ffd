package binaries

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// source is the Go module that pins the programs.
type source struct {
	dir              string
	kubernetes, etcd string // versions such as v1.37.2
}

const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// findSource looks for hack/kubernetes from the working directory upwards, and reads the versions there.
func findSource(ctx context.Context) (source, error) {
	dir, err := os.Getwd()
	if err != nil {
		return source{}, err
	}
	for {
		module := filepath.Join(dir, "hack", "kubernetes")
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return readSource(ctx, module)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return source{}, errors.New("hack/kubernetes/go.mod is not in this folder or above it: run this inside the repository")
		}
		dir = parent
	}
}

func readSource(ctx context.Context, dir string) (source, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "edit", "-json")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return source{}, fmt.Errorf("reading %s/go.mod: %w", dir, err)
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return source{}, fmt.Errorf("reading %s/go.mod: %w", dir, err)
	}
	found := source{dir: dir}
	for _, require := range mod.Require {
		switch require.Path {
		case kubernetesModule:
			found.kubernetes = require.Version
		case etcdModule:
			found.etcd = require.Version
		}
	}
	if found.kubernetes == "" || found.etcd == "" {
		return source{}, fmt.Errorf("%s/go.mod does not require both %s and %s", dir, kubernetesModule, etcdModule)
	}
	return found, nil
}

// build compiles a program, saying every 15 seconds that it still does.
func (g *getter) build(ctx context.Context, name, path string) error {
	pkg, flags := etcdModule, "-s -w"
	if name != Etcd {
		pkg = kubernetesModule + "/cmd/" + name
		// kubectl version and the version checks of Helm charts read these.
		major, minor, _ := strings.Cut(strings.TrimPrefix(g.source.kubernetes, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		const version = " -X k8s.io/component-base/version."
		flags += version + "gitVersion=" + g.source.kubernetes + version + "gitMajor=" + major + version + "gitMinor=" + minor
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags="+flags, "-o", path, pkg)
	cmd.Dir = g.source.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	started := time.Now()
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("building %s: %w\n%s", pkg, err, output.String())
			}
			g.say("built in %s", time.Since(started).Round(time.Second))
			return nil
		case <-tick.C:
			g.say("building, %s so far", time.Since(started).Round(time.Second))
		}
	}
}
