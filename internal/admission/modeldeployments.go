package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

// modelDeploymentValidator refuses ModelDeployments that cannot work.
type modelDeploymentValidator struct{}

var _ admission.Validator[*v1alpha1.ModelDeployment] = modelDeploymentValidator{}

func (modelDeploymentValidator) ValidateCreate(_ context.Context, md *v1alpha1.ModelDeployment) (admission.Warnings, error) {
	errs, warnings := validate.ModelDeployment(md)
	return warnings, invalid(md, errs)
}

// ValidateUpdate lets a finalizer, a label or a status always be written: the
// match conditions of the configuration say the same, for when nobody serves.
func (modelDeploymentValidator) ValidateUpdate(_ context.Context, old, md *v1alpha1.ModelDeployment) (admission.Warnings, error) {
	if !md.DeletionTimestamp.IsZero() || equality.Semantic.DeepEqual(old.Spec, md.Spec) {
		return nil, nil
	}
	errs, warnings := validate.ModelDeploymentUpdate(old, md)
	return warnings, invalid(md, errs)
}

func (modelDeploymentValidator) ValidateDelete(context.Context, *v1alpha1.ModelDeployment) (admission.Warnings, error) {
	return nil, nil
}

func invalid(md *v1alpha1.ModelDeployment, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind).GroupKind(), md.Name, errs)
}
