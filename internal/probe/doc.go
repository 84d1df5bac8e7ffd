// Package probe reads the engine of one member from inside its container, through
// pods/exec: one read, bounded in time and size, that blocks nobody else.
//
// A read is, in this order:
//
//  1. the Pod on the API server: it is the one that is meant, it is not being
//     deleted, and its engine's container is in the run that is meant, and running;
//  2. a small program in that container (probe.py behind internal/drain's
//     fetch.py). It reads the established connections, if they are wanted, then
//     asks the engine for its metrics as the drain hook does, and says when the
//     container's first process was started;
//  3. the Pod on the API server again, as before: it has seen no restart meanwhile.
//     It can be a second late with that, which is what the start time is for: two
//     reads that differ in it are not of the same run.
//
// The body is judged here, by engine.Read. Whatever goes wrong on the way is a
// verdict Unknown with a reason, never Idle.
//
// Bounds: ReadLimit for all of it; drain.ReadLimit for the engine's answer;
// engine.MaxBody for the body. The program ends by itself within its own bound,
// because an exec runs on when its client is gone. A read that is over leaves no
// connection behind but one whose WebSocket is not answered yet, which ends with the
// time of the read; and no goroutine for more than the 30 s that client-go waits for
// a SPDY stream to be taken.
//
// The connection is a WebSocket, and SPDY where the upgrade to it is refused, by a
// proxy or because the verb is not granted: the former needs get on pods/exec (and
// create, on an API server of 1.35 or later), the latter create. There is no
// standard input and no terminal.
package probe
