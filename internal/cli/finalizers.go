package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
)

// finalizersCost is what people lose who remove the finalizer.
const finalizersCost = "Nothing waits then for replicas to be idle: their Pods go through the drain window alone, and what is still in flight at its end is cut."

type finalizersFlags struct {
	at                         cluster
	allNamespaces, all, remove bool
	output                     string
	timeout                    time.Duration
}

func newFinalizers(s Streams) *cobra.Command {
	var f finalizersFlags
	cmd := &cobra.Command{
		Use:   "finalizers [NAME...]",
		Short: "List the ModelDeployments that lastcall holds, or let them go",
		Long: `Lists the ModelDeployments with the finalizer ` + names.Finalizer + `, which holds
one that is deleted until its replicas are idle.

With --remove it takes this finalizer off, and no other, from the NAMEs or with --all
from every one that would be listed. It needs nothing of lastcall to run: use it where
the retirer is gone for good, or where you will not wait. ` + finalizersCost + `

Exit codes: 0 done, 1 something could not be read or changed, 3 the command could not be
run as asked.`,
		Example: `  kubectl lastcall finalizers -A
  kubectl lastcall finalizers qwen -n team-a --remove
  kubectl lastcall finalizers -A --all --remove`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return f.run(ctx, s, args)
		},
	}
	f.at.addFlags(cmd)
	cmd.Flags().BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "all namespaces")
	cmd.Flags().BoolVar(&f.remove, "remove", false, "take the finalizer off; needs NAMEs or --all")
	cmd.Flags().BoolVar(&f.all, "all", false, "with --remove: every ModelDeployment of the namespace, with -A of the cluster")
	cmd.Flags().StringVarP(&f.output, "output", "o", "text", "text, json or yaml; for the list")
	addTimeout(cmd, &f.timeout)
	return cmd
}

func (f *finalizersFlags) check(args []string) error {
	if err := checkOutput(f.output, "text", "json", "yaml"); err != nil {
		return err
	}
	switch {
	case f.timeout <= 0:
		return badTimeout(f.timeout)
	case len(args) > 0 && f.allNamespaces:
		return usage("-A with a name: a ModelDeployment is in one namespace; name that with -n")
	case len(args) > 0 && f.all:
		return usage("--all with a name: give one of the two")
	case f.all && !f.remove:
		return usage("--all without --remove: the list has all of them anyway")
	case f.remove && len(args) == 0 && !f.all:
		return usage("--remove: name the ModelDeployments to let go, or give --all; without --remove they are listed")
	case f.remove && f.output != "text":
		return usage("--output %s with --remove: only the list is printed as data", f.output)
	}
	return nil
}

func (f *finalizersFlags) run(ctx context.Context, s Streams, args []string) error {
	c, namespace, err := f.at.connect()
	if err != nil {
		return err
	}
	if f.allNamespaces {
		namespace = ""
	}
	list, err := withFinalizer(ctx, c, namespace, args)
	if err != nil {
		return exit{exitFailed, err}
	}
	if !f.remove {
		return write(s.Out, formatHeld(list, f.output, namespace))
	}
	done, err := removeFinalizers(ctx, c, list)
	var out strings.Builder
	for _, md := range done {
		fmt.Fprintf(&out, "ModelDeployment/%s in %s: %s removed", md.Name, md.Namespace, names.Finalizer)
		if others := otherFinalizers(&md); md.DeletionTimestamp != nil && len(others) > 0 {
			fmt.Fprintf(&out, "; %s still holds it, which lastcall has no part in", strings.Join(others, ", "))
		}
		out.WriteString("\n")
	}
	if slices.ContainsFunc(done, func(md v1alpha1.ModelDeployment) bool { return md.DeletionTimestamp == nil }) {
		out.WriteString("Where lastcall still runs, it puts the finalizer back on those that are not deleted.\n")
	}
	if len(done) > 0 {
		out.WriteString(finalizersCost + "\n")
	} else if err == nil {
		fmt.Fprintf(&out, "Nothing to remove: none has the finalizer %s.\n", names.Finalizer)
	}
	if failed := write(s.Out, []byte(out.String())); failed != nil {
		return failed
	}
	if err != nil {
		return exit{exitFailed, err}
	}
	return nil
}

// withFinalizer reads the ModelDeployments that have the finalizer: those of these
// names, or all of a namespace; of an empty one, of the cluster.
func withFinalizer(ctx context.Context, c client.Reader, namespace string, wanted []string) ([]v1alpha1.ModelDeployment, error) {
	var found []v1alpha1.ModelDeployment
	if len(wanted) > 0 {
		for _, name := range wanted {
			md, err := readModelDeployment(ctx, c, namespace, name)
			if err != nil {
				return nil, err
			}
			found = append(found, *md)
		}
	} else {
		g := &gatherer{client: c, namespace: namespace}
		if err := g.readModelDeployments(ctx); err != nil {
			return nil, err
		}
		if len(g.facts.unread) > 0 {
			return nil, fmt.Errorf("reading %s", g.facts.unread[0])
		}
		found = g.facts.deployments
	}
	return slices.DeleteFunc(found, func(md v1alpha1.ModelDeployment) bool {
		return !finalizer.On(&md)
	}), nil
}

// removeFinalizers takes the finalizer names.Finalizer, and no other, off each of
// these, and returns those it was taken off as they are then. One that fails does not
// keep it from the others; one that is gone, or has none, is passed over. An object
// that took the name of one that is gone is left alone.
func removeFinalizers(ctx context.Context, c client.Client, list []v1alpha1.ModelDeployment) (done []v1alpha1.ModelDeployment, err error) {
	for i := range list {
		md := list[i].DeepCopy()
		removed, failed := removeFinalizer(ctx, c, md)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("removing the finalizer of ModelDeployment %q in namespace %s: %w", md.Name, md.Namespace, failed))
		}
		if removed {
			done = append(done, *md)
		}
	}
	return done, err
}

func removeFinalizer(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment) (removed bool, err error) {
	uid := md.UID
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if md.UID != uid || !finalizer.On(md) {
			return nil
		}
		err := finalizer.Remove(ctx, c, md, fieldManager)
		if !apierrors.IsConflict(err) {
			removed = err == nil
			return err
		}
		if failed := c.Get(ctx, client.ObjectKeyFromObject(md), md); failed != nil {
			return failed
		}
		return err
	})
	if removed {
		md.Finalizers = otherFinalizers(md)
	}
	return removed, client.IgnoreNotFound(err)
}

func otherFinalizers(md *v1alpha1.ModelDeployment) []string {
	return slices.DeleteFunc(slices.Clone(md.Finalizers), func(f string) bool { return f == names.Finalizer })
}

// heldReport is one ModelDeployment of the list that finalizers prints.
type heldReport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Deleting is whether it has been deleted, and waits.
	Deleting bool `json:"deleting"`
	// Others are its finalizers beside lastcall's.
	Others []string `json:"otherFinalizers"`
}

func formatHeld(list []v1alpha1.ModelDeployment, output, scope string) []byte {
	reports := []heldReport{}
	for i := range list {
		md := &list[i]
		reports = append(reports, heldReport{md.Namespace, md.Name, md.DeletionTimestamp != nil, otherFinalizers(md)})
	}
	if output != "text" {
		return encode(map[string]any{"modelDeployments": reports}, output)
	}
	if len(reports) == 0 {
		place := "any namespace"
		if scope != "" {
			place = "namespace " + scope
		}
		return fmt.Appendf(nil, "None here: no ModelDeployment in %s has the finalizer %s.\n", place, names.Finalizer)
	}
	rows := newTable()
	rows.row("NAMESPACE", "NAME", "DELETED", "OTHER FINALIZERS")
	for _, r := range reports {
		rows.row(r.Namespace, r.Name, yesOrNo(r.Deleting), strings.Join(r.Others, ", "))
	}
	var out strings.Builder
	rows.print(&out)
	return []byte(out.String())
}
