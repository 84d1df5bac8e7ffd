package drain

import "time"

const (
	// Settle is how long the engine serves on before its gauges are read, so that
	// a request routed to it just before the delete still arrives. Routers drop a
	// Pod on its deletion timestamp, but not all at once.
	Settle = 5 * time.Second
	// ExitReserve is the end of the grace period that belongs to the engine's own
	// exit: no read starts in it.
	ExitReserve = 5 * time.Second
	// ReadInterval is the time between the starts of two reads.
	ReadInterval = time.Second
	// ReadLimit is the wall time one read may take, over all its addresses.
	ReadLimit = 2 * time.Second
	// LogInterval is the longest silence in the container's log between two reads.
	LogInterval = 10 * time.Second
	// IdleReads is how many reads in a row that are idle end the hook, and how many
	// that find nothing to measure. One could fall between two requests, or into
	// the second by which an engine's gauges trail its work.
	IdleReads = 2
)

// The grace periods that lastcall sets, in seconds. The least leaves a window of
// five seconds between the settle and the exit reserve.
const (
	MinGraceSeconds     = 15
	MaxGraceSeconds     = 3600
	DefaultGraceSeconds = 30
)

// HookVersion changes when the program behaves differently, never otherwise: a
// change turns every replica over once.
const HookVersion = "1"

// Grace is a termination grace period in seconds, and the arithmetic of its
// drain window. A value outside the range counts as the nearest one inside.
// Moments are from the start of the hook, which the kubelet starts 0.1 s after
// the delete, and up to 2 s after it when a node loses many Pods at once.
type Grace int64

// ReadsUntil is the latest moment at which a read starts.
func (g Grace) ReadsUntil() time.Duration { return g.duration() - ExitReserve }

// SignalBy is the latest moment at which the hook returns, and SIGTERM is sent.
func (g Grace) SignalBy() time.Duration { return g.ReadsUntil() + ReadLimit }

func (g Grace) duration() time.Duration {
	return time.Duration(min(max(g, MinGraceSeconds), MaxGraceSeconds)) * time.Second
}
