package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/refusal"
)

// momentary are the states that pass in a moment, each by one kind of write.
var momentary = []v1alpha1.RetirementState{v1alpha1.StateAdmitted, v1alpha1.StateDisqualified, v1alpha1.StateDeleting}

// heldIn has the API server refuse the write that ends a momentary state, until goOn is
// called.
func (d *deployment) heldIn(t *testing.T, state v1alpha1.RetirementState) (goOn func(context.Context) error) {
	t.Helper()
	c := d.cluster.Client
	r := refusal.Refusal{
		Name: d.key.Namespace + "-" + strings.ToLower(string(state)), Namespace: d.key.Namespace,
		Operation: admissionregistrationv1.Update, Version: "v1", Resource: "pods",
	}
	pod := d.get(t, "qwen-server-0")
	switch state {
	case v1alpha1.StateAdmitted: // what is next is written before anything is done
		r.Group, r.Version, r.Resource = names.Group, "v1alpha1", "modeldeployments/status"
		r.Unless = fmt.Sprintf(`!has(object.status.retirement) || object.status.retirement.targets.all(t, t.state != %q)`, v1alpha1.StateDisqualified)
		r.Tried = func(ctx context.Context) error {
			md := &v1alpha1.ModelDeployment{}
			require.NoError(t, c.Get(ctx, d.key, md))
			before := md.DeepCopy()
			now := metav1.NowMicro()
			md.Status.Retirement = &v1alpha1.RetirementStatus{
				Cause: v1alpha1.CauseScaleDown, State: v1alpha1.StateDisqualified, StartedAt: now, PhaseStartedAt: now, Deadline: now,
				Targets: []v1alpha1.RetirementTarget{{Role: "server", State: v1alpha1.StateDisqualified, PhaseStartedAt: now}},
			}
			return c.Status().Patch(ctx, md, client.MergeFrom(before), client.DryRunAll)
		}
	case v1alpha1.StateDisqualified: // every mark is seen
		r.Unless = fmt.Sprintf(`object.metadata.labels[%q] != %q`, names.LabelServing, names.Withdrawn)
		r.Tried = func(ctx context.Context) error {
			marked := pod.DeepCopy()
			marked.Labels[names.LabelServing] = names.Withdrawn
			return c.Patch(ctx, marked, client.MergeFrom(pod), client.DryRunAll)
		}
	case v1alpha1.StateDeleting: // every delete is accepted
		r.Operation = admissionregistrationv1.Delete
		r.Tried = func(ctx context.Context) error {
			return c.Delete(ctx, &corev1.Pod{ObjectMeta: pod.ObjectMeta}, client.DryRunAll)
		}
	default:
		require.Fail(t, "no one write ends this state", state)
	}
	goOn, err := r.Begin(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, goOn(context.WithoutCancel(t.Context()))) })
	return goOn
}
