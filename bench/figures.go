package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// A figure is one line of the table: what lastcall needs, and what its yardstick
// needed for the same in the same run.
type figure struct {
	what                string
	lastcall, yardstick float64
	unit                func(float64) string
	beside              string // what the yardstick is
}

// writeTable writes Markdown.
func writeTable(w io.Writer, figures []figure) error {
	text := "| | lastcall | yardstick | ratio | the yardstick |\n|---|--:|--:|--:|---|\n"
	for _, f := range figures {
		text += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", f.what, f.unit(f.lastcall), f.unit(f.yardstick), ratio(f.lastcall, f.yardstick), f.beside)
	}
	_, err := io.WriteString(w, text)
	return err
}

// ratio is a/b to two digits that mean something.
func ratio(a, b float64) string {
	switch r := a / b; {
	case b == 0:
		return "–"
	case r < 0.1:
		return fmt.Sprintf("%.3fx", r)
	default:
		return fmt.Sprintf("%.2fx", r)
	}
}

// The units of figures.
func seconds(s float64) string {
	if s < 1e-3 {
		return fmt.Sprintf("%.0f µs", s*1e6)
	}
	return fmt.Sprintf("%.2f ms", s*1e3)
}

func longer(s float64) string    { return fmt.Sprintf("%.1f s", s) }
func perSecond(n float64) string { return fmt.Sprintf("%.0f/s", n) }
func decimal(n float64) string   { return fmt.Sprintf("%.2f", n) }
func kibibytes(b float64) string { return fmt.Sprintf("%.1f KiB", b/(1<<10)) }
func mebibytes(b float64) string { return fmt.Sprintf("%.1f MiB", b/(1<<20)) }
func count(n float64) string     { return fmt.Sprintf("%.0f", n) }

// percentile is the smallest of the values that at least p of them, 0 < p <= 1,
// do not exceed. It sorts the values; there must be one.
func percentile[T time.Duration | float64](values []T, p float64) T {
	slices.Sort(values)
	return values[max(int(math.Ceil(p*float64(len(values)))), 1)-1]
}

// latencies are the two figures of a pair of samples.
func latencies(what string, lastcall, yardstick []time.Duration, beside string) []figure {
	at := func(name string, p float64) figure {
		return figure{what + ", " + name, percentile(lastcall, p).Seconds(), percentile(yardstick, p).Seconds(), seconds, beside}
	}
	return []figure{at("median", 0.5), at("p99", 0.99)}
}
