package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/manifest"
)

func newInject(s Streams) *cobra.Command {
	var manifests files
	cmd := &cobra.Command{
		Use:   "inject -f FILE|-",
		Short: "Print manifests as lastcall's admission would leave their Pods",
		Long: `Prints the manifests with the drain hook in every Pod and every Pod template, as
admission would leave them if they were opted in. Only a Pod or a template with the
label lastcall.dev/drain: disabled is left as it is. Everything else is printed as it
was written, comments included.

A Pod template is whatever stands under a key "template" or one that ends in
"Template" and has spec.containers: in a Deployment, StatefulSet, DaemonSet, Job,
CronJob, LeaderWorkerSet, Rollout, RayCluster and so on. Knative Services are left
as they are: Knative refuses the hook in them.

Warnings go to standard error. If admission would refuse one of the Pods, nothing is
printed but the reason.

Exit codes: 0 done, 1 refused or not valid YAML, 3 the command could not be run as
asked.`,
		Example: `  kubectl lastcall inject -f engine.yaml | kubectl apply -f -
  kubectl lastcall inject -f engine.yaml | diff engine.yaml -`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			inputs, err := manifests.read(s)
			if err != nil {
				return err
			}
			return inject(s, inputs)
		},
	}
	manifests.addFlag(cmd)
	return cmd
}

func inject(s Streams, inputs []input) error {
	var out []byte
	objects, refused := 0, false
	for _, in := range inputs {
		for i, d := range in.documents {
			found, err := d.Objects()
			if err != nil {
				return exit{exitFailed, fmt.Errorf("%s: %w", in.name, err)}
			}
			objects += len(found)
			var edits []manifest.Edit
			for _, o := range found {
				for _, p := range o.Pods {
					decision := decide(p)
					for _, w := range decision.warnings {
						fmt.Fprintf(s.Err, "Warning: %s: %s\n", describe(o), w)
					}
					for _, err := range decision.errs {
						fmt.Fprintf(s.Err, "Error: %s: %s: %v\n", in.name, describe(o), err)
						refused = true
					}
					edits = append(edits, manifest.Edit{At: p.At, Patch: decision.patch})
				}
			}
			text, err := d.Apply(edits)
			if err != nil {
				return exit{exitFailed, fmt.Errorf("%s: %w", in.name, err)}
			}
			if i == 0 {
				text = follow(out, d, text)
			}
			out = append(out, text...)
		}
	}
	switch {
	case refused:
		return exit{code: exitFailed}
	case objects == 0:
		return errNoObjects
	}
	return write(s.Out, out)
}

// follow returns the first document of a file as it goes behind the files before.
func follow(before []byte, d manifest.Document, text []byte) []byte {
	if len(before) == 0 {
		return text
	}
	var start []byte
	if !bytes.HasSuffix(before, []byte("\n")) {
		start = []byte("\n")
	}
	if !d.IsSeparated() {
		start = append(start, "---\n"...)
	}
	return append(start, bytes.TrimPrefix(text, []byte("\ufeff"))...)
}
