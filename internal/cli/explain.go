package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/api/names"
)

func newExplain(s Streams) *cobra.Command {
	var at cluster
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Why is a replica not gone yet, and what can be done?",
		Long: `Says of every replica of a ModelDeployment that is being taken away, or was given up,
what it waits for, which evidence was seen and which is missing, how much time it has
left, and what you can do, with the commands to copy. Of a ModelDeployment that is being
deleted it says what holds it and until when.

It changes nothing.

Exit codes: 0 done, 1 something could not be read, 3 the command could not be run as
asked.`,
		Example: `  kubectl lastcall explain qwen
  kubectl lastcall explain qwen -n team-a -o json`,
		Args: oneName("explain"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json", "yaml"); err != nil {
				return err
			}
			if timeout <= 0 {
				return badTimeout(timeout)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return runExplain(ctx, s, at, args[0], output)
		},
	}
	at.addFlags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	addTimeout(cmd, &timeout)
	return cmd
}

func runExplain(ctx context.Context, s Streams, at cluster, name, output string) error {
	reader, namespace, err := at.connect()
	if err != nil {
		return err
	}
	read, err := gather(ctx, reader, namespace, name)
	if err != nil {
		return exit{exitFailed, err}
	}
	now := s.now()
	x := explain(now, read)
	text := []byte(x.text(now))
	if output != "text" {
		text = encode(x, output)
	}
	if err := write(s.Out, text); err != nil {
		return err
	}
	return reportUnread(s, x.Unread)
}

// reportUnread names what could not be read on standard error.
func reportUnread(s Streams, unread []string) error {
	for _, what := range unread {
		fmt.Fprintf(s.Err, "Error: could not read %s\n", what)
	}
	if len(unread) > 0 {
		return exit{code: exitFailed}
	}
	return nil
}

func (x explanation) text(now time.Time) string {
	var out strings.Builder
	fmt.Fprintf(&out, "ModelDeployment/%s: %s\n", x.Name, x.Summary)
	if o := x.Retirement; o != nil {
		is := "is"
		if now.After(o.Deadline.Time) {
			is = "was"
		}
		fmt.Fprintf(&out, "Retirement: %s, begun at %s, %s ago; its deadline %s %s.\n", o.Cause, clockTime(o.StartedAt.Time), seconds(now.Sub(o.StartedAt.Time)), is, clockTime(o.Deadline.Time))
	}
	if l := x.Last; l != nil {
		fmt.Fprintf(&out, "Last: %s\n", l.text(now))
	}
	if len(x.Later) > 0 {
		fmt.Fprintf(&out, "Still to begin: %s.\n", enumerate(x.Later))
	}
	if len(x.Findings) > 0 {
		out.WriteString("\n")
		printAdvice(&out, "", x.Findings)
	}
	for i := range x.Targets {
		out.WriteString("\n")
		x.Targets[i].print(&out, now)
	}
	return out.String()
}

func (l *lastReport) text(now time.Time) string {
	text := fmt.Sprintf("a %s, %s at %s, %s ago", l.Cause, l.End, l.EndedAt.UTC().Format(time.RFC3339), seconds(now.Sub(l.EndedAt.Time)))
	if l.Reason != "" {
		text += fmt.Sprintf(" (%s: %s)", l.Reason, meaningOf(l.Reason).says)
	}
	return text
}

func (t *targetReport) print(out *strings.Builder, now time.Time) {
	fmt.Fprintf(out, "%s: %s", t.Replica, t.State)
	if t.Reason != "" {
		fmt.Fprintf(out, ", %s", t.Reason)
	}
	fmt.Fprintf(out, ", for %s\n  %s\n", seconds(now.Sub(t.Since.Time)), t.Waits)
	for _, part := range []struct {
		title string
		lines []string
	}{{"Seen", t.Seen}, {"Missing", t.Missing}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(out, "  %s:\n    %s\n", part.title, strings.Join(part.lines, "\n    "))
		}
	}
	if len(t.Routers) > 0 {
		title := "Router"
		if t.Reason == names.HeldPrefillDecode {
			title = "Router, as it is seen; it decides nothing for such a replica"
		}
		fmt.Fprintf(out, "  %s:\n    %s\n", title, strings.Join(t.routerLines(now), "\n    "))
	}
	if t.TimeLeft != "" {
		fmt.Fprintf(out, "  Time left:\n    %s\n", t.TimeLeft)
	}
	if len(t.WayOut) > 0 {
		out.WriteString("  Way out:\n")
		printAdvice(out, "    ", t.WayOut)
	}
}

func printAdvice(out *strings.Builder, indent string, all []advice) {
	for _, a := range all {
		fmt.Fprintf(out, "%s%s\n", indent, a.Text)
		for _, c := range a.Commands {
			fmt.Fprintf(out, "%s  %s\n", indent, c)
		}
	}
}
