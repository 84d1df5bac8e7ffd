package standin

import (
	"context"
	"time"
)

const (
	// watchdogPeriod is how often SGLang looks whether it was told to end and,
	// then, whether anything is in flight.
	watchdogPeriod = 5 * time.Second
	// splitRoleWait is what a prefill or decode server waits for its schedulers.
	splitRoleWait = 15 * time.Second
	// unwind bounds the time handlers have to notice that they were cut, and
	// then answers to leave.
	unwind = time.Second
)

// Terminate is SIGTERM.
func (e *Engine) Terminate() {
	e.mu.Lock()
	first := e.state.TerminatedAt.IsZero()
	if first {
		e.state.TerminatedAt = time.Now().UTC()
	}
	ignored := e.options.IgnoreSIGTERM || e.faults.IgnoreSIGTERM
	e.mu.Unlock()
	if !first {
		return
	}
	e.journal.write(Event{Event: Terminated})
	if !ignored {
		close(e.terminated)
	}
}

// Crash ends the engine at once, as an assertion or the OOM killer would.
func (e *Engine) Crash() { e.exit(1, "crashed") }

// leave waits for SIGTERM and then goes the way the engine goes.
func (e *Engine) leave(ctx context.Context) {
	if e.options.Kind == SGLang {
		e.leaveSGLang(ctx)
		return
	}
	select {
	case <-e.terminated:
	case <-ctx.Done():
		return
	}
	deadline := time.After(e.options.ShutdownTimeout)
	for e.options.ShutdownTimeout > 0 && e.State().InFlight > 0 {
		select {
		case <-e.ended:
		case <-deadline:
			e.exit(0, "shutdown timeout")
			return
		case <-ctx.Done():
			return
		}
	}
	e.exit(0, "terminated")
}

// leaveSGLang drains without limit and goes on serving, also new requests.
func (e *Engine) leaveSGLang(ctx context.Context) {
	tick := time.NewTicker(watchdogPeriod)
	defer tick.Stop()
	for told := false; !told || e.State().InFlight > 0; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-e.terminated:
			told = true
		default:
		}
	}
	if e.options.Role != "" {
		select {
		case <-time.After(splitRoleWait):
		case <-ctx.Done():
			return
		}
	}
	e.exit(0, "drained")
}

func (e *Engine) leaving() bool {
	select {
	case <-e.terminated:
		return true
	default:
		return false
	}
}

// exit cuts what is in flight and ends the engine. The first call decides.
func (e *Engine) exit(code int, reason string) {
	e.mu.Lock()
	if e.exiting {
		e.mu.Unlock()
		return
	}
	e.exiting, e.exitCode = true, code
	e.mu.Unlock()
	close(e.cut)
	deadline := time.After(unwind)
	for late := false; !late && e.State().InFlight > 0; {
		select {
		case <-e.ended:
		case <-deadline:
			late = true
		}
	}
	e.listener.shut()
	e.journal.write(Event{Event: Exiting, Reason: reason, Code: code})
	close(e.done)
}
