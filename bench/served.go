package main

import (
	"fmt"
	"os"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

// served is the file with what the engines on nodes that kwok plays serve: the
// gauges of every engine, so that one file does for all.
type served string

// inFlight makes every engine have so many requests from now on.
func (s served) inFlight(n int) error {
	partly := string(s) + ".partly"
	if err := os.WriteFile(partly, []byte(metrics(n)), 0o600); err != nil {
		return err
	}
	return os.Rename(partly, string(s))
}

func metrics(inFlight int) (text string) {
	for _, e := range engine.All() {
		for i, gauge := range e.Gauges {
			n := 0
			if i == 0 {
				n = inFlight
			}
			text += fmt.Sprintf("# TYPE %s gauge\n%s{engine=\"0\"} %d\n", gauge.Name, gauge.Name, n)
		}
	}
	return text
}
