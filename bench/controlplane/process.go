package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Process is a program that runs until the control plane is stopped.
type Process struct {
	Name string
	PID  int

	ended chan struct{} // closed once it has
	log   string
}

// Run starts a program. Environment is added to this process's own.
func (p *Plane) Run(program string, environment []string, args ...string) (*Process, error) {
	name := filepath.Base(program)
	process := &Process{Name: name, ended: make(chan struct{}), log: filepath.Join(p.dir, name+".log")}
	log, err := os.Create(process.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the program has its own
	cmd := exec.CommandContext(p.running, program, args...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	process.PID = cmd.Process.Pid
	go func() {
		_ = cmd.Wait() // it is killed, or its log says why it ended
		close(process.ended)
	}()
	p.processes = append(p.processes, process)
	return process, nil
}

// Check is an error once any program has ended, with its last words.
func (p *Plane) Check() error {
	for _, process := range p.processes {
		select {
		case <-process.ended:
			return fmt.Errorf("%s ended:\n%s", process.Name, process.lastWords())
		default:
		}
	}
	return nil
}

func (p *Process) lastWords() string {
	const lines = 15
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Wait waits until done, and ends with ctx or any program of the control plane.
func (p *Plane) Wait(ctx context.Context, what string, done func(context.Context) error) error {
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if ended := p.Check(); ended != nil {
			return fmt.Errorf("waiting for %s: %w", what, ended)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, last: %w", what, context.Cause(ctx), err)
		case <-p.pace():
		}
	}
}
