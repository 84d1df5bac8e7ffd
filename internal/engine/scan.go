package engine

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

// scan is one pass over a body for one engine. Its slices are in the order of
// the engine's gauges.
type scan struct {
	engine Engine
	// families maps every listed name, former ones too, to its gauge.
	families map[string]int
	parser   expfmt.TextParser
	// values holds each gauge's largest value by label set.
	values []map[string]float64
	// declared marks gauges that have a TYPE line.
	declared []bool
	// notGauges holds listed names that a TYPE line calls something else.
	notGauges map[string]bool
	// invalid is the first complaint about a listed family.
	invalid string
}

// scan keeps the lines of listed families. A body is hundreds of kilobytes and
// the answer is six lines, so nothing else is parsed.
func (e Engine) scan(body []byte) *scan {
	s := &scan{
		engine:    e,
		families:  make(map[string]int),
		parser:    expfmt.NewTextParser(model.UTF8Validation),
		values:    make([]map[string]float64, len(e.Gauges)),
		declared:  make([]bool, len(e.Gauges)),
		notGauges: make(map[string]bool),
	}
	for i, g := range e.Gauges {
		s.families[g.Name] = i
		for _, name := range g.Formerly {
			s.families[name] = i
		}
	}
	var samples [][]byte
	for len(body) > 0 {
		var line []byte
		line, body, _ = bytes.Cut(body, []byte{'\n'})
		line = bytes.Trim(line, " \t\r")
		if len(line) == 0 {
			continue
		}
		if line[0] == '#' {
			s.comment(line)
			continue
		}
		name, _ := cutName(line)
		if _, listed := s.families[string(name)]; !listed {
			continue
		}
		if sample, err := trimSample(line); err != nil {
			s.complain("%s has a line that cannot be read: %v", name, err)
		} else {
			samples = append(samples, sample)
		}
	}
	s.fold(samples)
	return s
}

// cutName splits a sample line before its first brace or blank.
func cutName(line []byte) (name, rest []byte) {
	for i, c := range line {
		if c == '{' || c == ' ' || c == '\t' {
			return line[:i], line[i:]
		}
	}
	return line, nil
}

// comment notes the type of a listed family.
func (s *scan) comment(line []byte) {
	rest, isType := bytes.CutPrefix(bytes.TrimLeft(line[1:], " \t"), []byte("TYPE"))
	if !isType {
		return
	}
	fields := bytes.FieldsFunc(rest, isBlank)
	if len(fields) == 0 {
		return
	}
	gauge, listed := s.families[string(fields[0])]
	if !listed {
		return
	}
	s.declared[gauge] = true
	kind := strings.ToLower(string(bytes.Join(fields[1:], []byte{' '})))
	switch kind {
	case "gauge", "untyped", "unknown", "":
		return
	}
	s.notGauges[string(fields[0])] = true
	s.complain("%s is declared as %s, not as gauge", fields[0], kind)
}

// fold hands sample lines to expfmt and adds what it reads to the values. expfmt
// gives up at the first line it cannot read, and a busy gauge may follow that:
// then each line is read by itself.
func (s *scan) fold(samples [][]byte) {
	text := append(bytes.Join(samples, []byte{'\n'}), '\n')
	families, err := s.parser.TextToMetricFamilies(bytes.NewReader(text))
	switch {
	case err == nil:
		for _, g := range s.engine.Gauges {
			for _, name := range append([]string{g.Name}, g.Formerly...) {
				for _, metric := range families[name].GetMetric() {
					s.sample(name, metric)
				}
			}
		}
	case len(samples) > 1:
		for i := range samples {
			s.fold(samples[i : i+1])
		}
	default:
		name, _ := cutName(samples[0])
		if parse := (expfmt.ParseError{}); errors.As(err, &parse) {
			err = errors.New(parse.Msg)
		}
		s.complain("%s has a line that cannot be read: %v", name, err)
	}
}

// sample adds one sample to its gauge's values, or says what is wrong with it.
// Its type is unknown to expfmt, which was not given the TYPE lines.
func (s *scan) sample(name string, metric *dto.Metric) {
	if s.notGauges[name] {
		return
	}
	slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	var labels []byte
	for _, label := range metric.Label {
		if label.GetValue() != "" && slices.Contains(s.engine.BreakdownLabels, label.GetName()) {
			return
		}
		if !slices.Contains(s.engine.CopyLabels, label.GetName()) {
			labels = strconv.AppendQuote(append(labels, label.GetName()...), label.GetValue())
		}
	}
	value := metric.GetUntyped().GetValue()
	if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
		s.complain("%s is %v", name, value)
		return
	}
	gauge := s.families[name]
	if s.values[gauge] == nil {
		s.values[gauge] = make(map[string]float64)
	}
	s.values[gauge][string(labels)] = max(value, s.values[gauge][string(labels)])
}

// complain keeps the first complaint, short: it may quote a line of a megabyte.
func (s *scan) complain(format string, args ...any) {
	if s.invalid == "" {
		s.invalid = strings.ToValidUTF8(fmt.Sprintf("%.200s", fmt.Sprintf(format, args...)), "")
	}
}

// folded is the gauge's value, and whether it has any.
func (s *scan) folded(gauge int) (float64, bool) {
	sum := 0.0
	for _, v := range s.values[gauge] {
		sum += v
	}
	return min(sum, math.MaxFloat64), len(s.values[gauge]) > 0
}

// trimSample cuts off what may follow a value. expfmt reads neither the
// fractional timestamps nor the exemplars of OpenMetrics.
func trimSample(line []byte) ([]byte, error) {
	_, rest := cutName(line)
	value := afterLabels(bytes.TrimLeft(rest, " \t"))
	fields := bytes.FieldsFunc(value, isBlank)
	if len(fields) == 0 {
		return nil, errors.New("it has no value")
	}
	if after := fields[1:]; len(after) > 0 && after[0][0] != '#' {
		if !isNumber(string(after[0])) || len(after) > 1 && after[1][0] != '#' {
			return nil, fmt.Errorf("%q after the value", bytes.Join(after, []byte{' '}))
		}
	}
	end := len(line) - len(value) + bytes.Index(value, fields[0]) + len(fields[0])
	return line[:end], nil
}

// afterLabels is what follows the closing brace; label values may hold braces.
func afterLabels(text []byte) []byte {
	if len(text) == 0 || text[0] != '{' {
		return text
	}
	quoted := false
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return text[i+1:]
		}
	}
	return nil
}

// isNumber knows the numbers that expfmt reads, which are not all of Go's.
func isNumber(text string) bool {
	_, err := strconv.ParseFloat(text, 64)
	return err == nil && !strings.ContainsAny(text, "pP_")
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' }
