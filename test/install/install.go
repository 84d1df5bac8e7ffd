// Package install puts lastcall into the cluster under test as a user would:
// images built from this checkout, the chart with the real helm.
package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
)

// Release is the name and Namespace the place that the README installs it under.
const (
	Release   = "lastcall"
	Namespace = "lastcall-system"
)

// Images builds the images of lastcall and of the stand-in engine and loads them
// into the cluster.
func Images(ctx context.Context, c *kube.Cluster) error {
	dir, err := os.MkdirTemp("", "lastcall-images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archives, err := bundle.Write(ctx, dir)
	if err != nil {
		return err
	}
	if err := run(ctx, "go", "run", "./hack/images", "-out", dir); err != nil {
		return err
	}
	return c.Load(ctx, append(archives, filepath.Join(dir, "webhook.tar"))...)
}

// Chart installs or upgrades the chart and waits until it is ready. The values
// are those of helm's --set.
func Chart(ctx context.Context, c *kube.Cluster, namespace string, values ...string) error {
	args := []string{"upgrade", "--install", Release, "charts/lastcall", "--namespace", namespace, "--create-namespace", "--wait", "--timeout=2m"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return Helm(ctx, c, args...)
}

// Uninstall removes the release and waits until it is gone.
func Uninstall(ctx context.Context, c *kube.Cluster, namespace string) error {
	return Helm(ctx, c, "uninstall", Release, "--namespace", namespace, "--wait", "--timeout=2m")
}

// Helm runs the real helm, at the version that the tools module pins, in the root
// of the checkout.
func Helm(ctx context.Context, c *kube.Cluster, args ...string) error {
	return run(ctx, "go", append([]string{"tool", "-modfile=hack/tools/go.mod", "helm", "--kubeconfig", c.Kubeconfig}, args...)...)
}

func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// root is the checkout that this file was compiled from.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}
