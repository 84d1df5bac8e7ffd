// Package examples_test keeps the examples such that they can be applied.
package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
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
		md := decoded(t, file)
		for i := range md.Spec.Roles {
			leader := render.Replica(md, &md.Spec.Roles[i], 0)[0]
			result, errs := mutate.Pod(leader)
			require.Empty(t, errs, file)
			require.Empty(t, result.Warnings, file)
			require.NotEmpty(t, result.Record.MetricsURL, "%s: %s cannot be measured", file, leader.Name)
		}
	}
}

// They are applied into one namespace by `kubectl apply -f examples/`.
func TestExamplesCanBeAppliedTogether(t *testing.T) {
	owners := map[string]string{}
	for _, file := range examples(t) {
		md := decoded(t, file)
		for _, service := range render.Services(md) {
			require.Empty(t, owners["Service/"+service.Name], "%s has the Service %s too", file, service.Name)
			owners["Service/"+service.Name] = file
		}
		for i := range md.Spec.Roles {
			role := &md.Spec.Roles[i]
			for ordinal := range render.Replicas(role) {
				for _, pod := range render.Replica(md, role, ordinal) {
					require.Empty(t, owners["Pod/"+pod.Name], "%s has the Pod %s too", file, pod.Name)
					owners["Pod/"+pod.Name] = file
				}
			}
		}
	}
}

// What a Pod cannot start without is said before the manifest is applied.
func TestExamplesSayWhatTheyNeed(t *testing.T) {
	for _, file := range examples(t) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		head, _, _ := strings.Cut(string(text), "apiVersion:")
		md := decoded(t, file)
		for i := range md.Spec.Roles {
			role := &md.Spec.Roles[i]
			if !role.Resources.Limits.Name("nvidia.com/gpu", resource.DecimalSI).IsZero() {
				require.Contains(t, head, "GPU", file)
			}
			for _, volume := range role.Volumes {
				if claim := volume.PersistentVolumeClaim; claim != nil {
					require.Contains(t, head, "PersistentVolumeClaim "+claim.ClaimName, file)
				}
			}
			for _, env := range role.Env {
				if env.ValueFrom == nil || env.ValueFrom.SecretKeyRef == nil {
					continue
				}
				if key := env.ValueFrom.SecretKeyRef; key.Optional == nil || !*key.Optional {
					require.Contains(t, head, "Secret "+key.Name, file)
				}
			}
		}
	}
}

func decoded(t *testing.T, file string) *v1alpha1.ModelDeployment {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, yaml.UnmarshalStrict(text, md))
	return md
}

func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}
