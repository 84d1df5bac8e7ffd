package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func newStatus(s Streams) *cobra.Command {
	var at cluster
	var allNamespaces bool
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show ModelDeployments, and which Pods have the drain hook",
		Long: `Shows the ModelDeployments of a namespace with their replicas, and the other Pods that
have opted in by the workload they are part of: how many have the drain hook, and why
the rest have none. With a NAME, shows this ModelDeployment alone.

It reads the cluster of your kubeconfig and changes nothing. What you may not read is
left out and named on standard error.

Exit codes: 0 done, 1 something could not be read, 3 the command could not be run as
asked.`,
		Example: `  kubectl lastcall status
  kubectl lastcall status qwen -n team-a
  kubectl lastcall status -A -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%d names: status takes one, or none for all", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json", "yaml"); err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				name = args[0]
			}
			if name != "" && allNamespaces {
				return usage("-A with a name: a ModelDeployment is in one namespace; name that with -n")
			}
			if timeout <= 0 {
				return badTimeout(timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return status(ctx, s, at, allNamespaces, name, output)
		},
	}
	at.addFlags(cmd)
	cmd.Flags().BoolVarP(&allNamespaces, "all-namespaces", "A", false, "all namespaces")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	addTimeout(cmd, &timeout)
	return cmd
}

func status(ctx context.Context, s Streams, at cluster, allNamespaces bool, name, output string) error {
	reader, namespace, err := at.connect()
	if err != nil {
		return err
	}
	if allNamespaces {
		namespace = ""
	}
	read, err := gather(ctx, reader, namespace, name)
	if err != nil {
		return exit{exitFailed, err}
	}
	r := summarize(read)
	if err := write(s.Out, formatReport(r, output, namespace)); err != nil {
		return err
	}
	return reportUnread(s, r.Unread)
}
