package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// sbin is where distributions keep iptables and ip, which a shell opened with su does not look into.
var sbin = ":/usr/sbin:/sbin"

func environment() []string {
	return append(os.Environ(), "PATH="+os.Getenv("PATH")+sbin)
}

// look finds a program in PATH or a system folder; it returns "" when there is none.
func look(name string) string {
	for dir := range strings.SplitSeq(os.Getenv("PATH")+sbin, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}

// run executes a short command. Its error has the command and its words.
func run(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, look(argv[0]), argv[1:]...)
	cmd.Env = environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// process is a component that was started. A process id alone does not name it: ids are used again.
type process struct {
	Name      string `json:"name"`
	PID       int    `json:"pid"`
	StartTime string `json:"startTime"` // in clock ticks since the machine booted, as /proc has it
}

func (p process) alive() bool {
	started, err := startTime(p.PID)
	return err == nil && started == p.StartTime
}

func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	// The second field, the name in parentheses, may hold spaces. The state is the third field, the time the 22nd.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat is cut short", pid)
	}
	if fields[0] == "Z" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// exited is the end of a component that should have gone on.
type exited struct{ name, how string }

// spawn starts argv in the cluster's cgroup, detached from this terminal, with its output in log/NAME.log, and records
// it in the cluster's state. It returns once the program runs, not once it is ready.
func (c *Cluster) spawn(name string, argv ...string) error {
	log, err := os.OpenFile(c.logPath(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	// The shell moves itself into the cgroup first, so that nothing the program forks can be outside.
	const enter = `for procs in $0; do echo $$ > "$procs" || exit 1; done; exec "$@"`
	// No context ends it: a component outlives the command that starts it.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", append([]string{"-c", enter, strings.Join(c.cgroup.members(), " ")}, argv...)...)
	cmd.Env = environment()
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	started, err := startTime(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, errors.Join(err, cmd.Wait()))
	}
	go func() {
		_ = cmd.Wait() // the process state says how it ended
		c.exits <- exited{name, cmd.ProcessState.String()}
	}()
	c.state.Processes = append(c.state.Processes, process{Name: name, PID: cmd.Process.Pid, StartTime: started})
	return c.save()
}

// start runs a component inside the cluster's namespaces.
func (c *Cluster) start(name string, argv ...string) error {
	enter := []string{look("nsenter"), "--target=" + strconv.Itoa(c.holder()), "--mount", "--net", "--"}
	return c.spawn(name, append(enter, argv...)...)
}

// Pause stops a component where it is, as a machine that hangs would, until resume is called.
func (c *Cluster) Pause(name string) (resume func() error, err error) {
	for _, p := range c.state.Processes {
		if p.Name != name || !p.alive() {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
			return nil, fmt.Errorf("pausing %s: %w", name, err)
		}
		return func() error { return syscall.Kill(p.PID, syscall.SIGCONT) }, nil
	}
	return nil, fmt.Errorf("pausing %s: no such component runs", name)
}

// Kill ends the processes of a Pod that run this program, by its path in its container, with SIGKILL.
func (c *Cluster) Kill(pod types.UID, program string) error {
	killed := 0
	for _, pid := range c.cgroup.pids() {
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil || string(line[:max(bytes.IndexByte(line, 0), 0)]) != program {
			continue
		}
		group, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
		if err != nil || !bytes.Contains(group, []byte("/pod"+pod+"/")) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) { // it has ended
			return fmt.Errorf("killing %s: %w", program, err)
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("killing %s: no process of Pod %s runs it", program, pod)
	}
	return nil
}

func (c *Cluster) logPath(name string) string { return filepath.Join(c.dir, "log", name+".log") }

// logEnd is a component's last log lines, for an error message.
func (c *Cluster) logEnd(name string) string {
	const lines, width = 15, 300
	content, err := os.ReadFile(c.logPath(name))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	text := fmt.Sprintf("the end of %s:", c.logPath(name))
	for _, line := range all[max(0, len(all)-lines):] {
		text += "\n  " + line[:min(len(line), width)]
	}
	return text
}
