package retirer

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/report"
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
	return report.Status(ctx, r.Client, md, &now, names.Retirer)
}

// What the schema takes, in bytes.
const (
	maxMessage       = 1024
	maxTargetMessage = 512
	maxRouterMessage = 256
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
	operation.Message = report.Cut(operation.Message, maxMessage)
	for i := range operation.Targets {
		t := &operation.Targets[i]
		t.Message = report.Cut(t.Message, maxTargetMessage)
		for n := range t.Routers {
			t.Routers[n].Message = report.Cut(t.Routers[n].Message, maxRouterMessage)
		}
	}
	return operation
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
