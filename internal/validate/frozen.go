package validate

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// frozen finds changes of what running replicas depend on. The roles of the two
// are matched by name: a role that is new may be anything, and one that is gone
// is retired.
func frozen(old, spec *v1alpha1.ModelDeploymentSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if old.Engine.Name != spec.Engine.Name {
		errs = append(errs, field.Invalid(path.Child("engine", "name"), spec.Engine.Name, frozenEngineMessage))
	}
	for i, r := range spec.Roles {
		path := path.Child("roles").Index(i)
		was := slices.IndexFunc(old.Roles, func(o v1alpha1.Role) bool { return o.Name == r.Name })
		if was < 0 {
			continue
		}
		o := old.Roles[was]
		if render.Kind(&o) != render.Kind(&r) {
			errs = append(errs, field.Invalid(path.Child("kind"), render.Kind(&r), frozenKindMessage))
		}
		if render.Size(&o) != render.Size(&r) {
			errs = append(errs, field.Invalid(path.Child("size"), render.Size(&r), frozenSizeMessage))
		}
		if !slices.Equal(o.Command, r.Command) {
			errs = append(errs, field.Invalid(path.Child("command"), r.Command, frozenCommandMessage))
		}
	}
	return errs
}
