// Package refusal has an API server refuse what a test needs it to, with a
// ValidatingAdmissionPolicy as a cluster's owner would.
package refusal

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Message is what the API server says.
const Message = "not in the maintenance window"

// Refusal is one kind of request in a namespace.
type Refusal struct {
	// Name is that of the policy.
	Name, Namespace          string
	Operation                admissionregistrationv1.OperationType
	Group, Version, Resource string
	// Unless is a CEL expression for what is let through; nothing where it is empty.
	Unless string
	// Tried makes such a request, or a dry run of one, and returns what it gets.
	Tried func(ctx context.Context) error
}

// Begin makes the policy and returns when it is in force; end takes it away again, and
// does nothing after that.
func (r Refusal) Begin(ctx context.Context, c client.Client) (end func(context.Context) error, err error) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: r.Namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{r.Operation},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{r.Group}, APIVersions: []string{r.Version}, Resources: []string{r.Resource}},
		}}},
	}
	unless := r.Unless
	if unless == "" {
		unless = "false"
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: unless, Message: Message}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}
	binding.Spec.PolicyName = r.Name
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	for _, object := range []client.Object{policy, binding} {
		if err := c.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	ended := false
	end = func(ctx context.Context) error {
		if ended {
			return nil
		}
		ended = true
		for _, object := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(c.Delete(ctx, object)); err != nil {
				return err
			}
		}
		return r.inForce(ctx, false)
	}
	return end, r.inForce(ctx, true)
}

// inForce waits until such a request is refused, or is not any more. The API server
// takes a moment of real time, of which requests take some: a test whose clock is
// virtual cannot wait otherwise.
func (r Refusal) inForce(ctx context.Context, want bool) error {
	var err error
	for range 20000 {
		err = r.Tried(ctx)
		if refused := err != nil && strings.Contains(err.Error(), Message); refused == want || ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("waiting for the policy %s, in force %t: the last try gave: %w", r.Name, want, err)
}
