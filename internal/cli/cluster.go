package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// cluster is how the user names a cluster and a namespace, as for kubectl.
type cluster struct {
	kubeconfig, context, namespace string
}

func (c *cluster) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.kubeconfig, "kubeconfig", "", "the kubeconfig (default: $KUBECONFIG, else ~/.kube/config)")
	cmd.Flags().StringVar(&c.context, "context", "", "the context in the kubeconfig (default: its current one)")
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "", "the namespace (default: the context's)")
}

// fieldManager is who the managed fields of an object name for what a person changed
// with this program.
const fieldManager = "kubectl-lastcall"

// addTimeout adds the flag that bounds all that a command asks of the cluster.
func addTimeout(cmd *cobra.Command, timeout *time.Duration) {
	cmd.Flags().DurationVar(timeout, "timeout", 30*time.Second, "how long the cluster may take to answer everything")
}

func badTimeout(timeout time.Duration) error {
	return usage("--timeout %s: must be longer than 0", timeout)
}

// connect returns a client of the cluster, and the namespace. It sends nothing yet.
func (c *cluster) connect() (client.Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	overrides.Context.Namespace = c.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no cluster is named there: set KUBECONFIG, or give --kubeconfig FILE")
		}
		return nil, "", usage("reading the kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", usage("reading the kubeconfig: %w", err)
	}
	// One person waits for the answer: what the server says to throttle is enough.
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, "", fmt.Errorf("registering the kinds: %w", err)
	}
	found, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", usage("reading the kubeconfig: %w", err)
	}
	return client.WithFieldOwner(found, fieldManager), namespace, nil
}
