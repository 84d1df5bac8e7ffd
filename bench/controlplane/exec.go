package controlplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
)

// clusterExec is the document by which kwok runs the command of every pods/exec
// here, with these variables beside its own.
func clusterExec(environment map[string]string) (document []byte) {
	document = []byte(`---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: here}
spec:
  execs:
  - local:
      envs:
`)
	for _, name := range slices.Sorted(maps.Keys(environment)) {
		document = fmt.Appendf(document, "      - {name: %q, value: %q}\n", name, environment[name])
	}
	return document
}

// freePort is one that nothing listened on a moment ago.
func freePort(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close() //nolint:errcheck // its port is known
	_, port, err := net.SplitHostPort(listener.Addr().String())
	return port, err
}
