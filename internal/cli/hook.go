package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/manifest"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

func newHook(s Streams) *cobra.Command {
	var name, port, scheme, path, output string
	var grace int64
	cmd := &cobra.Command{
		Use:   "hook --engine vllm|sglang --grace SECONDS",
		Short: "Print the drain hook for an engine and a grace period",
		Long: `Prints the preStop hook that lastcall injects into an engine's container: the Python
program, or the lifecycle stanza to paste under the container.

The hook is made for one grace period. Give the Pod the same
terminationGracePeriodSeconds: with a shorter one the hook is cut.

Exit codes: 0 done, 3 the command could not be run as asked.`,
		Example: `  kubectl lastcall hook --engine vllm --grace 120 -o yaml
  kubectl lastcall hook --engine sglang --grace 60 --port 30001`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "program", "yaml"); err != nil {
				return err
			}
			if _, err := lookUpEngine(name); err != nil {
				return err
			}
			if message := validate.Grace(grace); message != "" {
				return usage("--grace %d: %s", grace, message)
			}
			annotations := map[string]string{names.AnnotationEngine: name}
			for flag, annotation := range map[string]string{
				"port":   names.AnnotationMetricsPort,
				"scheme": names.AnnotationMetricsScheme,
				"path":   names.AnnotationMetricsPath,
			} {
				value, _ := cmd.Flags().GetString(flag)
				if !cmd.Flags().Changed(flag) {
					continue
				}
				annotations[annotation] = value
				if errs := validate.PodAnnotations(map[string]string{annotation: value}, nil); len(errs) > 0 {
					return usage("--%s %q: %s", flag, value, errs[0].Detail)
				}
			}
			match, _ := engine.Recognize(engine.Container{}, engine.Source{Annotations: annotations})
			return printHook(s, match, grace, output)
		},
	}
	addEngineFlag(cmd, &name)
	cmd.Flags().Int64Var(&grace, "grace", drain.DefaultGraceSeconds, "the Pod's terminationGracePeriodSeconds")
	cmd.Flags().StringVar(&port, "port", "", "the port of the engine's /metrics (default: the engine's)")
	cmd.Flags().StringVar(&scheme, "scheme", "", `http or https (default "http")`)
	cmd.Flags().StringVar(&path, "path", "", `the path of the engine's metrics (default "/metrics")`)
	cmd.Flags().StringVarP(&output, "output", "o", "program", "program or yaml")
	return cmd
}

func printHook(s Streams, m engine.Match, grace int64, output string) error {
	if output == "program" {
		return write(s.Out, []byte(drain.Program(m.Engine, m.Endpoint, grace)))
	}
	type fields = map[string]any
	command := drain.Command(m.Engine, m.Endpoint, grace)
	stanza := fields{"lifecycle": fields{"preStop": fields{"exec": fields{"command": command}}}}
	return write(s.Out, fmt.Appendf(nil, "# for a Pod with terminationGracePeriodSeconds: %d\n%s", grace, manifest.YAML(stanza)))
}
