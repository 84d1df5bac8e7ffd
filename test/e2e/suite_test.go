package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
)

func TestMain(m *testing.M) {
	code := kubetest.Run(m)
	os.Exit(code)
}

// releaseNamespace is where the suite installs lastcall.
const releaseNamespace = "lastcall-system"

// images holds the archives of every image the suite runs, made and loaded once.
var images = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "lastcall-e2e-images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	archives, err := bundle.Write(context.Background(), dir)
	if err != nil {
		return err
	}
	if err := run("go", "run", "../../hack/images", "-out", dir); err != nil {
		return err
	}
	return connected.Load(context.Background(), append(archives, dir+"/webhook.tar")...)
})

var connected *kube.Cluster

// loaded connects to the cluster and loads the images.
func loaded(t *testing.T) *kube.Cluster {
	t.Helper()
	connected = kubetest.Connect(t)
	require.NoError(t, images())
	return connected
}

var installed = sync.OnceValue(func() error {
	return helm(connected, "upgrade", "--install", "lastcall", "../../charts/lastcall",
		"--namespace", releaseNamespace, "--create-namespace", "--wait", "--timeout", "2m", "--set", "certificates.mode=self-signed")
})

// cluster is where lastcall is installed and every image is loaded. Tests that
// call it run in parallel, after those that install lastcall themselves.
func cluster(t *testing.T) *kube.Cluster {
	t.Helper()
	t.Parallel()
	c := loaded(t)
	require.NoError(t, installed())
	return c
}

// optedIn is a namespace whose Pods get the drain window.
func optedIn(t *testing.T, c *kube.Cluster) string {
	t.Helper()
	return kubetest.Namespace(t, c, map[string]string{names.LabelDrain: names.DrainEnabled})
}

// helm runs the real helm, at the version that the tools module pins.
func helm(c *kube.Cluster, args ...string) error {
	return run("go", append([]string{"tool", "-modfile=../../hack/tools/go.mod", "helm", "--kubeconfig", c.Kubeconfig}, args...)...)
}

func run(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err), errors.New(string(out)))
	}
	return nil
}
