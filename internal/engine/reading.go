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

// GaugeValue is one gauge of the table as a body shows it.
type GaugeValue struct {
	// Name is the table's name, also where the body uses a former one.
	Name string `json:"name"`
	// Value is folded over the family's samples: zero unless Present.
	Value float64 `json:"value"`
	// Present means that the body has a valid sample of the gauge.
	Present bool `json:"present"`
}

// Reading is what a /metrics body says about the requests in flight.
type Reading struct {
	Verdict Verdict
	// InFlight is the sum of the gauges above zero, for Busy. It is a lower bound
	// where another gauge is missing.
	InFlight float64
	// Reason is one of names.Read*, for Unknown; else empty.
	Reason string
	// Detail is one clause for people, such as "vllm:num_requests_waiting is
	// missing". Empty for Idle.
	Detail string
	// Gauges are in the order of the table.
	Gauges []GaugeValue
}

// Read says what a /metrics body proves.
func (e Engine) Read(body []byte) Reading {
	return Reading{Verdict: Unknown}
}
