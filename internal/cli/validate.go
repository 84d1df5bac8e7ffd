package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/manifest"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

func newValidate(s Streams) *cobra.Command {
	var manifests files
	cmd := &cobra.Command{
		Use:   "validate -f FILE|-",
		Short: "Check ModelDeployments, Pods and Pod templates",
		Long: `Checks manifests as the cluster would: ModelDeployments by lastcall's rules, with
fields that do not exist; Pods and Pod templates by what admission refuses and warns
of. Other objects are ignored.

Prints one line for each error, "path: message", with the file and the object in
front where there are several. Warnings go to standard error.

Exit codes: 0 no error, 1 errors or not valid YAML, 3 the command could not be run as
asked.`,
		Example: `  kubectl lastcall validate -f qwen.yaml
  helm template my-chart | kubectl lastcall validate -f -`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			inputs, err := manifests.read(s)
			if err != nil {
				return err
			}
			return check(s, inputs)
		},
	}
	manifests.addFlag(cmd)
	return cmd
}

// findings are what is wrong with one object, or with a document that holds none.
type findings struct {
	file, object string
	errs         []error
	warnings     []string
}

func check(s Streams, inputs []input) error {
	var all []findings
	objects, checked := 0, 0
	for _, in := range inputs {
		for _, d := range in.documents {
			found, err := d.Objects()
			if err != nil {
				all = append(all, findings{file: in.name, errs: []error{err}})
				objects++
				continue
			}
			objects += len(found)
			for _, o := range found {
				f := findings{file: in.name, object: describe(o)}
				if f.inspect(o) {
					checked++
				}
				all = append(all, f)
			}
		}
	}
	if objects == 0 {
		return errNoObjects
	}
	var out strings.Builder
	for _, f := range all {
		prefix := ""
		if len(inputs) > 1 {
			prefix = f.file + ": "
		}
		if checked > 1 && f.object != "" {
			prefix += f.object + ": "
		}
		for _, err := range f.errs {
			fmt.Fprintf(&out, "%s%v\n", prefix, err)
		}
		for _, w := range f.warnings {
			fmt.Fprintf(s.Err, "Warning: %s%s\n", prefix, w)
		}
	}
	if err := write(s.Out, []byte(out.String())); err != nil {
		return err
	}
	if out.Len() > 0 {
		return exit{code: exitFailed}
	}
	return nil
}

// inspect adds what is wrong with the object. It reports false for an object that is
// none of lastcall's business.
func (f *findings) inspect(o manifest.Object) bool {
	if o.IsOurs() {
		f.inspectModelDeployment(o)
		return true
	}
	for _, p := range o.Pods {
		d := decide(p)
		f.errs = append(f.errs, d.errs...)
		f.warnings = append(f.warnings, d.warnings...)
	}
	return len(o.Pods) > 0
}

func (f *findings) inspectModelDeployment(o manifest.Object) {
	if version := v1alpha1.GroupVersion.String(); o.APIVersion != version {
		f.errs = append(f.errs, field.NotSupported(field.NewPath("apiVersion"), o.APIVersion, []string{version}))
		return
	}
	if o.Kind != v1alpha1.Kind {
		f.errs = append(f.errs, field.NotSupported(field.NewPath("kind"), o.Kind, []string{v1alpha1.Kind}))
		return
	}
	var md v1alpha1.ModelDeployment
	unknown, err := kjson.UnmarshalStrict(o.JSON, &md)
	if err != nil {
		f.errs = append(f.errs, typeErrors(o.JSON, md, nil, err)...)
		f.errs = append(f.errs, manifest.UnknownFields(o.JSON, md, nil)...)
		return
	}
	if errs := manifest.UnknownFields(o.JSON, md, nil); len(errs) > 0 {
		unknown = errs
	}
	f.errs = append(f.errs, unknown...)
	errs, warnings := validate.ModelDeployment(&md)
	for _, err := range errs {
		f.errs = append(f.errs, err)
	}
	f.warnings = append(f.warnings, warnings...)
}
