package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
)

// Streams are what a command reads from and writes to, and its clock.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Clock is the real one where it is nil.
	Clock clock.PassiveClock
}

func (s Streams) now() time.Time {
	if s.Clock == nil {
		return clock.RealClock{}.Now()
	}
	return s.Clock.Now()
}

// Exit codes; see the package comment.
const (
	exitFailed  = 1
	exitUnknown = 2
	exitUsage   = 3
)

// exit is an error that ends the command with this code. Without an error in it,
// the command has said all there is to say.
type exit struct {
	code int
	err  error
}

func (e exit) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e exit) Unwrap() error { return e.err }

// Run runs kubectl lastcall with these arguments and returns its exit code.
func Run(args []string, s Streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[exit](err)
	if !ok {
		// Only cobra's own errors carry no code: unknown commands and flags.
		e = exit{exitUsage, fmt.Errorf("%w\nSee 'kubectl lastcall --help'", err)}
	}
	if e.err != nil {
		fmt.Fprintf(s.Err, "Error: %v\n", e.err)
	}
	return e.code
}

func newRoot(s Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-lastcall",
		Short: "Let LLM engines finish their work before Kubernetes takes them away",
		Long: `kubectl lastcall shows what lastcall does to your manifests and what it reads from
your engines, and what became of them in a cluster: what runs, what is being taken away,
why a replica is held and what to do about it. inject, validate, gauges and hook need no
cluster: they use the code of the webhook.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lastcall"},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newGauges(s), newInject(s), newValidate(s), newHook(s), newStatus(s),
		newExplain(s), newScale(s), newRetry(s), newFinalizers(s), newUninstall(s), newVersion(s))
	return root
}

// write writes a command's whole output at once.
func write(out io.Writer, text []byte) error {
	if _, err := out.Write(text); err != nil {
		return exit{exitUsage, fmt.Errorf("writing the output: %w", err)}
	}
	return nil
}

func usage(format string, args ...any) error { return exit{exitUsage, fmt.Errorf(format, args...)} }
