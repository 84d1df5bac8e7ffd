package fake

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// exposition is the text of a metrics port: families by name, samples by their labels as
// they are written.
type exposition struct{ families map[string]*series }

type series struct {
	typ     string
	samples map[string]float64
}

func newExposition() *exposition { return &exposition{families: map[string]*series{}} }

func (x *exposition) family(typ, name string) map[string]float64 {
	f := x.families[name]
	if f == nil {
		f = &series{typ: typ, samples: map[string]float64{}}
		x.families[name] = f
	}
	return f.samples
}

func (x *exposition) count(name, labels string)            { x.family("counter", name)[labels]++ }
func (x *exposition) add(name, labels string, d float64)   { x.family("gauge", name)[labels] += d }
func (x *exposition) gauge(name, labels string, v float64) { x.family("gauge", name)[labels] = v }
func (x *exposition) drop(name, labels string)             { delete(x.family("gauge", name), labels) }

func (x *exposition) clone() *exposition {
	c := newExposition()
	for name, f := range x.families {
		c.families[name] = &series{typ: f.typ, samples: maps.Clone(f.samples)}
	}
	return c
}

// text writes what has samples. The exporter of the Rust routers leaves a line empty
// after each family, which a reader must skip; the Go one is read the same way.
func (x *exposition) text() []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(x.families)) {
		f := x.families[name]
		if len(f.samples) == 0 {
			continue
		}
		b.WriteString("# TYPE " + name + " " + f.typ + "\n")
		for _, labels := range slices.Sorted(maps.Keys(f.samples)) {
			b.WriteString(name + labels + " " + strconv.FormatFloat(f.samples[labels], 'g', -1, 64) + "\n")
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// labelled writes label names and values, one after the other.
func labelled(pairs ...string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i] + `="` + escapes.Replace(pairs[i+1]) + `"`)
	}
	b.WriteByte('}')
	return b.String()
}
