// Package drain is the drain window: how long an engine may take to leave once
// its Pod is deleted, and the program that spends that time.
//
// The program runs as the preStop hook of the engine's own container. It lets
// the engine serve for the settle, then reads the engine's gauges over loopback
// once a second, and returns when two reads in a row are idle; the kubelet sends
// SIGTERM when it returns. Program renders it for one engine, listener and grace
// period from the table of internal/engine; hook.py is its text.
//
// What a read tells it:
//
//   - nothing to measure: every address refuses the connection or is unreachable;
//     the connection is closed, reset or fails TLS before a status line; the
//     answer is 4xx, 5xx, or a redirect to another origin or a second one. Two
//     such reads in a row end the hook.
//   - busy: the answer takes more than ReadLimit, its body is cut short, or
//     engine.Read would say Busy or Unknown of it.
//   - idle: engine.Read would say Idle. Two such reads in a row end the hook.
//
// "In a row" is strict: a read of one kind starts the count of the other kinds
// again.
//
// An engine whose gauges cannot be read (engine.Unmeasurable) gets the same
// program: what its listener does decides, as for any other.
//
// The package is pure.
package drain
