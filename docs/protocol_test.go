package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

const protocolPage = "protocol.md"

// stories are those of internal/retire/testdata/traces that the page tells, of each
// the first in its file.
var stories = []struct{ file, title string }{
	{"scaled-down-idle", "Two idle replicas leave"},
	{"busy-then-idle", "A busy one finishes first"},
	{"still-busy-aborts", "One that stays busy is kept"},
	{"no-router", "Nobody can say whether clients are gone"},
	{"router-follows", "A router lets it go"},
	{"router-told", "A router that has to be told"},
	{"router-holds", "A router holds a request for it"},
	{"refused-does-not-block-others", "Nobody waits for another"},
	{"mark-lost", "Somebody gives it back to its Services"},
	{"deletion-takes-over", "The ModelDeployment is deleted in between"},
	{"kueue-workload", "Kueue has admitted it"},
	{"host-restarts-between-any-two-writes", "The retirer is killed after every write"},
}

func TestStatesTable(t *testing.T) {
	bounds := map[v1alpha1.RetirementState]string{
		v1alpha1.StateWithdrawing: seconds(retire.DefaultWithdraw) + " after it was last busy, and that of Draining",
		v1alpha1.StateDraining:    seconds(retire.DefaultDrain) + "; with all before it " + seconds(retire.DefaultTotal),
		v1alpha1.StateDeleting:    "that of Draining, where a delete was refused",
		v1alpha1.StateSettling:    "the Pods' grace and " + seconds(retire.SettleSlack),
	}
	page, err := os.ReadFile(protocolPage)
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| state | meaning | for at most |\n|---|---|---|\n")
	for _, state := range statesOf(t) {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", state.value, state.meaning, bounds[v1alpha1.RetirementState(state.value)])
		require.Contains(t, string(page), "--> "+state.value, "the diagram leaves a state out")
	}
	requireBlock(t, protocolPage, "states", table.String())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%d s", int(d.Seconds())) }

// statesOf are the states in their order, with the sentences that document them.
func statesOf(t *testing.T) (all []constant) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), "../api/v1alpha1/retirement_types.go", nil, parser.ParseComments)
	require.NoError(t, err)
	ast.Inspect(source, func(n ast.Node) bool {
		c, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(c.Names[0].Name, "State") {
			return true
		}
		literal, ok := c.Values[0].(*ast.BasicLit)
		require.True(t, ok)
		value, err := strconv.Unquote(literal.Value)
		require.NoError(t, err)
		all = append(all, constant{value, meaning(c.Names[0].Name, c.Doc.Text())})
		return true
	})
	require.Len(t, all, 8)
	return all
}

func TestStories(t *testing.T) {
	var text strings.Builder
	for _, story := range stories {
		trace, err := os.ReadFile("../internal/retire/testdata/traces/" + story.file + ".txt")
		require.NoError(t, err)
		fmt.Fprintf(&text, "\n### %s\n%s", story.title, told(string(trace)))
	}
	requireBlock(t, protocolPage, "stories", text.String()+"\n")
}

// told is the first story of a trace as a reader has it: comments are prose, commands
// and what came of them are one block.
func told(trace string) string {
	first, _, _ := strings.Cut(trace, "\nnew\n")
	var text strings.Builder
	in := ""
	command := true
	enter := func(what string) {
		if in == "code" && what != in {
			text.WriteString("```\n")
		}
		if what != in && what != "" {
			text.WriteString("\n")
		}
		if what == "code" && what != in {
			text.WriteString("```text\n")
		}
		in = what
	}
	for line := range strings.Lines(first) {
		line = strings.TrimRight(line, "\n")
		switch prose, comment := strings.CutPrefix(line, "# "); {
		case comment:
			enter("prose")
			text.WriteString(prose + "\n")
		case line == "----":
			command = false
		case line == "":
			command = true
		case command:
			enter("code")
			text.WriteString("> " + line + "\n")
		default:
			enter("code")
			text.WriteString(line + "\n")
		}
	}
	enter("")
	return text.String()
}
