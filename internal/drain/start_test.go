package drain

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
)

// sleeper is a PATH with sleep and these programs.
func sleeper(t *testing.T, programs map[string]string) []string {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	programs["sleep"] = sleep
	return []string{withPath(t, programs)}
}

func TestAnImageWithoutAWorkingPythonStillGetsTheSettle(t *testing.T) {
	script := func(t *testing.T, text string) map[string]string {
		return map[string]string{"python3": writeFile(t, t.TempDir(), "python3", "#!/bin/sh\n"+text+"\n")}
	}
	images := map[string]map[string]string{
		"no python3":                         {},
		"a python3 that fails":               script(t, "exit 1"),
		"a python3 that is killed":           script(t, "kill -9 $$"),
		"a python3 of another machine":       {"python3": writeFile(t, t.TempDir(), "python3", "\x7fELF\x02\x01\x01\x00")},
		"a python3 whose interpreter is not": {"python3": writeFile(t, t.TempDir(), "python3", "#!/nonexistent\n")},
	}
	for name, programs := range images {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := serving(t, text(idleBody))
			r := run{endpoint: l.Endpoint, times: patient, env: sleeper(t, programs), proc: fakeProc(t), noisy: true}
			ended := r.hook(t)
			assert.GreaterOrEqual(t, ended.took, Settle)
			assert.Less(t, ended.took, Settle+2*slack)
			assert.Zero(t, l.reads.Load())
		})
	}
}

func TestAPythonThatCannotDoWhatTheHookNeedsStillGetsTheSettle(t *testing.T) {
	t.Parallel()
	// A Python 2 under the name of python3, or one without its library.
	r := run{program: "raise ImportError", proc: fakeProc(t), noisy: true}
	ended := r.hook(t)
	assert.GreaterOrEqual(t, ended.took, Settle)
}

func TestAHookThatFailsInItselfStillGivesTheSettleAndExitsZero(t *testing.T) {
	t.Parallel()
	proc, log := procWithLog(t)
	// A constant of the wrong type is a fault outside every read.
	program := strings.Replace(renderFor(t, closedPort(t).Endpoint, patient, proc), "LAST = 20\n", "LAST = None\n", 1)
	require.Contains(t, program, "LAST = None")
	dir := t.TempDir()
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	slept := filepath.Join(dir, "slept")
	path := withPath(t, map[string]string{
		"python3": python,
		"sleep":   writeFile(t, dir, "sleep", "#!/bin/sh\n: > "+slept+"\n"),
	})
	ended := run{program: program, proc: proc, env: []string{path}}.hook(t)
	assert.GreaterOrEqual(t, ended.took, patient.settle)
	assert.NoFileExists(t, slept, "the shell must not settle a second time")
	for _, line := range readLog(t, log) {
		assert.NotContains(t, line.text, names.EndDrained)
	}
}

func TestEveryPythonRunsTheProgram(t *testing.T) {
	listeners := map[string]struct {
		start func(*testing.T) *listener
		times times
		end   string
	}{
		"idle over TLS": {func(t *testing.T) *listener { return servingTLS(t, nil, text(idleBody)) }, patient, names.EndDrained},
		"dripping over TLS": {func(t *testing.T) *listener {
			return accepting(t, "https", overTLS(untrusted(t), drip(withLength(1<<19, idleBody), " ")))
		}, hasty, names.EndDeadline},
		"stalled in the handshake": {func(t *testing.T) *listener { return accepting(t, "https", hang) }, hasty, names.EndDeadline},
		"cut in a chunk": {func(t *testing.T) *listener {
			return accepting(t, "http", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n"+idleBody))
		}, brief, names.EndDeadline},
		"reset before an answer": {func(t *testing.T) *listener { return accepting(t, "https", reset("")) }, patient, names.EndNothingToMeasure},
	}
	for _, python := range pythons(t) {
		t.Run(python, func(t *testing.T) {
			t.Parallel()
			for name, l := range listeners {
				// A read that is broken off leaves a socket to the garbage collector, which
				// Python reports where warnings are errors.
				ended := run{endpoint: l.start(t).Endpoint, times: l.times, python: python, noisy: l.times == hasty}.hook(t)
				assert.Equal(t, l.end, endOf(t, ended), name)
				assert.Less(t, ended.last().at, l.times.last+slack, name)
			}
		})
	}
}
