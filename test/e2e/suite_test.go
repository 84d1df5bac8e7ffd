package e2e

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/install"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // it complains of nobody who listens
	os.Exit(kubetest.Run(m, leave))
}

// leave takes lastcall away again from a cluster that outlives the suite.
func leave() error {
	ctx := context.Background()
	if connected == nil || connected.Own() {
		return nil
	}
	return errors.Join(install.Uninstall(ctx, connected, install.Namespace), install.RemoveCRD(ctx, connected))
}

var connected *kube.Cluster

// webhookName is that of the webhook's Service and of its configurations.
const webhookName = install.Release + "-webhook"

var (
	images = sync.OnceValue(func() error {
		return errors.Join(install.Check(context.Background(), connected), install.Images(context.Background(), connected))
	})
	installed = sync.OnceValue(func() error {
		inUse = true
		return upgrade(context.Background(), connected)
	})
	// inUse is whether a test relies on lastcall being installed.
	inUse bool
)

// upgrade installs lastcall for the suite, or again with other values.
func upgrade(ctx context.Context, c *kube.Cluster, values ...string) error {
	// A test that taints the node means its engines, not lastcall.
	values = append(values, "webhook.tolerations[0].operator=Exists", "operator.tolerations[0].operator=Exists", "retirer.tolerations[0].operator=Exists")
	return install.Chart(ctx, c, install.Namespace, values...)
}

// loaded connects to the cluster and makes every image known to it.
func loaded(t *testing.T) *kube.Cluster {
	t.Helper()
	connected = kubetest.Connect(t)
	require.NoError(t, images())
	return connected
}

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
