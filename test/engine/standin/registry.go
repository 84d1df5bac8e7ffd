package standin

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// registry keeps metric families and writes them as Python's prometheus_client
// does: labels sorted, floats as Python's repr, counters with _total. Outside
// its multiprocess mode each counter and histogram has a _created family.
type registry struct {
	multiprocess bool

	mu       sync.Mutex
	families []*family
	byName   map[string]*family
}

type family struct {
	typ     string // gauge, counter, histogram or summary
	name    string // of a counter without _total
	help    string
	buckets []float64

	series map[string]*series
	order  []*series
}

type series struct {
	labels  labels
	present bool // false: the family is declared and this series has no sample yet
	value   float64
	counts  []float64 // of a histogram, per bucket, not cumulated
	sum     float64
	created float64 // unix seconds
}

type labels map[string]string

// with returns l and the given pairs.
func (l labels) with(pairs ...string) labels {
	out := maps.Clone(l)
	if out == nil {
		out = labels{}
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func (l labels) String() string {
	if len(l) == 0 {
		return ""
	}
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(l)) {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&b, `%s="%s"`, name, escape.Replace(l[name]))
	}
	return b.String() + "}"
}

func newRegistry(families []family, multiprocess bool) *registry {
	r := &registry{multiprocess: multiprocess, byName: map[string]*family{}}
	for _, f := range families {
		f.series = map[string]*series{}
		r.families = append(r.families, &f)
		r.byName[f.name] = &f
	}
	return r
}

// at returns the series, made at zero if it is new. An unknown name is a bug in
// the tables and panics.
func (r *registry) at(name string, l labels) *series {
	f, ok := r.byName[name]
	if !ok {
		panic("no metric family " + name)
	}
	key := l.String()
	s, ok := f.series[key]
	if !ok {
		s = &series{labels: l, counts: make([]float64, len(f.buckets)+1), created: unixSeconds(time.Now())}
		f.series[key] = s
		f.order = append(f.order, s)
	}
	return s
}

// declare makes a series without a sample.
func (r *registry) declare(name string, l labels) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at(name, l)
}

func (r *registry) set(name string, l labels, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(name, l)
	s.value, s.present = v, true
}

func (r *registry) add(name string, l labels, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(name, l)
	s.value += v
	s.present = true
}

func (r *registry) observe(name string, l labels, v float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.at(name, l)
	i, _ := slices.BinarySearch(r.byName[name].buckets, v)
	s.counts[i]++
	s.sum += v
	s.present = true
}

// write appends the text of every family that keep does not refuse.
func (r *registry) write(b *bytes.Buffer, keep func(name string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.families {
		if keep(f.name) && len(f.order) > 0 {
			f.write(b, r.multiprocess)
		}
	}
}

func (f *family) write(b *bytes.Buffer, multiprocess bool) {
	name := f.name
	if f.typ == "counter" {
		name += "_total"
	}
	header(b, name, f.help, f.typ)
	for _, s := range f.order {
		switch {
		case !s.present:
		case f.typ == "histogram" && multiprocess:
			sample(b, name+"_sum", s.labels, s.sum)
			f.writeBuckets(b, s)
			sample(b, name+"_count", s.labels, s.count())
		case f.typ == "histogram":
			f.writeBuckets(b, s)
			sample(b, name+"_count", s.labels, s.count())
			sample(b, name+"_sum", s.labels, s.sum)
		case f.typ == "summary":
			sample(b, name+"_count", s.labels, s.count())
			sample(b, name+"_sum", s.labels, s.sum)
		default:
			sample(b, name, s.labels, s.value)
		}
	}
	if multiprocess || f.typ == "gauge" || strings.HasPrefix(f.name, "python_") || strings.HasPrefix(f.name, "process_") {
		return
	}
	header(b, f.name+"_created", f.help, "gauge")
	for _, s := range f.order {
		sample(b, f.name+"_created", s.labels, s.created)
	}
}

func (f *family) writeBuckets(b *bytes.Buffer, s *series) {
	total := 0.0
	for i, n := range s.counts {
		total += n
		le := math.Inf(1)
		if i < len(f.buckets) {
			le = f.buckets[i]
		}
		sample(b, f.name+"_bucket", s.labels.with("le", pythonFloat(le)), total)
	}
}

func (s *series) count() float64 {
	total := 0.0
	for _, n := range s.counts {
		total += n
	}
	return total
}

func header(b *bytes.Buffer, name, help, typ string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, typ)
}

func sample(b *bytes.Buffer, name string, l labels, v float64) {
	fmt.Fprintf(b, "%s%s %s\n", name, l, pythonFloat(v))
}

// pythonFloat writes a float as prometheus_client does: "1.0", "+Inf", and with
// an exponent from a million on.
func pythonFloat(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsNaN(v):
		return "NaN"
	case v != 0 && math.Abs(v) < 1e-4:
		return strconv.FormatFloat(v, 'e', -1, 64)
	case v >= 1e6:
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
