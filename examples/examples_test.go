// Package examples_test keeps the examples such that they can be applied.
package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/render"
)

func TestExamplesAreValid(t *testing.T) {
	for _, file := range examples(t) {
		t.Run(file, func(t *testing.T) {
			var out, warnings strings.Builder
			code := cli.Run([]string{"validate", "-f", file}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &warnings})
			require.Empty(t, out.String())
			require.Empty(t, warnings.String())
			require.Zero(t, code)
		})
	}
}

// Admission is asked about the Pods later, when nobody reads its warnings.
func TestLeadersOfExamplesAreAdmittedWithoutWarnings(t *testing.T) {
	for _, file := range examples(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		md := &v1alpha1.ModelDeployment{}
		require.NoError(t, yaml.UnmarshalStrict(text, md))
		for i := range md.Spec.Roles {
			leader := render.Replica(md, &md.Spec.Roles[i], 0)[0]
			result, errs := mutate.Pod(leader)
			require.Empty(t, errs, file)
			require.Empty(t, result.Warnings, file)
			require.NotEmpty(t, result.Record.MetricsURL, "%s: %s cannot be measured", file, leader.Name)
		}
	}
}

func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}
