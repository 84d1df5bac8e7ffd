package drain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

func TestTheLogTellsTheStory(t *testing.T) {
	t.Parallel()
	l := serving(t, inTurn(text(busyBody), text(busyBody), text(missingBody), status(503), text(idleBody)))
	ended := run{endpoint: l.Endpoint, times: patient}.hook(t)
	texts := ended.texts()
	require.Len(t, texts, 6)
	assert.Regexp(t, `^the engine serves on; its gauges are read on port \d+ from 0.2 s to 20 s$`, texts[0])
	assert.Equal(t, []string{
		"4 in flight: vllm:num_requests_running 3, vllm:num_requests_waiting 1",
		"unknown: vllm:num_requests_waiting is missing",
		"the answer is 503",
		"idle",
		"Drained: nothing is in flight",
	}, texts[1:])
}

func TestTheDeadlineSaysWhetherTheCountsEverMoved(t *testing.T) {
	t.Parallel()
	moving := strings.ReplaceAll(busyBody, "3.0", "2.0")
	for last, handler := range map[string]func(*testing.T) *listener{
		"Deadline: 4 in flight: vllm:num_requests_running 3, vllm:num_requests_waiting 1, the same in every read": func(t *testing.T) *listener {
			return serving(t, text(busyBody))
		},
		"Deadline: 3 in flight: vllm:num_requests_running 2, vllm:num_requests_waiting 1": func(t *testing.T) *listener {
			return serving(t, inTurn(text(busyBody), text(moving)))
		},
	} {
		ended := run{endpoint: handler(t).Endpoint, times: brief}.hook(t)
		assert.Equal(t, last, ended.last().text)
	}
}

func TestTheLogIsNeverSilentForLong(t *testing.T) {
	t.Parallel()
	often := brief
	often.logEvery = 300 * time.Millisecond
	ended := run{endpoint: serving(t, text(busyBody)).Endpoint, times: often}.hook(t)
	// Reads that all see the same from 0.2 s to 1.5 s: a line at first and then
	// every 0.3 s or more.
	assert.GreaterOrEqual(t, len(ended.lines), 4, ended.texts())
	assert.LessOrEqual(t, len(ended.lines), 7, ended.texts())
}

// idleRun is a hook that drains at once, whose log is in this procfs.
func idleRun(t *testing.T, proc string) {
	t.Helper()
	run{endpoint: serving(t, text(idleBody)).Endpoint, times: patient, proc: proc}.hook(t)
}

func TestTheLogIsTheOutputOfTheContainersFirstProcess(t *testing.T) {
	stories := map[string]struct {
		processes []process
		logs      string // the process whose output is the log
	}{
		"PID 1": {[]process{{pid: 1, started: 5}, {pid: 7, started: 50}}, "1"},
		"PID 1 is another container's, as in a shared process namespace": {
			[]process{{pid: 1, started: 1, cgroup: "0::/kubepods/pause\n"}, {pid: 9, started: 70}, {pid: 12, started: 30}}, "12"},
		"a process whose number came round again": {[]process{{pid: 300, started: 5}, {pid: 2, started: 50}}, "300"},
		"two that started in the same tick":       {[]process{{pid: 8, started: 5}, {pid: 11, started: 5}}, "8"},
		"beside one that is just gone":            {[]process{{pid: 1, stat: "1 (sh"}, {pid: 4, started: 9}}, "4"},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc := fakeProc(t, story.processes...)
			logs := make(map[string]*os.File)
			for _, p := range story.processes {
				fifo := filepath.Join(proc, pidOf(p), "fd", "1")
				require.NoError(t, syscall.Mkfifo(fifo, 0o600))
				logs[pidOf(p)] = openLog(t, fifo)
			}
			idleRun(t, proc)
			for pid, log := range logs {
				lines := readLog(t, log)
				if pid != story.logs {
					assert.Empty(t, lines, pid)
					continue
				}
				require.NotEmpty(t, lines)
				assert.Contains(t, lines[len(lines)-1].text, names.EndDrained)
			}
		})
	}
}

func TestALogThatCannotBeWrittenChangesNothing(t *testing.T) {
	stories := map[string]func(t *testing.T, stdout string){
		"no /proc/1/fd/1": func(*testing.T, string) {},
		"a regular file, which stays as it is": func(t *testing.T, stdout string) {
			require.NoError(t, os.WriteFile(stdout, []byte("untouched"), 0o600))
			t.Cleanup(func() {
				text, err := os.ReadFile(stdout)
				assert.NoError(t, err)
				assert.Equal(t, "untouched", string(text))
			})
		},
		"a directory": func(t *testing.T, stdout string) { require.NoError(t, os.Mkdir(stdout, 0o755)) },
		"a socket": func(t *testing.T, stdout string) {
			require.NoError(t, syscall.Mknod(stdout, syscall.S_IFSOCK|0o600, 0))
		},
		"a character device": func(t *testing.T, stdout string) { require.NoError(t, os.Symlink("/dev/null", stdout)) },
		"a pipe nobody reads": func(t *testing.T, stdout string) {
			require.NoError(t, syscall.Mkfifo(stdout, 0o600))
		},
		"a pipe that is full": func(t *testing.T, stdout string) {
			require.NoError(t, syscall.Mkfifo(stdout, 0o600))
			full, err := syscall.Open(stdout, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
			require.NoError(t, err)
			t.Cleanup(func() { _ = syscall.Close(full) })
			for err == nil {
				_, err = syscall.Write(full, make([]byte, 4096))
			}
			require.ErrorIs(t, err, syscall.EAGAIN)
		},
		"a file that may not be written": func(t *testing.T, stdout string) {
			require.NoError(t, syscall.Mkfifo(stdout, 0))
		},
	}
	for name, prepare := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proc := fakeProc(t, process{pid: 1, started: 5})
			prepare(t, filepath.Join(proc, "1", "fd", "1"))
			idleRun(t, proc)
		})
	}
	t.Run("no procfs", func(t *testing.T) {
		t.Parallel()
		idleRun(t, filepath.Join(t.TempDir(), "nowhere"))
	})
	t.Run("a procfs without processes", func(t *testing.T) {
		t.Parallel()
		idleRun(t, fakeProc(t))
	})
}

// TestTheLogInARealProcfs runs the command as it is rendered for a Pod in a PID
// namespace of its own, so that no other process's output can be found.
func TestTheLogInARealProcfs(t *testing.T) {
	t.Parallel()
	unshare := []string{"unshare", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "exit 0")...).CombinedOutput(); err != nil {
		t.Skipf("this user may not make a PID namespace, so no procfs can be had in which the hook is alone: %s", out)
	}
	e, _ := engine.Lookup(engine.VLLM)
	argv := command(render(e, serving(t, text(idleBody)).Endpoint, patient, "/proc"))
	// The shell is the container's first process; the hook's own output is nowhere,
	// as the kubelet leaves it.
	script := `(exec "$@" >/dev/null 2>&1); echo "exit code $?"`
	cmd := exec.CommandContext(t.Context(), unshare[0], append(append(unshare[1:], script, "sh"), argv...)...)
	output, err := cmd.Output()
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	require.Len(t, lines, 4, lines)
	assert.Regexp(t, `^lastcall: drain: \d\.\d s: the engine serves on`, lines[0])
	assert.Regexp(t, `^lastcall: drain: \d\.\d s: Drained: nothing is in flight$`, lines[2])
	assert.Equal(t, "exit code 0", lines[3])
}

func TestWithoutAPortNothingIsReadAndTheDeadlineEnds(t *testing.T) {
	t.Parallel()
	idle := serving(t, text(idleBody)).Endpoint
	idle.Port = 0
	ended := run{endpoint: idle, times: brief}.hook(t)
	assert.Equal(t, []string{
		"the engine serves on to 1.5 s: its requests cannot be counted",
		"Deadline: requests may be in flight",
	}, ended.texts())
	assert.GreaterOrEqual(t, ended.last().at, brief.last)
}
