package drain

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests run real programs that mostly sleep, so more of them than there are
	// processors can run at once.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	// A version manager's python3 is a shell script that takes longer to start than
	// Python itself: the hook finds the interpreter behind it.
	if path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		if err := os.Setenv("PATH", filepath.Dir(string(path))+":"+os.Getenv("PATH")); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// patient is for hooks that end by what they read. However busy the machine is, a
// listener that answers must not be taken for one that does not, and the window
// must not end before the second read.
var patient = times{
	settle:   200 * time.Millisecond,
	interval: 100 * time.Millisecond,
	limit:    20 * time.Second,
	last:     20 * time.Second,
	end:      40 * time.Second,
	logEvery: time.Minute,
}

// brief is for hooks that end at the deadline, with reads that end.
var brief = times{
	settle:   200 * time.Millisecond,
	interval: 100 * time.Millisecond,
	limit:    20 * time.Second,
	last:     1500 * time.Millisecond,
	end:      21500 * time.Millisecond,
	logEvery: time.Minute,
}

// hasty is for listeners that never finish answering.
var hasty = times{
	settle:   200 * time.Millisecond,
	interval: 100 * time.Millisecond,
	limit:    200 * time.Millisecond,
	last:     600 * time.Millisecond,
	end:      800 * time.Millisecond,
	logEvery: time.Minute,
}

// slack is how late a busy machine may wake the hook up.
const slack = 3 * time.Second

// run is one run of the hook's whole command.
type run struct {
	engine   engine.Name // vLLM where empty
	endpoint engine.Endpoint
	times    times
	env      []string // added to the test's own
	proc     string   // a procfs; where empty, one whose first process logs to a pipe
	program  string   // instead of the one rendered from the fields above
	python   string   // instead of the shell and the image's python3
	noisy    bool     // the shell may complain
}

// ended is how a run ended.
type ended struct {
	took  time.Duration
	lines []logLine
}

// logLine is one line of the container's log, "lastcall: drain: 0.4 s: text".
type logLine struct {
	at   time.Duration
	text string
}

func (e ended) texts() []string {
	var texts []string
	for _, line := range e.lines {
		texts = append(texts, line.text)
	}
	return texts
}

func (e ended) last() logLine {
	if len(e.lines) == 0 {
		return logLine{}
	}
	return e.lines[len(e.lines)-1]
}

// hook runs the command as the kubelet would and requires that it exits 0, in
// time.
func (r run) hook(t *testing.T) ended {
	t.Helper()
	if r.engine == "" {
		r.engine = engine.VLLM
	}
	e, ok := engine.Lookup(r.engine)
	require.True(t, ok)
	var log *os.File
	if r.proc == "" {
		r.proc, log = procWithLog(t)
	}
	if r.program == "" {
		r.program = render(e, r.endpoint, r.times, r.proc)
	}
	argv := command(r.program)
	if r.python != "" {
		argv = []string{r.python, "-W", "error", "-I", "-S", "-c", r.program}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), r.env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	started := time.Now() //nolint:forbidigo // how long a real program takes is what is tested
	err := cmd.Run()
	took := time.Since(started)
	require.NoError(t, err, "the hook must exit 0; it wrote %s", &output)
	if !r.noisy {
		require.Empty(t, output.String(), "the hook's own output goes nowhere but into failure events")
	}
	if log == nil {
		return ended{took: took}
	}
	return ended{took: took, lines: readLog(t, log)}
}

var logPattern = regexp.MustCompile(`^lastcall: drain: ([0-9.]+ s): (.*)$`)

func readLog(t *testing.T, log *os.File) []logLine {
	t.Helper()
	text, err := io.ReadAll(log)
	require.NoError(t, err)
	var lines []logLine
	for line := range strings.Lines(string(text)) {
		parts := logPattern.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		require.NotNil(t, parts, "the line %q", line)
		at, err := time.ParseDuration(strings.ReplaceAll(parts[1], " ", ""))
		require.NoError(t, err)
		lines = append(lines, logLine{at: at, text: parts[2]})
	}
	return lines
}

// procWithLog is a procfs of a container whose first process has a pipe as
// standard output, and that pipe's other end.
func procWithLog(t *testing.T) (string, *os.File) {
	t.Helper()
	proc := fakeProc(t, process{pid: 1, started: 10})
	fifo := filepath.Join(proc, "1", "fd", "1")
	require.NoError(t, syscall.Mkfifo(fifo, 0o600))
	return proc, openLog(t, fifo)
}

// openLog opens the reading end of a pipe, which must be there before the hook
// starts. A read ends when no one writes any more.
func openLog(t *testing.T, fifo string) *os.File {
	t.Helper()
	log, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

type process struct {
	pid     int
	started int    // field 22 of stat
	cgroup  string // the hook's own where empty
	stat    string // instead of a good one
}

func pidOf(p process) string { return strconv.Itoa(p.pid) }

const ownCgroup = "0::/kubepods/engine\n"

// fakeProc is a procfs in which the hook's own cgroup is ownCgroup. The
// processes have no open files yet.
func fakeProc(t *testing.T, processes ...process) string {
	t.Helper()
	proc := t.TempDir()
	write := func(text string, path ...string) {
		file := filepath.Join(append([]string{proc}, path...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(ownCgroup, "self", "cgroup")
	for _, p := range processes {
		pid := pidOf(p)
		if p.cgroup == "" {
			p.cgroup = ownCgroup
		}
		if p.stat == "" {
			p.stat = fmt.Sprintf("%d (a (b) c) S 0 1 1 0 -1 4194560 9 9 9 9 9 9 9 9 20 0 1 0 %d 99 99\n", p.pid, p.started)
		}
		write(p.cgroup, pid, "cgroup")
		write(p.stat, pid, "stat")
		require.NoError(t, os.MkdirAll(filepath.Join(proc, pid, "fd"), 0o755))
	}
	return proc
}

// pythons are the Python interpreters of this machine: the python3 that the suite
// needs, and every other version that can be found.
func pythons(t *testing.T) []string {
	t.Helper()
	python, err := exec.LookPath("python3")
	require.NoError(t, err, "the suite needs python3, which the hook runs on")
	found := []string{python}
	for _, pattern := range []string{"/usr/bin/python3", "/usr/local/bin/python3.*", os.Getenv("HOME") + "/.pyenv/versions/3.*/bin/python3"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range more {
			if path != python && exec.Command(path, "-I", "-S", "-c", "").Run() == nil {
				found = append(found, path)
			}
		}
	}
	return found
}

// withPath is a PATH that has these programs and nothing else.
func withPath(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, target := range programs {
		if err := os.Symlink(target, filepath.Join(dir, name)); !errors.Is(err, os.ErrExist) {
			require.NoError(t, err)
		}
	}
	return "PATH=" + dir
}

// renderFor is a vLLM hook.
func renderFor(t *testing.T, at engine.Endpoint, scale times, proc string) string {
	t.Helper()
	e, ok := engine.Lookup(engine.VLLM)
	require.True(t, ok)
	return render(e, at, scale, proc)
}
