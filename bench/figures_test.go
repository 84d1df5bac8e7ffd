package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPercentileIsAValueOfTheSample(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	assert.EqualValues(t, 50, percentile(hundred, 0.5))
	assert.EqualValues(t, 99, percentile(hundred, 0.99))
	assert.EqualValues(t, 100, percentile(hundred, 1))
	assert.EqualValues(t, 7, percentile([]time.Duration{7}, 0.01))
	assert.InDelta(t, 2, percentile([]float64{3, 1, 2}, 0.5), 0)
}

func TestTheTableHasTheYardstickBesideEachFigure(t *testing.T) {
	var table strings.Builder
	require.NoError(t, writeTable(&table, []figure{
		{"handler, time", 98e-6, 112e-6, seconds, "no-op"},
		{"create, median", 9.1e-3, 8.7e-3, seconds, "no-op"},
		{"reading, time", 40e-6, 4e-3, seconds, "expfmt"},
		{"memory", 31 << 20, 0, mebibytes, "no-op"},
		{"allocated", 75 << 10, 80 << 10, kibibytes, "no-op"},
		{"allocations", 663, 731, count, "no-op"},
	}))
	assert.Equal(t, `| | lastcall | yardstick | ratio | the yardstick |
|---|--:|--:|--:|---|
| handler, time | 98 µs | 112 µs | 0.88x | no-op |
| create, median | 9.10 ms | 8.70 ms | 1.05x | no-op |
| reading, time | 40 µs | 4.00 ms | 0.010x | expfmt |
| memory | 31.0 MiB | 0.0 MiB | – | no-op |
| allocated | 75.0 KiB | 80.0 KiB | 0.94x | no-op |
| allocations | 663 | 731 | 0.91x | no-op |
`, table.String())
}

func TestBenchmarksAreReadWithAndWithoutThroughput(t *testing.T) {
	costs := parseBenchmarks(`goos: linux
BenchmarkRead-2     	     481	   2195717 ns/op	 137.58 MB/s	   34432 B/op	     789 allocs/op
BenchmarkPods/lastcall         	     482	   95.5 ns/op	   76750 B/op	     663 allocs/op
PASS
`)
	assert.Equal(t, map[string]cost{
		"BenchmarkRead":          {2195717e-9, 34432, 789},
		"BenchmarkPods/lastcall": {95.5e-9, 76750, 663},
	}, costs)
}

func TestCompareTakesTheMedianOfTheRounds(t *testing.T) {
	samples := map[string][]cost{
		"A": {{3, 30, 300}, {1, 10, 100}, {2, 20, 200}},
		"B": {{4, 4, 4}},
	}
	figures, err := compare(samples, "a", "A", "B", "b")
	require.NoError(t, err)
	require.Len(t, figures, 3)
	for i, want := range []float64{2, 20, 200} {
		assert.InDelta(t, want, figures[i].lastcall, 0)
		assert.InDelta(t, 4, figures[i].yardstick, 0)
	}
	_, err = compare(samples, "a", "A", "C", "b")
	require.ErrorContains(t, err, "no benchmark is called C")
}

func TestUsageIsWhatLinuxSays(t *testing.T) {
	status := "Name:\tweb\nVmHWM:\t   40960 kB\nVmRSS:\t   30720 kB\nThreads:\t8\n"
	stat := "123 (a) b) S 1 123 123 0 -1 4194560 5000 0 3 0 250 50 0 0 20 0 9 0 100 0 0"
	u, err := parseUsage(status, stat)
	require.NoError(t, err)
	assert.Equal(t, usage{resident: 30 << 20, peak: 40 << 20, cpu: 3 * time.Second}, u)

	_, err = parseUsage("", stat)
	require.Error(t, err)
	_, err = parseUsage(status, "123 (a) S 1")
	require.Error(t, err)
}
