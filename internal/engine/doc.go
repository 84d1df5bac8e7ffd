// Package engine says what an inference engine is to lastcall: how one is
// recognized in a container, where it serves its metrics, which gauges count
// the requests it holds, and how a /metrics body becomes a Reading.
//
// One table (table.go) names all of it. The drain hook, the reads of the
// retirement protocol, the command line and the documentation are made from
// that table, so they cannot disagree; nothing else in the tree names a gauge.
// Adding an engine is adding a row and its fixtures.
//
// The package is pure: bytes and strings in, values out.
package engine
