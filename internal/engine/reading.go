package engine

import (
	"bytes"
	"fmt"
	"math"

	"github.com/lastcall-dev/lastcall/api/names"
)

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
	// Value is folded over the gauge's samples; zero unless Present.
	Value float64 `json:"value"`
	// Present means that the body has a valid sample of the gauge.
	Present bool `json:"present"`
}

// Reading is what a /metrics body says about the requests in flight.
type Reading struct {
	Verdict Verdict
	// InFlight is the sum of the gauges, for Busy. It is a lower bound where Detail
	// says that something is wrong.
	InFlight float64
	// Reason is one of names.Read*, for Unknown; else empty.
	Reason string
	// Detail is one clause for people that says what is wrong with the body, such
	// as "vllm:num_requests_waiting is missing". Empty when nothing is.
	Detail string
	// Gauges are in the order of the table.
	Gauges []GaugeValue
}

// Read says what a /metrics body proves. The drain hook follows the same rules,
// by number:
//
//  1. A body over MaxBody is Unknown (TooLarge), unread.
//  2. Lines end with LF; a CR before it and blanks (spaces and tabs) around a line
//     are dropped. The last line may lack its LF.
//  3. If the first line that is not blank is neither a comment nor begins with a
//     metric name and then a blank or a brace, the body is Unknown (NotMetrics).
//     An empty body is Unknown (GaugesMissing).
//  4. Only the lines of listed families count. A line belongs to the family whose
//     name is all that stands before the first brace or blank.
//  5. A TYPE line that calls a listed family anything but gauge, untyped or
//     unknown is invalid wherever it stands, and the family's samples are not
//     read.
//  6. A sample is name, labels, value; after the value only a timestamp (any
//     number) and an exemplar ("# ...") may follow. Anything else is invalid.
//  7. A sample that has a value for a breakdown label is skipped, value unseen.
//  8. A value that is NaN, infinite or below zero is invalid.
//  9. Of samples of one gauge that have the same labels, copy labels and former
//     names apart, the largest counts; the gauge is the sum of those.
//  10. A gauge above zero is Busy, whatever else the body holds (rules 1 and 3
//     apart).
//  11. Otherwise anything invalid is Unknown (InvalidValue), and an expected
//     gauge without a valid sample is Unknown (GaugesMissing).
//  12. Otherwise the engine is Idle.
func (e Engine) Read(body []byte) Reading {
	r := Reading{Verdict: Unknown, Gauges: make([]GaugeValue, len(e.Gauges))}
	for i, g := range e.Gauges {
		r.Gauges[i].Name = g.Name
	}
	if len(body) > MaxBody {
		r.Reason = names.ReadTooLarge
		r.Detail = fmt.Sprintf("the body has %d bytes, more than %d", len(body), MaxBody)
		return r
	}
	if !startsAsMetrics(body) {
		r.Reason = names.ReadNotMetrics
		r.Detail = "the body is not Prometheus text"
		return r
	}
	s := e.scan(body)
	for i := range r.Gauges {
		r.Gauges[i].Value, r.Gauges[i].Present = s.folded(i)
		r.InFlight += r.Gauges[i].Value
	}
	r.InFlight = min(r.InFlight, math.MaxFloat64)
	r.Reason, r.Detail = e.complaint(body, s, r.Gauges)
	switch {
	case r.InFlight > 0:
		r.Verdict, r.Reason = Busy, ""
	case r.Reason == "":
		r.Verdict = Idle
	}
	return r
}

// complaint says why the body does not prove idleness; empty when it does.
func (e Engine) complaint(body []byte, s *scan, gauges []GaugeValue) (reason, detail string) {
	if s.invalid != "" {
		return names.ReadInvalidValue, s.invalid
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return names.ReadGaugesMissing, "the body is empty"
	}
	for i, g := range e.Gauges {
		switch {
		case gauges[i].Present || g.Optional:
		case s.declared[i]:
			return names.ReadGaugesMissing, g.Name + " has no sample"
		default:
			return names.ReadGaugesMissing, g.Name + " is missing"
		}
	}
	return "", ""
}

// startsAsMetrics is rule 3.
func startsAsMetrics(body []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(body, " \t\r\n"), []byte{'\n'})
	if len(line) == 0 || line[0] == '#' {
		return true
	}
	name, rest := cutName(line)
	return isMetricName(name) && len(rest) > 0
}

func isMetricName(name []byte) bool {
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == ':'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0
}
