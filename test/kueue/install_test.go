package kueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/install"
)

// program is Kueue's, of the module whose version hack/kueue pins, and image what it is packed into.
const (
	module    = "sigs.k8s.io/kueue"
	program   = module + "/cmd/kueue"
	image     = "lastcall.dev/test-kueue:dev"
	release   = "kueue"
	namespace = "kueue-system"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // it complains of nobody who listens
	os.Exit(kubetest.Run(m, leave))
}

var connected *kube.Cluster

// leave takes both away again from a cluster that outlives the suite.
func leave() error {
	ctx := context.Background()
	if connected == nil || connected.Own() {
		return nil
	}
	return errors.Join(
		install.Uninstall(ctx, connected, install.Namespace), install.RemoveCRD(ctx, connected),
		install.Helm(ctx, connected, "uninstall", release, "--namespace", namespace, "--wait", "--timeout=2m"),
	)
}

// cluster is where lastcall and Kueue are installed.
func cluster(t *testing.T) *kube.Cluster {
	t.Helper()
	connected = kubetest.Connect(t)
	require.NoError(t, installed())
	return connected
}

var installed = sync.OnceValue(func() error {
	ctx := context.Background()
	if err := install.Check(ctx, connected); err != nil {
		return err
	}
	archives, remove, err := install.Build(ctx, bundle.Full)
	if err != nil {
		return err
	}
	defer remove()
	dir, err := os.MkdirTemp("", "kueue-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	kueue, chart, err := build(ctx, dir)
	if err != nil {
		return err
	}
	if err := connected.Load(ctx, append(archives, kueue)...); err != nil {
		return err
	}
	// Its webhook is asked about every Pod from then on, so lastcall is there before.
	if err := install.Chart(ctx, connected, install.Namespace); err != nil {
		return err
	}
	return install.Helm(ctx, connected, "upgrade", "--install", release, chart, "--values", "test/kueue/values.yaml",
		"--namespace", namespace, "--create-namespace", "--wait", "--timeout=3m")
})

// build compiles Kueue and packs it into an archive in dir; chart is the folder of its chart.
func build(ctx context.Context, dir string) (archive, chart string, err error) {
	if _, err := tool(ctx, "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "manager"), program); err != nil {
		return "", "", err
	}
	source, err := tool(ctx, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", "", err
	}
	built, err := ociimage.Build(ociimage.Spec{
		Files: []ociimage.File{{Path: "/manager", Source: filepath.Join(dir, "manager"), Mode: 0o755}}, Entrypoint: []string{"/manager"}, User: "65532:65532",
	})
	if err != nil {
		return "", "", err
	}
	archive = filepath.Join(dir, "kueue.tar")
	return archive, filepath.Join(source, "charts", "kueue"), ociimage.WriteTar(archive, image, built)
}

// tool runs the go command in the module that pins Kueue: what it needs is not what lastcall needs.
func tool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = "../../hack/kueue"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return strings.TrimSpace(string(out)), nil
}
