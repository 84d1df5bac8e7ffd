// Package drain is the drain window: how long an engine may take to leave once
// its Pod is deleted, and the program that spends that time.
//
// The program runs as the preStop hook of the engine's own container. It lets
// the engine serve for the settle, then reads the engine's gauges over loopback
// once a second, and returns when two reads in a row are idle; the kubelet sends
// SIGTERM when it returns. Program renders it for one engine, listener and grace
// period from the table of internal/engine; fetch.py and hook.py are its text.
//
// What a read tells it:
//
//   - nothing to measure: every address refuses the connection or is unreachable;
//     the connection is closed, reset or fails TLS before a status line, or what
//     comes is not HTTP; the answer is 4xx, 5xx, or a redirect that is to another
//     origin or the second one. Two such reads in a row end the hook.
//   - busy: the answer takes more than ReadLimit, has another status than 200, or
//     a body that is cut short or that engine.Read would call Busy or Unknown. So
//     is a read that fails in any other way: it is no statement of the engine's.
//   - idle: engine.Read would say Idle. Two such reads in a row end the hook.
//
// "In a row" is strict: a read of one kind starts the count of the others again.
//
// An engine whose gauges cannot be read (engine.Unmeasurable) gets the same
// program, and what its listener does decides as for any other. An endpoint
// without addresses is for a member that serves no metrics: every read finds
// nothing to measure, so its hook ends after the settle. One without a port is
// for several servers in one container: none can answer for the others, so its
// hook reads nothing and ends at the deadline.
//
// The program logs to the container's log, best effort, in lines such as
//
//	lastcall: drain: 6.0 s: 4 in flight: vllm:num_requests_running 3, vllm:num_requests_waiting 1
//	lastcall: drain: 14.1 s: Drained: nothing is in flight
//
// where the time is since its start and the last line begins with one of
// names.End*.
//
// The package is pure.
package drain
