package drain

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

const (
	// Settle is how long the engine serves on before its gauges are read, so that
	// a request routed to it just before the delete still arrives.
	Settle = 5 * time.Second
	// ExitReserve is the end of the grace period that belongs to the engine's own
	// exit: no read starts in it.
	ExitReserve = 5 * time.Second
	// ReadInterval is the time between the starts of two reads.
	ReadInterval = time.Second
	// ReadLimit is the wall time one read may take, over all its addresses.
	ReadLimit = 2 * time.Second
	// LogInterval is the longest silence in the log after the settle.
	LogInterval = 10 * time.Second
	// IdleReads is how many idle reads in a row end the hook, and how many in a
	// row that find nothing to measure.
	IdleReads = 2
)

// The grace periods that lastcall sets, in seconds.
const (
	MinGraceSeconds     = 15
	MaxGraceSeconds     = 3600
	DefaultGraceSeconds = 30
)

// HookVersion changes when the program does what it does differently.
const HookVersion = "1"

// Program is the text of the hook for this engine, listener and grace period.
func Program(e engine.Engine, at engine.Endpoint, graceSeconds int64) string { return "" }

// Command is the argv of the preStop exec that runs Program.
func Command(e engine.Engine, at engine.Endpoint, graceSeconds int64) []string { return nil }

// IsHook reports whether a preStop command is a hook of lastcall's, of this or
// any other version.
func IsHook(command []string) bool { return false }
