package retirer

import (
	"cmp"
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// write persists a status: the retirer's part of it, if the object is still the one
// that the decision was made on.
func (r *Reconciler) write(ctx context.Context, md *v1alpha1.ModelDeployment, status retire.Status) error {
	now := v1alpha1.ModelDeploymentStatus{Retirement: status.Retirement, LastRetirement: status.Last}
	if c := retiring(md, status); c != nil {
		c.LastTransitionTime = metav1.NewTime(r.Clock.Now())
		if old := meta.FindStatusCondition(md.Status.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		now.Conditions = []metav1.Condition{*c}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&now)
	if err != nil {
		return err
	}
	apply := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind,
		// The API server ignores the UID in a write of the status. The version is what
		// keeps a decision on an old view, or on another object of the name, from landing.
		"metadata": map[string]any{"namespace": md.Namespace, "name": md.Name, "resourceVersion": md.ResourceVersion},
		"status":   content,
	}}
	if err := r.Client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(names.Retirer), client.ForceOwnership); err != nil {
		return err
	}
	md.ResourceVersion = cmp.Or(apply.GetResourceVersion(), md.ResourceVersion)
	return nil
}

// What the schema takes, in bytes.
const (
	maxMessage       = 1024
	maxTargetMessage = 512
	maxToken         = 256
)

// bounded cuts what comes from elsewhere to what the schema takes: a message that is
// too long must not keep a status from being written, nor look like another one in
// every round.
func bounded(operation *v1alpha1.RetirementStatus) *v1alpha1.RetirementStatus {
	operation = operation.DeepCopy()
	if operation == nil {
		return nil
	}
	operation.Message = cut(operation.Message, maxMessage)
	for i := range operation.Targets {
		operation.Targets[i].Message = cut(operation.Targets[i].Message, maxTargetMessage)
	}
	return operation
}

// cut shortens a text to a number of bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// retiring is the condition that says how far the operation is; nil where none ever
// was. Its reason walks through the operation's states.
func retiring(md *v1alpha1.ModelDeployment, status retire.Status) *metav1.Condition {
	c := &metav1.Condition{Type: names.ConditionRetiring, Status: metav1.ConditionFalse, ObservedGeneration: md.Generation}
	switch operation := status.Retirement; {
	case operation != nil:
		if operation.State != v1alpha1.StateAborted {
			c.Status = metav1.ConditionTrue
		}
		c.Reason = string(operation.State)
		c.Message = operation.Message
		if operation.Reason != "" {
			c.Message = operation.Reason + ": " + operation.Message
		}
	case status.Last != nil:
		c.Reason, c.Message = string(status.Last.End), status.Last.Reason
	default:
		return nil
	}
	return c
}
