package cli_test

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lastcall-dev/lastcall/internal/cli"
)

var update = flag.Bool("update", false, "write the expected files of the scripts anew; read the difference before you commit it")

// night is when all stories are told.
var night = testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC))

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kubectl-lastcall": func() {
			os.Exit(cli.Run(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Clock: night}))
		},
	})
}

// TestScripts runs testdata/*.txtar: each is a story with its files, in the
// language of testscript and two commands of our own. A story with a cluster.yaml
// has an API server with these objects.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			objects, kubeconfig := filepath.Join(env.WorkDir, "cluster.yaml"), filepath.Join(env.WorkDir, "kubeconfig")
			if _, err := os.Stat(objects); err != nil {
				return nil //nolint:nilerr // a story that needs no cluster
			}
			env.Setenv("KUBECONFIG", kubeconfig)
			return serve(objects, kubeconfig, env.Defer)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":       exits,
			"cut-program": cutProgram,
		},
	})
}

// exits CODE PROGRAM ARG... runs a program that has to end with this code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v: exit code %d, want %d", args[1:], got, want)
	}
}

// cut-program FROM TO copies a file without the text of the hook's program, which
// has tests of its own.
func cutProgram(ts *testscript.TestScript, _ bool, args []string) {
	var out strings.Builder
	before, blank, program := "", "", -1 // program is the indentation of its list item
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		content := strings.TrimLeft(line, " ")
		indent := len(line) - len(content)
		switch {
		case program >= 0 && content == "\n":
			blank += line
			continue
		case program >= 0 && indent > program:
			blank = ""
			continue
		}
		out.WriteString(blank + line)
		blank, program = "", -1
		if content == "- |\n" && strings.Contains(before, "/drain-hook:") {
			program = indent
			out.WriteString(strings.Repeat(" ", indent) + "  (the program)\n")
		}
		before = line
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(out.String()), 0o600))
}
