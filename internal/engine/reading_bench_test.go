package engine

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// largeBody is 300 KB as a vLLM with eight data-parallel ranks serves them: the
// request gauges of a real body once for each rank, and its other samples over
// and over, because today's vLLM has ten times as many families as that body.
func largeBody(t testing.TB) []byte {
	const ranks = 8
	var body, rest []byte
	for line := range strings.Lines(string(fixture(t, "vllm_v0_idle.prom"))) {
		switch {
		case strings.HasPrefix(line, "#"):
			body = append(body, line...)
		case strings.HasPrefix(line, "vllm:num_requests"):
			for rank := range ranks {
				rest = append(rest, withLabel(line, "engine", rank)...)
			}
		}
	}
	for copies := 0; len(body)+len(rest) < 300_000; copies++ {
		for line := range strings.Lines(string(fixture(t, "vllm_v0_idle.prom"))) {
			if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "vllm:num_requests") {
				rest = append(rest, withLabel(line, "engine", copies)...)
			}
		}
	}
	return append(body, rest...)
}

func withLabel(line, name string, value int) string {
	return strings.Replace(line, "{", fmt.Sprintf(`{%s="%d",`, name, value), 1)
}

func TestLargeBodyReadsAsExpfmtReadsIt(t *testing.T) {
	body := largeBody(t)
	assert.InDelta(t, 300_000, len(body), 10_000)
	for _, running := range []string{"0.0", "3.0"} {
		changed := bytes.Replace(body, []byte("1.5B-Instruct\"} 0.0"), []byte("1.5B-Instruct\"} "+running), 1)
		verdict, inFlight := plainExpfmt(vllm(t), changed)
		r := vllm(t).Read(changed)
		require.Equal(t, verdict, r.Verdict)
		assert.InDelta(t, inFlight, r.InFlight, 0)
	}
}

func BenchmarkRead(b *testing.B) {
	body, e := largeBody(b), vllm(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if r := e.Read(body); r.Verdict != Idle {
			b.Fatal(r.Verdict, r.Detail)
		}
	}
}

// BenchmarkExpfmt is the yardstick for BenchmarkRead: the whole body parsed.
func BenchmarkExpfmt(b *testing.B) {
	body := largeBody(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		if _, err := parser.TextToMetricFamilies(bytes.NewReader(body)); err != nil {
			b.Fatal(err)
		}
	}
}
