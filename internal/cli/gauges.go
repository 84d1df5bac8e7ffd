package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

// gaugesOutput is what gauges prints with -o json.
type gaugesOutput struct {
	Engine   engine.Name         `json:"engine"`
	Verdict  engine.Verdict      `json:"verdict"`
	InFlight float64             `json:"inFlight"`
	Reason   string              `json:"reason"`
	Gauges   []engine.GaugeValue `json:"gauges"`
}

func newGauges(s Streams) *cobra.Command {
	var name, file, output string
	cmd := &cobra.Command{
		Use:   "gauges --engine vllm|sglang [-f FILE|-]",
		Short: "Say whether an engine's /metrics show work in flight",
		Long: `Reads the text of an engine's /metrics page as the drain hook does, and says whether
it shows requests in flight.

Exit codes: 0 idle, 1 busy, 2 unknown (the page cannot prove that nothing is in
flight; the reason says why), 3 the command could not be run as asked.`,
		Example: `  kubectl exec POD -- curl -s localhost:8000/metrics | kubectl lastcall gauges --engine vllm`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			e, err := lookUpEngine(name)
			if err != nil {
				return err
			}
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			body, err := s.read(file, engine.MaxBody)
			if err != nil {
				return err
			}
			reading := e.Read(body)
			if err := write(s.Out, formatReading(e.Name, reading, output)); err != nil {
				return err
			}
			switch reading.Verdict {
			case engine.Idle:
				return nil
			case engine.Busy:
				return exit{code: exitFailed}
			}
			return exit{code: exitUnknown}
		},
	}
	addEngineFlag(cmd, &name)
	cmd.Flags().StringVarP(&file, "filename", "f", "-", "the /metrics page; - is standard input")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func formatReading(name engine.Name, r engine.Reading, output string) []byte {
	var out strings.Builder
	if output == "json" {
		encoder := json.NewEncoder(&out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(gaugesOutput{name, r.Verdict, r.InFlight, r.Reason, r.Gauges}); err != nil {
			panic(err) // Read gives finite numbers only
		}
		return []byte(out.String())
	}
	out.WriteString(string(r.Verdict))
	if r.Verdict == engine.Busy {
		fmt.Fprintf(&out, ": %s in flight", number(r.InFlight))
	}
	if r.Reason != "" {
		out.WriteString(": " + r.Reason)
	}
	if r.Detail != "" {
		out.WriteString(": " + r.Detail)
	}
	out.WriteString("\n")
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, g := range r.Gauges {
		value := "absent"
		if g.Present {
			value = number(g.Value)
		}
		fmt.Fprintf(table, "  %s\t%s\n", g.Name, value)
	}
	_ = table.Flush() // to memory
	return []byte(out.String())
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func addEngineFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "engine", "", "the engine: "+engineNames())
}

func lookUpEngine(name string) (engine.Engine, error) {
	e, ok := engine.Lookup(engine.Name(name))
	if !ok {
		return e, usage("--engine %q: the engine must be %s", name, engineNames())
	}
	return e, nil
}

func engineNames() string {
	var all []string
	for _, e := range engine.All() {
		all = append(all, string(e.Name))
	}
	return strings.Join(all, " or ")
}

// checkOutput checks --output, of which a command takes these values.
func checkOutput(output string, values ...string) error {
	if slices.Contains(values, output) {
		return nil
	}
	return usage("--output %q: must be %s", output, strings.Join(values, " or "))
}
