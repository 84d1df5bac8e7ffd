package withdraw

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// sample is a read of a run of the engine, in which nobody was connected.
func sample(sent float64) Sample {
	return Sample{SentAt: at(sent), ReceivedAt: at(sent + 0.2), ContainerID: "c1", Known: true}
}

func open(sent float64, from ...string) Sample {
	s := sample(sent)
	s.Established, s.From = len(from), from
	return s
}

func unknown(sent float64) Sample {
	s := sample(sent)
	s.Known = false
	return s
}

func restarted(sent float64) Sample {
	s := sample(sent)
	s.ContainerID = "c2"
	return s
}

// A member is marked at 0 and seen to have left its Services at 1, unless it is
// said otherwise. So nobody new comes from 6 on.
func TestProve(t *testing.T) {
	six := addresses("10.0.0.", 6)
	for sentence, c := range map[string]struct {
		marked  float64
		direct  Direct
		missing string
		message string
	}{
		"nobody is connected from 6 to 12":                   {direct: Direct{Samples: []Sample{sample(6), sample(8), sample(10), sample(12)}}},
		"two reads are enough if they are 6 s apart":         {direct: Direct{Samples: []Sample{sample(6), sample(12)}}},
		"what was before the last run of quiet reads is old": {direct: Direct{Samples: []Sample{open(6, "10.0.0.1"), unknown(8), restarted(9), sample(10), sample(16)}}},
		"reads from before it left do not count, nor harm":   {direct: Direct{Samples: []Sample{open(0, "10.0.0.1"), sample(5), sample(6), sample(12)}}},

		"an EndpointSlice has it": {
			direct:  Direct{DroppedAt: time.Time{}, In: []string{"qwen", "qwen-server"}, Samples: []Sample{sample(6), sample(12)}},
			missing: names.HeldEndpointsRemain, message: "still behind the Service qwen, qwen-server",
		},
		"nothing was read": {missing: names.HeldConnectionsUnread},
		"one read is not enough": {
			direct: Direct{Samples: []Sample{sample(12)}}, missing: names.HeldConnectionsUnread,
		},
		"the reads are less than 6 s apart": {
			direct: Direct{Samples: []Sample{sample(6), sample(11.999)}}, missing: names.HeldConnectionsUnread,
		},
		"a node may still send it connections 4.999 s after it left": {
			direct: Direct{Samples: []Sample{sample(5.999), sample(11.999)}}, missing: names.HeldConnectionsUnread,
		},
		"somebody is connected": {
			direct:  Direct{Samples: []Sample{sample(6), sample(12), open(14, "10.0.0.1", "10.0.0.2")}},
			missing: names.HeldConnectionsOpen, message: "2 open from 10.0.0.1, 10.0.0.2",
		},
		"more are connected than are listed": {
			direct:  Direct{Samples: []Sample{open(6, six...)}},
			missing: names.HeldConnectionsOpen, message: "6 open from 10.0.0.0, 10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4 and 1 more",
		},
		"somebody was connected a moment ago": {
			direct: Direct{Samples: []Sample{sample(6), open(8, "10.0.0.1"), sample(10), sample(15)}}, missing: names.HeldConnectionsUnread,
		},
		"the last read failed": {
			direct: Direct{Samples: []Sample{sample(6), sample(12), unknown(14)}}, missing: names.HeldConnectionsUnread,
		},
		"a read among them failed": {
			direct: Direct{Samples: []Sample{sample(6), unknown(9), sample(12)}}, missing: names.HeldConnectionsUnread,
		},
		"a read failed while somebody was connected": {
			direct: Direct{Samples: []Sample{func() Sample { s := open(14, "10.0.0.1"); s.Known = false; return s }()}}, missing: names.HeldConnectionsUnread,
		},
		"the container is another one since": {
			direct: Direct{Samples: []Sample{sample(6), sample(12), restarted(13)}}, missing: names.HeldConnectionsUnread,
		},
		"it was marked again after it was seen to have left": {
			marked: 3, direct: Direct{Samples: []Sample{sample(6), sample(12)}}, missing: names.HeldConnectionsUnread,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.missing != names.HeldEndpointsRemain {
				c.direct.DroppedAt = at(1)
			}
			v := c.direct.Prove(at(c.marked))
			assert.Equal(t, c.missing, v.Missing)
			assert.Equal(t, c.message, v.Message)
			assert.Equal(t, c.missing == "", v.Proven)
			if v.Proven {
				assert.Equal(t, c.direct.Samples[len(c.direct.Samples)-1].SentAt, v.At)
			}
		})
	}
}

// A proof comes closer with every look in which nobody was connected, and what it lacks
// may be nothing but looks.
func TestHowFarAProofIs(t *testing.T) {
	for sentence, c := range map[string]struct {
		direct  Direct
		quiet   float64
		pending bool
	}{
		"nobody has looked at all":                    {direct: Direct{}, pending: true},
		"a Service has it":                            {direct: Direct{In: []string{"chat"}}},
		"nobody knows which Services have it":         {direct: Direct{Samples: []Sample{unknown(6)}}},
		"it has left, and nobody has looked since":    {direct: Direct{DroppedAt: at(1)}, pending: true},
		"it left too short a while before the look":   {direct: Direct{DroppedAt: at(1), Samples: []Sample{sample(5.999)}}, pending: true},
		"somebody is connected":                       {direct: Direct{DroppedAt: at(1), Samples: []Sample{open(8, "10.0.0.1")}}},
		"the last look counts":                        {direct: Direct{DroppedAt: at(1), Samples: []Sample{sample(6), sample(8)}}, quiet: 8, pending: true},
		"a failed look takes nothing away":            {direct: Direct{DroppedAt: at(1), Samples: []Sample{sample(6), unknown(8)}}, quiet: 6},
		"nor does somebody who is back on an old one": {direct: Direct{DroppedAt: at(1), Samples: []Sample{sample(6), open(8, "10.0.0.1")}}, quiet: 6},
		"it is proven":                                {direct: Direct{DroppedAt: at(1), Samples: []Sample{sample(6), sample(12)}}, quiet: 12},
	} {
		t.Run(sentence, func(t *testing.T) {
			want := time.Time{}
			if c.quiet > 0 {
				want = at(c.quiet)
			}
			v := c.direct.Prove(at(0))
			assert.Equal(t, want, v.QuietAt)
			assert.Equal(t, c.pending, v.Pending)
		})
	}
}

// A read before a node can know better counts for nothing.
func TestWhenALookCounts(t *testing.T) {
	assert.False(t, Direct{}.Counts(at(60)))
	assert.False(t, Direct{DroppedAt: at(1)}.Counts(at(5.999)))
	assert.True(t, Direct{DroppedAt: at(1)}.Counts(at(6)))
}

func addresses(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// TestEveryFactIsNeeded takes the smallest proof and makes each of its facts a bit
// worse.
func TestEveryFactIsNeeded(t *testing.T) {
	smallest := func() Direct { return Direct{DroppedAt: at(1), Samples: []Sample{sample(6), sample(12)}} }
	require.True(t, smallest().Prove(at(0)).Proven)
	require.True(t, smallest().Prove(at(1)).Proven)
	require.False(t, smallest().Prove(at(1).Add(1)).Proven, "it was marked later")

	worse := map[string]func(d *Direct){
		"it is not known to have left": func(d *Direct) { d.DroppedAt = time.Time{} },
		"it left later":                func(d *Direct) { d.DroppedAt = d.DroppedAt.Add(1) },
	}
	for i := range 2 {
		worse[fmt.Sprint(i, " is missing")] = func(d *Direct) { d.Samples = slices.Delete(d.Samples, i, i+1) }
		worse[fmt.Sprint(i, " failed")] = func(d *Direct) { d.Samples[i].Known = false }
		worse[fmt.Sprint(i, " saw a connection")] = func(d *Direct) { d.Samples[i].Established = 1 }
		worse[fmt.Sprint(i, " was in another container")] = func(d *Direct) { d.Samples[i].ContainerID = "c2" }
	}
	worse["0 was sent earlier"] = func(d *Direct) { d.Samples[0].SentAt = d.Samples[0].SentAt.Add(-1) }
	worse["0 was sent later"] = func(d *Direct) { d.Samples[0].SentAt = d.Samples[0].SentAt.Add(1) }
	worse["1 was sent earlier"] = func(d *Direct) { d.Samples[1].SentAt = d.Samples[1].SentAt.Add(-1) }
	for sentence, change := range worse {
		d := smallest()
		change(&d)
		assert.False(t, d.Prove(at(0)).Proven, sentence)
	}
}

// TestUnknownNeverProves takes evidence at random, and adds to it or takes from it
// what must not help.
func TestUnknownNeverProves(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	proven := 0
	for range 20000 {
		d, marked := evidence(random), at(float64(random.IntN(6)))
		before := slices.Clone(d.Samples)
		v := d.Prove(marked)
		require.Equal(t, before, d.Samples, "Prove changes what it is given")
		require.Equal(t, v, d.Prove(marked))
		if v.Proven {
			proven++
			require.Empty(t, v.Missing)
			require.False(t, v.At.Before(marked.Add(endpointDelay+quiet)), "%+v", d)
		} else {
			require.NotEmpty(t, v.Missing)
		}
		helps := func(what string, other Direct, marked time.Time) {
			require.False(t, !v.Proven && other.Prove(marked).Proven, "%s: %+v", what, d)
		}
		helps("marked later", d, marked.Add(time.Second))
		helps("no Service is known to have dropped it", Direct{Samples: d.Samples}, marked)
		i := random.IntN(len(d.Samples) + 1)
		when := 0.0
		if i > 0 {
			when = d.Samples[i-1].SentAt.Sub(noon).Seconds()
		}
		other := d
		other.Samples = slices.Insert(slices.Clone(d.Samples), i, unknown(when))
		helps("a failed read", other, marked)
		if len(d.Samples) == 0 {
			continue
		}
		i = random.IntN(len(d.Samples))
		other.Samples = slices.Clone(d.Samples)
		other.Samples[i].Known = false
		helps("a read that failed after all", other, marked)
		other.Samples = slices.Clone(d.Samples)
		other.Samples[i].Established++
		helps("one connection more", other, marked)
		if s := d.Samples[i]; s.Known && s.Established == 0 {
			other.Samples = slices.Delete(slices.Clone(d.Samples), i, i+1)
			helps("a quiet read less", other, marked)
		}
		other.Samples = slices.Clone(d.Samples)
		for n := range i + 1 { // all up to here were another run
			other.Samples[n].ContainerID = "c0"
		}
		helps("a restart", other, marked)
	}
	require.Greater(t, proven, 1000, "too few proofs to say anything")
}

func evidence(random *rand.Rand) (d Direct) {
	if random.IntN(10) > 0 {
		d.DroppedAt = at(float64(random.IntN(4)))
	}
	when := float64(random.IntN(8))
	for range random.IntN(10) {
		when += 1 + float64(random.IntN(3))
		s := sample(when)
		switch random.IntN(14) {
		case 0:
			s = unknown(when)
		case 1:
			s = open(when, "10.0.0.1")
		}
		d.Samples = append(d.Samples, s)
	}
	return d
}

func FuzzProve(f *testing.F) {
	f.Add([]byte{1, 0, 6, 1, 12, 1})
	f.Add([]byte{0, 0, 6, 1, 12, 1})
	f.Add([]byte{1, 3, 6, 1, 8, 9, 14, 1, 20, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 {
			return
		}
		var d Direct
		if data[0] > 0 {
			d.DroppedAt = at(float64(data[0]))
		}
		for i := 2; i+1 < len(data); i += 2 {
			s := sample(float64(data[i])) // in any order
			s.Known, s.Established = data[i+1]&1 == 1, int(data[i+1]>>1)
			d.Samples = append(d.Samples, s)
		}
		v := d.Prove(at(float64(data[1])))
		require.Equal(t, v.Proven, v.Missing == "")
		if v.Proven {
			last := d.Samples[len(d.Samples)-1]
			require.True(t, last.Known && last.Established == 0)
		}
	})
}
