package engine

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const fixtures = "testdata/fixtures"

// index returns what index.tsv says: file -> engine -> reading.
func index(t testing.TB) map[string]map[Name]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(fixtures, "index.tsv"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	header := strings.Split(lines[0], "\t")
	all := make(map[string]map[Name]string)
	for _, line := range lines[1:] {
		fields := strings.Split(line, "\t")
		require.Len(t, fields, len(header), "line %q", line)
		all[fields[0]] = make(map[Name]string)
		for i, name := range header[1:] {
			all[fields[0]][Name(name)] = fields[i+1]
		}
	}
	return all
}

func fixture(t testing.TB, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(fixtures, file))
	require.NoError(t, err)
	return body
}

// short is a reading as the index writes it.
func short(r Reading) string {
	switch r.Verdict {
	case Busy:
		return fmt.Sprintf("Busy(%v)", r.InFlight)
	case Unknown:
		return fmt.Sprintf("Unknown(%s)", r.Reason)
	}
	return string(r.Verdict)
}

func TestEveryFixtureReadsAsTheIndexSays(t *testing.T) {
	for file, byEngine := range index(t) {
		for _, e := range All() {
			r := e.Read(fixture(t, file))
			assert.Equal(t, byEngine[e.Name], short(r), "%s as %s: %s", file, e.Name, r.Detail)
		}
	}
}

func TestIndexNamesEveryFixture(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures, "*.prom"))
	require.NoError(t, err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	assert.Equal(t, slices.Sorted(slices.Values(files)), slices.Sorted(maps.Keys(index(t))))
}

// expfmtGivesUp are the fixtures where a plain expfmt parse says less than Read,
// and why.
var expfmtGivesUp = map[string]string{
	"rule_busy_wins_over_unreadable_line_before.prom": "expfmt stops at the first line it cannot read, the busy one follows",
	"rule_busy_wins_over_wrong_type.prom":             "expfmt alone adds counters",
	"rule_type_counter.prom":                          "expfmt alone adds counters",
	"rule_type_counter_after_samples.prom":            "expfmt refuses TYPE after samples, as Read does with another reason",
	"rule_exact_name_not_prefix.prom":                 "expfmt stops at a name with a dot",
	"rule_blanks.prom":                                "expfmt wants a timestamp after a blank",
	"rule_crlf.prom":                                  "expfmt takes the CR for a part of the value",
	"rule_last_line_without_newline.prom":             "expfmt wants the last newline",
	"rule_openmetrics.prom":                           "expfmt reads neither UNKNOWN nor fractional timestamps nor exemplars",
	"rule_openmetrics_busy.prom":                      "expfmt reads neither fractional timestamps nor exemplars",
	"rule_other_families_broken.prom":                 "expfmt stops at the first line it cannot read",
}

func TestReadAgreesWithPlainExpfmtOnEveryFixture(t *testing.T) {
	for file := range index(t) {
		if expfmtGivesUp[file] != "" {
			continue
		}
		for _, e := range All() {
			body := fixture(t, file)
			verdict, inFlight := plainExpfmt(e, body)
			r := e.Read(body)
			assert.Equal(t, verdict, r.Verdict, "%s as %s", file, e.Name)
			if verdict == Busy {
				assert.InDelta(t, inFlight, r.InFlight, 0, "%s as %s", file, e.Name)
			}
		}
	}
}

// plainExpfmt parses the whole body and folds it. What expfmt had read before an
// error counts as seen work.
func plainExpfmt(e Engine, body []byte) (Verdict, float64) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	sum, proven := 0.0, err == nil
	for _, g := range e.Gauges {
		copies := make(map[string]float64)
		for _, name := range append([]string{g.Name}, g.Formerly...) {
			for _, metric := range families[name].GetMetric() {
				value, labels := metric.GetGauge().GetValue()+metric.GetUntyped().GetValue(), ""
				skip := false
				for _, label := range sorted(metric.Label) {
					skip = skip || slices.Contains(e.BreakdownLabels, label.GetName()) && label.GetValue() != ""
					if !slices.Contains(e.CopyLabels, label.GetName()) {
						labels += label.String()
					}
				}
				switch {
				case skip:
				case math.IsNaN(value) || math.IsInf(value, 0) || value < 0 || metric.Histogram != nil:
					proven = false
				default:
					copies[labels] = max(copies[labels], value)
				}
			}
		}
		proven = proven && (g.Optional || len(copies) > 0)
		for _, value := range copies {
			sum += value
		}
	}
	switch {
	case sum > 0:
		return Busy, sum
	case proven:
		return Idle, 0
	}
	return Unknown, 0
}

func sorted(labels []*dto.LabelPair) []*dto.LabelPair {
	return slices.SortedFunc(slices.Values(labels), func(a, b *dto.LabelPair) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
}
