// Package docs_test keeps the tables of the documentation equal to the tables
// of the code. Run with -update to rewrite them.
package docs_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

var update = flag.Bool("update", false, "rewrite the tables in the documents")

func TestEnginesTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| engine | default port | gauges that are added | added where present | its gauges can lag by |\n|---|---|---|---|---|\n")
	for _, e := range engine.All() {
		var expected, optional []string
		for _, g := range e.Gauges {
			name := "`" + g.Name + "`"
			for _, former := range g.Formerly {
				name += " (formerly `" + former + "`)"
			}
			if g.Optional {
				optional = append(optional, name)
			} else {
				expected = append(expected, name)
			}
		}
		fmt.Fprintf(&table, "| `%s` | %d | %s | %s | %d s |\n", e.Name, e.DefaultPort,
			strings.Join(expected, "<br>"), strings.Join(optional, "<br>"), int(e.Refresh.Seconds()))
	}
	requireBlock(t, "engines.md", "engines", table.String())
}

func TestUnmeasurableTable(t *testing.T) {
	var table strings.Builder
	table.WriteString("| the engine | its hook | what to change |\n|---|---|---|\n")
	for _, u := range engine.Unmeasurables() {
		hook := "ends after the settle"
		if u.Holds() {
			hook = "waits to the deadline"
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", u.When(), hook, u.Advice())
	}
	requireBlock(t, "engines.md", "unmeasurable", table.String())
}

// requireBlock compares what stands between the markers of a table with want.
func requireBlock(t *testing.T, file, name, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	begin, end := "<!-- table: "+name+" -->\n", "<!-- end -->"
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found, "%s has no marker %q", file, begin)
	got, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s has no marker %q after it", file, end)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(before+begin+want+end+after), 0o644))
		return
	}
	require.Equal(t, want, got, "%s: run go test ./docs -update", file)
}
