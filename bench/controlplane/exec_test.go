package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExecsRunHereWithMoreVariables(t *testing.T) {
	assert.Equal(t, `---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: here}
spec:
  execs:
  - local:
      envs:
      - {name: "FILE", value: "/tmp/a \"b\""}
      - {name: "PATH", value: "/tmp/a"}
`, string(clusterExec(map[string]string{"PATH": "/tmp/a", "FILE": `/tmp/a "b"`})))
}
