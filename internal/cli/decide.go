package cli

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	jsonutil "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/manifest"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

// decision is what admission would do to a Pod, or to the Pods of a template, if
// it was opted in.
type decision struct {
	patch    []mutate.Operation
	warnings []string
	errs     []error // each begins with the path in the object; they refuse the Pod
}

func decide(p manifest.Pod) decision {
	// A Pod has the fields of a template, and its own path is empty.
	var template corev1.PodTemplateSpec
	if err := jsonutil.Unmarshal(p.JSON, &template); err != nil {
		return decision{errs: typeErrors(p.JSON, template, p.Path, err)}
	}
	if template.Labels[names.LabelDrain] == names.DrainDisabled {
		return decision{}
	}
	result, errs := mutate.Template(&template, p.Path)
	d := decision{patch: result.Patch}
	for _, w := range result.Warnings {
		if w = strings.TrimPrefix(w, "lastcall: "); p.Path != nil {
			w = p.Path.String() + ": " + w
		}
		d.warnings = append(d.warnings, w)
	}
	for _, err := range errs {
		d.errs = append(d.errs, err)
	}
	return d
}

// describe names an object for a message.
func describe(o manifest.Object) string {
	name := o.Name
	if name == "" {
		return o.Kind + " without a name"
	}
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %q", o.Kind, name)
}

// typeErrors says which fields have a value of the wrong type. Where the type is
// not at fault, it is what the decoder said.
func typeErrors(text []byte, into any, path *field.Path, err error) []error {
	if errs := manifest.TypeErrors(text, into, path); len(errs) > 0 {
		return errs
	}
	if path != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return []error{err}
}
