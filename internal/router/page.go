package router

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// processStart is when a process began to run, in seconds since 1970.
const processStart = "process_start_time_seconds"

// page is what a /metrics page says of some families, by their names.
type page map[string][]sample

// sample is one series with its value.
type sample struct {
	labels []*dto.LabelPair
	value  float64
}

// label is a label's value; empty where it is not there.
func (s *sample) label(name string) string {
	for _, l := range s.labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// readPage reads the lines of some families, and of processStart. One of those lines
// that cannot be read, or is there twice, or a page that ends in the middle of a line,
// makes it nothing: what it does not list would be taken for absent.
func readPage(body []byte, families ...string) (page, error) {
	if len(body) > 0 && body[len(body)-1] != '\n' {
		return nil, errors.New("its metrics end in the middle of a line")
	}
	families = append(families, processStart)
	var listed [][]byte
	for line := range bytes.Lines(body) {
		line = bytes.Trim(line, " \t\r\n")
		name := line
		if end := bytes.IndexAny(line, "{ \t"); end >= 0 {
			name = line[:end]
		}
		if slices.Contains(families, string(name)) {
			listed = append(listed, line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(append(bytes.Join(listed, []byte{'\n'}), '\n')))
	if err != nil {
		return nil, errors.New("its metrics have a line that cannot be read") // the error quotes it
	}
	p := make(page, len(parsed))
	seen := make(map[string]bool, len(listed))
	for name, family := range parsed {
		for _, m := range family.GetMetric() {
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			key := name
			for _, l := range m.Label {
				key = string(strconv.AppendQuote(append([]byte(key), l.GetName()...), l.GetValue()))
			}
			if seen[key] {
				return nil, fmt.Errorf("its metrics have a series of %s twice", name)
			}
			seen[key] = true
			p[name] = append(p[name], sample{m.Label, m.GetUntyped().GetValue()})
		}
	}
	return p, nil
}

// first are the samples of the first family that has any.
func (p page) first(families ...string) []sample {
	for _, name := range families {
		if len(p[name]) > 0 {
			return p[name]
		}
	}
	return nil
}

// run is a run of a process, given the name of the container's. A name that has the
// start in it already gets the one that the page has now.
func (p page) run(container string) string {
	all := p[processStart]
	if len(all) != 1 || container == "" {
		return container
	}
	container, _, _ = strings.Cut(container, "@")
	return container + "@" + strconv.FormatFloat(all[0].value, 'f', -1, 64)
}

// tally is what some series come to together.
type tally struct {
	series int
	sum    float64
	// broken is whether one is no number of things: below zero, infinite or a part.
	broken bool
}

func (t *tally) add(value float64) {
	t.series++
	t.sum += value
	t.broken = t.broken || value < 0 || value != math.Trunc(value) || value > 1<<53
}

func (t *tally) join(o tally) {
	t.series += o.series
	t.sum += o.sum
	t.broken = t.broken || o.broken
}
