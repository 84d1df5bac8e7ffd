package admission

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// BenchmarkPods is what an engine Pod of 12 KB costs, beside a typed Defaulter of
// controller-runtime that changes nothing.
func BenchmarkPods(b *testing.B) {
	raw := enginePod(b)
	for _, side := range []struct {
		name    string
		webhook *admission.Webhook
		patches bool
	}{
		{"lastcall", &admission.Webhook{Handler: podHandler{newAdmissions()}}, true},
		{"yardstick", admission.WithDefaulter(newScheme(b), nothing{}), false},
	} {
		b.Run(side.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				response := side.webhook.Handle(b.Context(), create(raw))
				require.True(b, response.Allowed)
				require.Equal(b, side.patches, response.Patch != nil)
			}
		})
	}
}

type nothing struct{}

func (nothing) Default(context.Context, *corev1.Pod) error { return nil }
