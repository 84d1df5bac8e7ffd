package validate

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const maxPort = 65535

// oneOf is an error unless the value is one of those supported.
func oneOf[T ~string](path *field.Path, value T, supported []T) *field.Error {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.NotSupported(path, value, supported)
}

// within is an error unless the value is from least to most, in the unit that
// what names.
func within[T cmp.Ordered](path *field.Path, value, least, most T, what string) *field.Error {
	if value >= least && value <= most {
		return nil
	}
	return field.Invalid(path, value, fmt.Sprintf("must be %v to %v%s", least, most, what))
}
