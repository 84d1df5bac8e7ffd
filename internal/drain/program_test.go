package drain

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

var loopback = engine.Endpoint{Scheme: "http", Hosts: []string{"127.0.0.1", "::1"}, Port: 8000, Path: "/metrics"}

func TestTheWindowOfAGracePeriod(t *testing.T) {
	for grace, window := range map[Grace][2]time.Duration{
		15:   {10 * time.Second, 12 * time.Second},
		30:   {25 * time.Second, 27 * time.Second},
		3600: {3595 * time.Second, 3597 * time.Second},
		// Outside the range, the nearest one inside.
		-1:      {10 * time.Second, 12 * time.Second},
		1 << 62: {3595 * time.Second, 3597 * time.Second},
	} {
		assert.Equal(t, window, [2]time.Duration{grace.ReadsUntil(), grace.SignalBy()}, "G = %d", grace)
	}
}

func TestTheCommandIsSmallAndPlain(t *testing.T) {
	for _, e := range engine.All() {
		argv := Command(e, loopback, MaxGraceSeconds)
		require.Len(t, argv, 5)
		size := 0
		for _, argument := range argv {
			size += len(argument)
			assert.NotContains(t, argument, "$(VAR)")
		}
		assert.Less(t, size, 16<<10)
		t.Logf("the hook of %s has %d bytes", e.Name, size)
		program := argv[4]
		assert.Equal(t, Program(e, loopback, MaxGraceSeconds), program)
		// A YAML reader shows text as it is only without these.
		assert.NotRegexp(t, `[^\n -~]`, program, "something that is not printable ASCII")
		assert.NotRegexp(t, `(?m) $`, program, "a blank at the end of a line")
		assert.NotContains(t, program, "#:")
		assert.Contains(t, program, "internal/drain/hook.py", "where the source is")
	}
}

func TestTheProgramIsRenderedFromTheTable(t *testing.T) {
	sglang, _ := engine.Lookup(engine.SGLang)
	program := Program(sglang, engine.Endpoint{Scheme: "https", Hosts: []string{"127.0.0.1", "fd00::1"}, Port: 30001, Path: "/\"'\\m\n$x"}, 30)
	for _, line := range []string{
		`OPTIONAL = ["sglang:num_grammar_queue_reqs","sglang:num_decode_host_receive_queue_reqs"]`,
		`BREAKDOWN = ["priority"]`, `COPY = ["tp_rank"]`, `SCHEME = "https"`, `HOSTS = ["127.0.0.1","fd00::1"]`, `PORT = 30001`,
		`PATH = "/\"'\\m\n$x"`, `SETTLE = 5`, `LAST = 25`, `END = 27`, `INTERVAL = 1`, `LIMIT = 2`, `LOG_EVERY = 10`, `IN_A_ROW = 2`,
		`MAX_BODY = 1048576`, `PROC = "/proc"`,
	} {
		assert.Contains(t, program, line+"\n")
	}
	for _, gauge := range sglang.Gauges {
		for _, name := range append([]string{gauge.Name}, gauge.Formerly...) {
			assert.Contains(t, program, fmt.Sprintf("%q", name))
		}
	}
	assert.NotContains(t, program, "vllm:")
	assert.Equal(t, program, Program(sglang, engine.Endpoint{Scheme: "https", Hosts: []string{"127.0.0.1", "fd00::1"}, Port: 30001, Path: "/\"'\\m\n$x"}, 30))
	for _, end := range []string{names.EndDrained, names.EndDeadline, names.EndNothingToMeasure} {
		assert.Contains(t, program, `"`+end+`: `)
	}
}

func TestOursIsKnownByItsMarker(t *testing.T) {
	vllm, _ := engine.Lookup(engine.VLLM)
	ours := Command(vllm, loopback, 30)
	assert.True(t, IsHook(ours))
	older := append([]string{}, ours...)
	older[3], older[4] = marker+"0", "print()"
	assert.True(t, IsHook(older), "of another version")
	assert.True(t, IsHook([]string{"/lastcall-hook", marker + "12"}), "of another shape")
	assert.False(t, IsHook(nil))
	assert.False(t, IsHook([]string{"/bin/sh", "-c", "sleep 15"}))
	assert.False(t, IsHook([]string{"/bin/sh", "-c", "# like " + marker + "1\nsleep 15"}), "a user's own that speaks of ours")
}

func TestTheProgramIsPythonOfAllSupportedVersions(t *testing.T) {
	for _, e := range engine.All() {
		program := Program(e, loopback, 30)
		for _, python := range pythons(t) {
			out, err := exec.Command(python, "-W", "error", "-I", "-S", "-c", "import sys; compile(sys.argv[1], 'hook', 'exec')", program).CombinedOutput()
			require.NoError(t, err, "%s: %s", python, out)
		}
		// The suite's own python3 can tell for the oldest.
		out, err := exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.argv[1], feature_version=(3, 6))", program).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestTheSourceReadsWell(t *testing.T) {
	for file, source := range map[string]string{"fetch.py": fetchSource, "hook.py": hookSource} {
		for i, line := range strings.Split(source, "\n") {
			assert.LessOrEqual(t, len(line), 120, "%s:%d", file, i+1)
		}
	}
}
