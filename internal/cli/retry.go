package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func newRetry(s Streams) *cobra.Command {
	var at cluster
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "retry NAME",
		Short: "Take up again what a retirement gave up",
		Long: `Asks the retirer to begin again with the replicas of a ModelDeployment that it gave up:
those that are Aborted. It sets the annotation ` + names.AnnotationRetryRetirement + `
to a new value, and the retirer acts on each value once. Nothing changes about why they
were given up: kubectl lastcall explain NAME says what to do about that first.

Exit codes: 0 asked, 1 nothing to retry or the cluster refused, 3 the command could not
be run as asked.`,
		Example: `  kubectl lastcall retry qwen
  kubectl lastcall retry qwen -n team-a`,
		Args: oneName("retry"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return badTimeout(timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return retryRetirement(ctx, s, at, args[0])
		},
	}
	at.addFlags(cmd)
	addTimeout(cmd, &timeout)
	return cmd
}

// oneName is for commands about one ModelDeployment.
func oneName(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage("%d names: %s takes one, that of a ModelDeployment", len(args), command)
		}
		return nil
	}
}

func retryRetirement(ctx context.Context, s Streams, at cluster, name string) error {
	c, namespace, err := at.connect()
	if err != nil {
		return err
	}
	md, err := readModelDeployment(ctx, c, namespace, name)
	if err != nil {
		return exit{exitFailed, err}
	}
	said, err := retriable(md)
	if err != nil {
		return exit{exitFailed, err}
	}
	before := md.DeepCopy()
	if md.Annotations == nil {
		md.Annotations = map[string]string{}
	}
	md.Annotations[names.AnnotationRetryRetirement] = retryToken(s.now())
	// No lock: the patch is of one annotation, and the last value counts.
	if err := c.Patch(ctx, md, client.MergeFrom(before)); err != nil {
		return exit{exitFailed, fmt.Errorf("setting the annotation %s of ModelDeployment %q in namespace %s: %w", names.AnnotationRetryRetirement, name, namespace, err)}
	}
	return write(s.Out, []byte(said))
}

// retryToken is a value that no annotation had before.
func retryToken(now time.Time) string {
	return now.UTC().Format("20060102T150405Z") + "-" + rand.Text()[:8]
}

// retriable says what a retry will do, or why there is nothing to retry.
func retriable(md *v1alpha1.ModelDeployment) (string, error) {
	nothing := func(why string) error {
		return fmt.Errorf("nothing to retry: %s; kubectl lastcall explain %s -n %s says more", why, md.Name, md.Namespace)
	}
	operation := md.Status.Retirement
	switch {
	case md.DeletionTimestamp != nil:
		return "", nothing(fmt.Sprintf("ModelDeployment %q is being deleted, and a deletion gives no replica up", md.Name))
	case operation == nil:
		return "", nothing(fmt.Sprintf("no retirement of ModelDeployment %q is under way or given up", md.Name))
	}
	var given []string
	waits := false
	for i := range operation.Targets {
		switch t := &operation.Targets[i]; {
		case isGivenUp(md, t):
			given = append(given, replicaName(md, t.Role, t.Ordinal))
		case isUnderWay(t):
			waits = true
		}
	}
	if len(given) == 0 {
		return "", nothing(fmt.Sprintf("no replica of ModelDeployment %q is %s", md.Name, v1alpha1.StateAborted))
	}
	said := fmt.Sprintf("ModelDeployment/%s: asked the retirer to begin again with %s.\n", md.Name, enumerate(given))
	if waits {
		said += "It does when the replicas that are under way have ended.\n"
	}
	if pending := md.Annotations[names.AnnotationRetryRetirement]; pending != "" && pending != operation.LastConsumedRetryToken {
		said += fmt.Sprintf("It has not acted on what was asked before, %s, either: does the retirer run?\n    %s\n", pending, retirerPods)
	}
	return said + fmt.Sprintf("See what comes of it:\n    kubectl lastcall explain %s -n %s\n", md.Name, md.Namespace), nil
}
