// Command process is one process of a fake router; see package fake. In its image it is
// called by the name of a family, or router.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lastcall-dev/lastcall/test/router/fake"
)

func main() {
	options, err := fake.Parse(os.Args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		os.Exit(2)
	}
	if err := run(options); err != nil {
		fmt.Fprintln(os.Stderr, "router:", err)
		os.Exit(1)
	}
}

// run serves until SIGTERM, and then until nothing is open any more.
func run(options fake.Options) error {
	config, err := apiServer()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	config.UserAgent = "lastcall-test-router"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	// Kubernetes starts an ended container again, which forgets what a restart forgets.
	restart := func() { os.Exit(1) }
	router, err := fake.New(options, &fake.APIServer{Client: client, Namespace: options.Namespace}, os.Stdout, restart)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return router.Run(ctx, context.Background())
}

// apiServer is that of KUBECONFIG, or of the cluster this runs in.
func apiServer() (*rest.Config, error) {
	if path := os.Getenv("KUBECONFIG"); path != "" {
		return clientcmd.BuildConfigFromFlags("", path)
	}
	return rest.InClusterConfig()
}
