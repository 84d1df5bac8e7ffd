package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
)

// Cluster is a connection to a Kubernetes cluster, as its administrator.
type Cluster struct {
	// Kubeconfig is a file for kubectl and helm.
	Kubeconfig string
	Config     *rest.Config
	Client     client.WithWatch
	Clientset  kubernetes.Interface

	own *node.Cluster // nil when it is somebody else's
}

// BusyboxImage is a client's image: busybox with all its commands. Clusters of our own have it.
const BusyboxImage = node.BusyboxImage

// Open connects to the cluster that KUBECONFIG names. Without KUBECONFIG it brings one up on this machine, or uses the
// one that `go run ./test/cluster up` left running; close takes down what Open brought up. Where no cluster can run
// the error is a *node.UnavailableError.
func Open(ctx context.Context, progress io.Writer) (c *Cluster, close func() error, err error) {
	path := os.Getenv("KUBECONFIG")
	name, isOwn := node.NameOf(path) // someone exported what `up` printed
	if path != "" && !isOwn {
		c, err := Connect(ctx, path)
		if err != nil {
			return nil, nil, fmt.Errorf("the cluster of KUBECONFIG=%s (unset it to use one on this machine): %w", path, err)
		}
		return c, func() error { return nil }, nil
	}
	own, release, err := node.Use(ctx, cmp.Or(name, node.DefaultName), progress)
	if err != nil {
		return nil, nil, err
	}
	c, err = Connect(ctx, own.Kubeconfig())
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to cluster %s: %w", own.Name(), err)
	}
	c.own = own
	return c, release, nil
}

// Connect connects to the cluster of a kubeconfig, or of a list of them as KUBECONFIG may be.
func Connect(ctx context.Context, kubeconfig string) (*Cluster, error) {
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(kubeconfig)}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // a test measures the cluster, not its own client's patience
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c := &Cluster{Kubeconfig: kubeconfig, Config: config}
	if c.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := c.Clientset.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return c, err
}

// Load makes image archives available to Pods. On a cluster that is not ours it runs the command in
// LASTCALL_LOAD_COMMAND with the archive as its last argument.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	if c.own != nil {
		return c.own.Load(ctx, archives...)
	}
	command := strings.Fields(os.Getenv("LASTCALL_LOAD_COMMAND"))
	if len(command) == 0 {
		return fmt.Errorf("loading %s into the cluster of KUBECONFIG: set LASTCALL_LOAD_COMMAND to what does that, "+
			"such as \"kind load image-archive\", \"k3d image import\" or \"minikube image load\"", strings.Join(archives, ", "))
	}
	for _, archive := range archives {
		cmd := exec.CommandContext(ctx, command[0], append(command[1:], archive)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("loading image %s with %s: %w\n%s", archive, command[0], err, out)
		}
	}
	return nil
}

// HostAddress is where Pods and the API server reach a server on this machine; "" on a cluster that is not ours.
func (c *Cluster) HostAddress() string {
	if c.own == nil {
		return ""
	}
	return c.own.HostAddress()
}

// Kubectl runs the real kubectl and returns what it printed, warnings included.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	programs, err := binaries.Provide(ctx, os.Stderr, binaries.Kubectl)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(programs, binaries.Kubectl), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
