// Package install puts lastcall into the cluster under test as a user would:
// images built from this checkout, the chart with the real helm.
package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	routers "github.com/lastcall-dev/lastcall/test/router/bundle"
)

// Release is the name and Namespace the place that the README installs it under.
const (
	Release   = "lastcall"
	Namespace = "lastcall-system"
)

// Images builds the images of lastcall and of the stand-in engine and loads them
// into the cluster.
func Images(ctx context.Context, c *kube.Cluster) error {
	archives, remove, err := Build(ctx, bundle.Variants...)
	if err != nil {
		return err
	}
	defer remove()
	return c.Load(ctx, archives...)
}

// Routers builds the image of the fake routers and loads it into the cluster, under the
// names of all of them.
func Routers(ctx context.Context, c *kube.Cluster) error {
	dir, err := os.MkdirTemp("", "lastcall-routers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	archive, err := routers.Write(ctx, dir, routers.Releases...)
	if err != nil {
		return err
	}
	return c.Load(ctx, archive)
}

// Build builds the images of lastcall and these of the stand-in engine, side by
// side, into a folder that the caller removes. It needs no cluster.
func Build(ctx context.Context, engines ...bundle.Variant) (archives []string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "lastcall-images-")
	if err != nil {
		return nil, nil, err
	}
	var building errgroup.Group
	building.Go(func() (err error) {
		archives, err = bundle.Write(ctx, dir, engines...)
		return err
	})
	building.Go(func() error { return run(ctx, "go", "run", "./hack/images", "-out", dir) })
	if err := building.Wait(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	for _, image := range []string{"webhook", "operator", "retirer"} {
		archives = append(archives, filepath.Join(dir, image+".tar"))
	}
	return archives, func() { _ = os.RemoveAll(dir) }, nil
}

// Check refuses a cluster that is not our own and has lastcall already: a suite
// would take over the release of whoever uses it, and remove it.
func Check(ctx context.Context, c *kube.Cluster) error {
	if c.Own() {
		return nil
	}
	found, err := c.Kubectl(ctx, "get", "crd", "modeldeployments."+names.Group, "--ignore-not-found", "-o", "name")
	if err == nil && strings.TrimSpace(found) != "" {
		err = fmt.Errorf("the cluster of KUBECONFIG has lastcall already (%s): use a cluster that is for tests", strings.TrimSpace(found))
	}
	return err
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

// Uninstall removes the release and waits until it is gone. The CRD stays.
func Uninstall(ctx context.Context, c *kube.Cluster, namespace string) error {
	return Helm(ctx, c, "uninstall", Release, "--namespace", namespace, "--wait", "--timeout=2m")
}

// RemoveCRD removes what an uninstall keeps, with every ModelDeployment.
func RemoveCRD(ctx context.Context, c *kube.Cluster) error {
	_, err := c.Kubectl(ctx, "delete", "crd", "modeldeployments."+names.Group, "--ignore-not-found", "--timeout=30s")
	return err
}

// Helm runs the real helm, at the version that the tools module pins, in the root
// of the checkout.
func Helm(ctx context.Context, c *kube.Cluster, args ...string) error {
	return run(ctx, "go", append([]string{"tool", "-modfile=hack/tools/go.mod", "helm", "--kubeconfig", c.Kubeconfig}, args...)...)
}

// run runs a program in the root of the checkout.
func run(ctx context.Context, name string, args ...string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("finding the checkout: %w", err)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
