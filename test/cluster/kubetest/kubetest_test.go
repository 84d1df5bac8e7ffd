package kubetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNamespaceIsNamedAfterTheTest(t *testing.T) {
	for test, want := range map[string]string{
		"TestDrain/an_idle_vLLM,_G=15":   "drain-an-idle-vllm--g-15",
		"TestDrain/é_":                   "drain",
		"Test" + strings.Repeat("x", 80): strings.Repeat("x", 50),
	} {
		assert.Equal(t, want, prefix(test))
	}
}
