package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	jsonutil "k8s.io/apimachinery/pkg/util/json"

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
		prefix := ""
		if p.Path != nil {
			prefix = p.Path.String()
		}
		return decision{errs: []error{typeError(prefix, p.JSON, &template, err)}}
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
		name = "(no name)"
	}
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return o.Kind + " " + name
}

// typeError says which field has a value of the wrong type. The decoder that the
// API server uses says it in Go's words; the standard library's tells the parts.
func typeError(prefix string, text []byte, into any, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(text, into)); ok {
		return fmt.Errorf("%s: must be of type %s, not %s", strings.TrimPrefix(prefix+"."+wrong.Field, "."), wrong.Type, wrong.Value)
	}
	if prefix != "" {
		return fmt.Errorf("%s: %w", prefix, err)
	}
	return err
}
