package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/cli"
)

var fence = regexp.MustCompile("(?ms)^```([a-z]+) ?([a-z.]*)\n(.*?)^```$")

// TestTheDocumentedCommandsRun runs every command of docs/cli.md on the files it
// shows. What it says a command prints is compared; what only the reader's kubectl
// or diff can show is not. The cluster is testdata/docs-cluster.yaml.
func TestTheDocumentedCommandsRun(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, serve("testdata/docs-cluster.yaml", kubeconfig, t.Cleanup))
	t.Setenv("KUBECONFIG", kubeconfig)
	t.Chdir(t.TempDir())
	ran := 0
	for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
		language, file, content := block[1], block[2], block[3]
		switch {
		case file != "":
			require.NoError(t, os.WriteFile(filepath.Base(file), []byte(content), 0o600))
		case language == "console":
			command, want, _ := strings.Cut(strings.TrimPrefix(content, "$ "), "\n")
			require.Equal(t, want, run(t, command), command)
			ran++
		case language == "sh":
			for command := range strings.Lines(content) {
				command, _, _ = strings.Cut(command, "|")
				require.NotEmpty(t, run(t, command), command)
				ran++
			}
		}
	}
	require.GreaterOrEqual(t, ran, 17)
}

// run runs a command line without quotes and returns its standard output.
func run(t *testing.T, command string) string {
	t.Helper()
	args, ok := strings.CutPrefix(strings.TrimSpace(command), "kubectl lastcall ")
	require.True(t, ok, "%q is not a command of ours", command)
	var out, warnings bytes.Buffer
	code := cli.Run(strings.Fields(args), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &warnings, Clock: night})
	require.Less(t, code, 2, "%s: %s", command, warnings.String())
	require.Empty(t, warnings.String(), command)
	return out.String()
}

// TestEveryKeyOfTheReportIsDocumented holds the promise that the keys are stable.
func TestEveryKeyOfTheReportIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, serve("testdata/docs-cluster.yaml", kubeconfig, t.Cleanup))
	t.Setenv("KUBECONFIG", kubeconfig)
	keys := regexp.MustCompile(`"([a-zA-Z]+)":`).FindAllStringSubmatch(run(t, "kubectl lastcall status -A -o json")+
		run(t, "kubectl lastcall explain chat -n team-b -o json")+run(t, "kubectl lastcall finalizers -A -o json"), -1)
	require.Greater(t, len(keys), 100)
	for _, key := range keys {
		require.Regexp(t, "`(…|[a-zA-Z.]|\\[\\])*"+key[1]+"(\\[\\])?`", string(text))
	}
}
