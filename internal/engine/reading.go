package engine

// MaxBody is the largest /metrics body that is read, in bytes. A larger one is
// Unknown: engines serve hundreds of kilobytes at the most.
const MaxBody = 1 << 20

// Verdict is what a read of an engine's gauges says.
type Verdict string

// The verdicts.
const (
	// Idle: every expected gauge is there and all are zero.
	Idle Verdict = "Idle"
	// Busy: a gauge is above zero, whatever else is missing.
	Busy Verdict = "Busy"
	// Unknown: the body cannot prove that nothing is in flight. It is never read
	// as idle.
	Unknown Verdict = "Unknown"
)
