package withdraw

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
)

// router is a fleet of processes that began long ago, and the replica was marked at 0.
func router(processes ...string) *Routed {
	r := &Routed{Sightings: map[types.UID][]Sighting{}}
	r.Fleet = Fleet{ListedAt: at(60), Bypassed: No}
	for _, name := range processes {
		r.Fleet.Processes = append(r.Fleet.Processes, Process{Pod: name, UID: types.UID(name), Run: "1", StartedAt: at(-3600)})
	}
	return r
}

// says adds what a process says, at 60 the last word.
func (r *Routed) says(process string, sightings ...Sighting) *Routed {
	uid := types.UID(process)
	r.Sightings[uid] = append(r.Sightings[uid], sightings...)
	return r
}

// seen is what a process says that can hold nothing for long and chooses within 2 s.
func seen(sent float64, m Membership, changes ...func(*Sighting)) Sighting {
	s := Sighting{SentAt: at(sent), ReceivedAt: at(sent + 0.1), Run: "1", Answered: true, Membership: m, Window: 2 * time.Second, Holds: No, Returns: No}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func holds(s *Sighting) { s.Holds = Yes }

func atMost(held time.Duration) func(*Sighting) {
	return func(s *Sighting) { s.Holds, s.MostHeld = Yes, held }
}

func returns(s *Sighting) { s.Returns = Yes }

// count is a count that can be relied on while the replica is registered.
func count(n int64, changes ...func(*Count)) func(*Sighting) {
	return func(s *Sighting) {
		s.InFlight = Count{Known: true, Value: n, HeldToEnd: Yes, NeverReset: Yes, AllPaths: Yes, UniqueIDs: Yes}
		for _, change := range changes {
			change(&s.InFlight)
		}
	}
}

func survives(c *Count) { c.SurvivesRemoval = Yes }

func whole(n int64) func(*Sighting) {
	return func(s *Sighting) {
		count(n)(s)
		s.Whole, s.InFlight = s.InFlight, Count{}
		s.Whole.BeforeChoice = Yes
	}
}

func picks(n float64) func(*Sighting) {
	return func(s *Sighting) { s.Dispatches = Counter{Known: true, Value: n, AtSelection: Yes} }
}

func run(name string) func(*Sighting) { return func(s *Sighting) { s.Run = name } }

// ways are the smallest proofs, one for each way.
var ways = map[string]func() *Routed{
	"(a) its count is 0 while it drains": func() *Routed {
		return router("r").says("r", seen(55, Unselectable, holds, count(1)), seen(57.1, Unselectable, holds, count(0)))
	},
	"(a) its count is 0 and outlives its membership": func() *Routed {
		return router("r").says("r", seen(55, Absent, holds, count(0, survives)), seen(57.1, Absent, holds, count(0, survives)))
	},
	"(b) the router had nothing at all once": func() *Routed {
		return router("r").says("r", seen(55, Absent, holds, whole(3)), seen(58, Absent, holds, whole(0)))
	},
	"(c) the process is new": func() *Routed {
		r := router("r").says("r", seen(58, Absent, holds))
		r.Fleet.Processes[0].StartedAt = at(20)
		return r
	},
	"(d) it sends within 2 s or never": func() *Routed {
		return router("r").says("r", seen(55, Absent), seen(57.1, Absent))
	},
	"(d) it sends within 22 s or never": func() *Routed {
		return router("r").says("r", seen(34, Absent, atMost(20*time.Second)), seen(56.1, Absent, atMost(20*time.Second)))
	},
	"(e) every prefill was idle": func() *Routed {
		r := router("r").says("r", seen(40, Absent, holds), seen(60, Absent, holds))
		r.Prefills = Prefills{All: Yes, IdleAt: []time.Time{at(42.1), at(58)}, Apart: 15 * time.Second}
		return r
	},
	"(f) between two counts and its absence nothing was chosen": func() *Routed {
		return router("r").says("r", seen(50, Selectable, holds, count(0), picks(7)), seen(52.1, Selectable, holds, count(0), picks(7)),
			seen(55, Absent, holds, picks(7)), seen(57.1, Absent, holds, picks(7)))
	},
}

func TestEachWayProves(t *testing.T) {
	for way, proof := range ways {
		v, all := proof().Prove(at(0), at(60))
		assert.True(t, v.Proven, "%s: %s %s", way, v.Missing, v.Message)
		assert.Empty(t, v.Missing, way)
		assert.Empty(t, all[0].Missing, way)
		assert.False(t, v.At.IsZero(), way)
	}
}

// TestEveryFactOfARouterIsNeeded takes each proof and makes one of its facts a bit worse.
func TestEveryFactOfARouterIsNeeded(t *testing.T) {
	for way, proof := range ways {
		worse := map[string]func(r *Routed){
			"the Pods are not listed":              func(r *Routed) { r.Fleet.ListedAt = time.Time{} },
			"the list is from before the mark":     func(r *Routed) { r.Fleet.ListedAt = at(-1) },
			"the list is old":                      func(r *Routed) { r.Fleet.ListedAt = at(49.9) },
			"there are no Pods":                    func(r *Routed) { r.Fleet.Processes = nil },
			"another Pod has said nothing":         func(r *Routed) { r.Fleet.Processes = append(r.Fleet.Processes, Process{Pod: "x", UID: "x", Run: "1"}) },
			"the process cannot be told from next": func(r *Routed) { r.Fleet.Processes[0].Run = "" },
			"it has restarted since":               func(r *Routed) { r.Fleet.Processes[0].Run = "2" },
			"others may choose":                    func(r *Routed) { r.Fleet.Bypassed = Yes },
			"others are not known":                 func(r *Routed) { r.Fleet.Bypassed = Unknown },
			"its last word is old": func(r *Routed) {
				for i := range r.Sightings["r"] {
					r.Sightings["r"][i].SentAt = r.Sightings["r"][i].SentAt.Add(-10 * time.Second)
				}
			},
			"nothing is known of how it sends": func(r *Routed) {
				for i := range r.Sightings["r"] {
					r.Sightings["r"][i].Window, r.Sightings["r"][i].Whole.BeforeChoice = 0, Unknown
				}
				r.Fleet.Processes[0].StartedAt = time.Time{}
			},
		}
		last := func(change func(s *Sighting)) func(r *Routed) {
			return func(r *Routed) { change(&r.Sightings["r"][len(r.Sightings["r"])-1]) }
		}
		worse["it is listed in the end"] = last(func(s *Sighting) { s.Membership = Selectable })
		worse["its end is not known"] = last(func(s *Sighting) { s.Membership = MembershipUnknown })
		worse["it comes back by itself"] = last(func(s *Sighting) { s.Returns = Yes })
		worse["it may come back by itself"] = last(func(s *Sighting) { s.Returns = Unknown })
		worse["it is another run in the end"] = last(func(s *Sighting) { s.Run = "2" })
		for sentence, change := range worse {
			r := proof()
			change(r)
			v, _ := r.Prove(at(0), at(60))
			assert.False(t, v.Proven, "%s: %s", way, sentence)
			assert.NotEmpty(t, v.Missing)
		}
		r := proof()
		r.Sightings["r"] = r.Sightings["r"][:len(r.Sightings["r"])-1]
		v, _ := r.Prove(at(0), at(60))
		assert.False(t, v.Proven, "%s: without its last sighting", way)
	}
}

// What each way alone needs.
func TestEachWayNeedsItsFacts(t *testing.T) {
	every := func(change func(s *Sighting)) func(r *Routed) {
		return func(r *Routed) {
			for i := range r.Sightings["r"] {
				change(&r.Sightings["r"][i])
			}
		}
	}
	count := func(change func(c *Count)) func(r *Routed) {
		return every(func(s *Sighting) { change(&s.InFlight); change(&s.Whole) })
	}
	counts := map[string]func(r *Routed){
		"it ends before the answer":      count(func(c *Count) { c.HeldToEnd = Unknown }),
		"it may be reset":                count(func(c *Count) { c.NeverReset = Unknown }),
		"a path is not counted":          count(func(c *Count) { c.AllPaths = No }),
		"two requests may share an id":   count(func(c *Count) { c.UniqueIDs = Unknown }),
		"it is not known":                count(func(c *Count) { c.Known = false }),
		"it is below zero":               count(func(c *Count) { c.Value = -1 }),
		"it is not zero":                 count(func(c *Count) { c.Value = 1 }),
		"the proof is a second too fast": func(r *Routed) { r.Sightings["r"][0].ReceivedAt = at(60) },
	}
	for way, worse := range map[string]map[string]func(r *Routed){
		"(a) its count is 0 while it drains": counts,
		"(a) its count is 0 and outlives its membership": {
			"it does not outlive it": count(func(c *Count) { c.SurvivesRemoval = Unknown }),
		},
		"(b) the router had nothing at all once": counts,
		"(c) the process is new": {
			"it began before the mark":           func(r *Routed) { r.Fleet.Processes[0].StartedAt = at(-0.1) },
			"it began when a clock may be ahead": func(r *Routed) { r.Fleet.Processes[0].StartedAt = at(4.9) },
			"when it began is not known":         func(r *Routed) { r.Fleet.Processes[0].StartedAt = time.Time{} },
			"it has listed the replica":          func(r *Routed) { r.Sightings["r"] = slices.Insert(r.Sightings["r"], 0, seen(21, Selectable)) },
			"it may have listed the replica": func(r *Routed) {
				r.Sightings["r"] = slices.Insert(r.Sightings["r"], 0, seen(21, MembershipUnknown))
			},
			"it has had it, draining":     func(r *Routed) { r.Sightings["r"] = slices.Insert(r.Sightings["r"], 0, seen(21, Unselectable)) },
			"another one may hold for it": every(func(s *Sighting) { s.HeldOutside = true }),
		},
		"(d) it sends within 2 s or never": {
			"it may hold it longer": every(func(s *Sighting) { s.Holds = Unknown }),
			"it waited less":        func(r *Routed) { r.Sightings["r"][0].ReceivedAt = at(55.2) },
			"it was dispatched to":  func(r *Routed) { picks(1)(&r.Sightings["r"][0]); picks(2)(&r.Sightings["r"][1]) },
		},
		"(d) it sends within 22 s or never": {
			"that has no bound": every(func(s *Sighting) { s.MostHeld = 0 }),
			"it waited less":    func(r *Routed) { r.Sightings["r"][0].ReceivedAt = at(34.2) },
		},
		"(e) every prefill was idle": {
			"there may be another":          func(r *Routed) { r.Prefills.All = Unknown },
			"only once":                     func(r *Routed) { r.Prefills.IdleAt = r.Prefills.IdleAt[:1] },
			"a retry fits between":          func(r *Routed) { r.Prefills.Apart = 16 * time.Second },
			"how far apart is unknown":      func(r *Routed) { r.Prefills.Apart = 0 },
			"the first was too early":       func(r *Routed) { r.Prefills.IdleAt[0] = at(42) },
			"the answers may be on the way": func(r *Routed) { r.Prefills.IdleAt[1] = at(58.1) },
		},
		"(f) between two counts and its absence nothing was chosen": {
			"it was chosen in between":      func(r *Routed) { picks(6)(&r.Sightings["r"][1]) },
			"it was chosen before the end":  func(r *Routed) { picks(8)(&r.Sightings["r"][3]) },
			"picks count something else":    every(func(s *Sighting) { s.Dispatches.AtSelection = Unknown }),
			"picks are not known":           every(func(s *Sighting) { s.Dispatches.Known = false }),
			"it had one":                    func(r *Routed) { r.Sightings["r"][1].InFlight.Value = 1 },
			"the counts are a moment apart": func(r *Routed) { r.Sightings["r"][0].ReceivedAt = at(50.2) },
			"the absence is a moment old":   func(r *Routed) { r.Sightings["r"][2].ReceivedAt = at(55.2) },
			"it had left and come back once": func(r *Routed) {
				r.Sightings["r"] = slices.Insert(r.Sightings["r"], 0, seen(45, Absent, holds, picks(7)))
			},
			"it was not known in between": func(r *Routed) { r.Sightings["r"][1].Membership = MembershipUnknown },
			"the process restarted":       func(r *Routed) { r.Sightings["r"][1].Run = "0" },
		},
	} {
		for sentence, change := range worse {
			r := ways[way]()
			change(r)
			v, _ := r.Prove(at(0), at(60))
			assert.False(t, v.Proven, "%s: %s", way, sentence)
		}
	}
}

// Each of these was believed by somebody, and a request was cut.
func TestCounterExamples(t *testing.T) {
	restarted := func() *Routed {
		r := router("r").says("r", seen(30, Absent, picks(7)), seen(40, Absent, picks(7)))
		r.Fleet.Processes[0].Run, r.Fleet.Processes[0].StartedAt = "2", at(2)
		return r
	}
	for sentence, c := range map[string]struct {
		routed  *Routed
		missing string
	}{
		"1: a prefill of 90 s is under way, and nothing says so": {
			router("r").says("r", seen(1, Absent, holds), seen(59, Absent, holds)), names.HeldRouterHolds,
		},
		"2: a gauge is set to 0 when the worker is removed, with a stream open": {
			router("r").says("r", seen(1, Absent, holds, count(0)), seen(59, Absent, holds, count(0))), names.HeldRouterHolds,
		},
		"3: the count is gone with the endpoint, whose sidecar waits for a prefill": {
			router("r").says("r", seen(1, Absent, holds, picks(3)), seen(59, Absent, holds, picks(3))), names.HeldRouterHolds,
		},
		"4: two of three processes were asked, and the third terminates": {
			router("a", "b", "c").says("a", seen(50, Absent), seen(59, Absent)).says("b", seen(50, Absent), seen(59, Absent)), names.HeldRouterNotAsked,
		},
		"5: the gateway chooses by itself when the router does not answer": {
			func() *Routed {
				r := router("r").says("r", seen(50, Absent), seen(59, Absent))
				r.Fleet.Bypassed = Yes
				return r
			}(), names.HeldRouterBypassed,
		},
		"6: it was removed by an API, and the next look around brings it back": {
			router("r").says("r", seen(50, Absent, returns), seen(59, Absent, returns)), names.HeldRouterReturns,
		},
		"7: the router restarts and lists it again": {
			restarted().says("r", seen(59, Selectable, run("2"))), names.HeldRouterSelects,
		},
		"8: it is second in a list that is tried when the first fails": {
			router("r").says("r", seen(50, Absent, holds), seen(59, Absent, holds)), names.HeldRouterHolds,
		},
		"9: another Pod has its address, and the list has addresses only": {
			router("r").says("r", seen(50, Absent), seen(59, MembershipUnknown)), names.HeldRouterUnread,
		},
		"10: a counter did not change because the router restarted": {
			restarted().says("r", seen(59, Absent, picks(7), run("2"))), names.HeldRouterHolds,
		},
		// 11, gauges of the engine that lag, is no evidence here at all; internal/retire
		// waits for them.
		"12: the router missed that the Pod left, and says so": {
			router("r").says("r", seen(50, Selectable), seen(59, Selectable)), names.HeldRouterSelects,
		},
		"13: two live requests share an id, and the end of one is taken for both": {
			router("r").says("r", seen(50, Absent, holds, count(0, survives, func(c *Count) { c.UniqueIDs = Unknown })),
				seen(59, Absent, holds, count(0, survives, func(c *Count) { c.UniqueIDs = Unknown }))), names.HeldRouterHolds,
		},
		"it has answered nothing for a while": {
			router("r").says("r", seen(45, Absent), seen(49, Absent), Sighting{SentAt: at(53), Run: "1", Why: "no answer in 2 s"}, Sighting{SentAt: at(57), Run: "1"}), names.HeldRouterUnread,
		},
		"a request was sent to it a moment ago": {
			router("r").says("r", seen(55, Absent, holds, picks(7)), seen(59, Absent, holds, picks(8))), names.HeldRecentDispatches,
		},
		"the router's Pods are not found": {router(), names.HeldRouterNotFound},
		"nobody has looked for them":      {&Routed{}, names.HeldRouterNotAsked},
		"they could not be listed":        {&Routed{Fleet: Fleet{By: "forbidden"}}, names.HeldRouterUnread},
	} {
		t.Run(sentence, func(t *testing.T) {
			v, _ := c.routed.Prove(at(0), at(60))
			assert.False(t, v.Proven)
			assert.Equal(t, c.missing, v.Missing, v.Message)
		})
	}
}

// A question without an answer takes nothing back: what cannot come back by itself has
// not.
func TestOneAnswerThatIsMissingIsNoMatter(t *testing.T) {
	none := Sighting{SentAt: at(58), Run: "1", Why: "no answer in 2 s"}
	v, _ := router("r").says("r", seen(54, Absent), none, seen(59, Absent)).Prove(at(0), at(60))
	assert.True(t, v.Proven, v.Missing)
	v, _ = router("r").says("r", seen(54, Absent), seen(57, Absent), none).Prove(at(0), at(60))
	assert.True(t, v.Proven, v.Missing)
	v, _ = router("r").says("r", none).Prove(at(0), at(60))
	assert.Equal(t, Verdict{Missing: names.HeldRouterUnread, Message: "r: no answer in 2 s", QuietAt: at(-3600)}, v)
}

// Silence, a list that becomes old and a process that comes or goes do not take back
// that the proof was coming closer.
func TestWhenAProofCameCloser(t *testing.T) {
	none := Sighting{SentAt: at(58), Run: "1", Why: "connection refused"}
	for sentence, c := range map[string]struct {
		routed *Routed
		change func(*Routed)
		want   time.Time
	}{
		"both are out":                        {router("a", "b").says("a", seen(59, Absent)).says("b", seen(57, Absent)), nil, at(57)},
		"one is silent since":                 {router("a", "b").says("a", seen(59, Absent)).says("b", seen(45, Absent), none), nil, at(45)},
		"one was never heard":                 {router("a", "b").says("a", seen(59, Absent)).says("b", none), nil, at(-3600)},
		"one is silent and on its way out":    {router("a", "b").says("a", seen(59, Absent)).says("b", none), func(r *Routed) { r.Fleet.Processes[1].LeavingBy = at(70) }, at(59)},
		"and should be gone by now":           {router("a", "b").says("a", seen(59, Absent)).says("b", none), func(r *Routed) { r.Fleet.Processes[1].LeavingBy = at(59) }, at(-3600)},
		"one has just begun and is not asked": {router("a", "b").says("a", seen(59, Absent)), func(r *Routed) { r.Fleet.Processes[1].StartedAt = at(55) }, at(55)},
		"nobody could list them for a while":  {router("a").says("a", seen(40, Absent)), func(r *Routed) { r.Fleet.ListedAt = at(40) }, at(40)},
		"one can choose it":                   {router("a", "b").says("a", seen(59, Absent)).says("b", seen(58, Selectable)), nil, time.Time{}},
		"one would choose it again":           {router("a", "b").says("a", seen(59, Absent)).says("b", seen(58, Absent, returns)), nil, time.Time{}},
		"one does not say enough":             {router("a", "b").says("a", seen(59, Absent)).says("b", seen(58, MembershipUnknown)), nil, time.Time{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.change != nil {
				c.change(c.routed)
			}
			v, _ := c.routed.Prove(at(0), at(60))
			assert.Equal(t, c.want, v.QuietAt)
		})
	}
}

// A list of nobody is that of a router that has let the last one go, or of one that has
// not looked yet.
func TestAListOfNobodyCountsOfWhoHasListedTheReplica(t *testing.T) {
	v, _ := router("r").says("r", seen(-3, Selectable), seen(54, Emptied), seen(59, Emptied)).Prove(at(0), at(60))
	assert.True(t, v.Proven, v.Missing)
	v, _ = router("r").says("r", seen(54, Emptied), seen(59, Emptied)).Prove(at(0), at(60))
	assert.Equal(t, names.HeldRouterUnread, v.Missing)
	v, _ = router("r").says("r", seen(-3, Selectable, run("0")), seen(54, Emptied), seen(59, Emptied)).Prove(at(0), at(60))
	assert.Equal(t, names.HeldRouterUnread, v.Missing, "that was another run")
}

// What people see of each process, and what all of them come to.
func TestTestimonies(t *testing.T) {
	r := router("a", "b", "c", "d").
		says("a", seen(50, Absent), seen(59, Absent)).
		says("b", seen(50, Selectable, picks(3)), seen(58, Selectable, picks(5))).
		says("c", seen(57, MembershipUnknown, func(s *Sighting) { s.Why = "its API wants a token" })).
		says("d", seen(58, Unselectable, holds, count(4)))
	v, all := r.Prove(at(0), at(60))
	assert.Equal(t, Verdict{Missing: names.HeldRouterSelects, Message: "b: 2 sent to it in the last 10s"}, v)
	for i := range all {
		all[i].Process = Process{Pod: all[i].Process.Pod}
	}
	assert.Equal(t, []Testimony{
		{Process: Process{Pod: "a"}, CloserAt: at(59), AskedAt: at(59)},
		{Process: Process{Pod: "b"}, Missing: names.HeldRouterSelects, Message: "2 sent to it in the last 10s", AskedAt: at(58), Dispatches: 2},
		{Process: Process{Pod: "c"}, Missing: names.HeldRouterUnread, Message: "its API wants a token", AskedAt: at(57)},
		{Process: Process{Pod: "d"}, Missing: names.HeldRouterHolds, Message: "4 bound to it", CloserAt: at(58), AskedAt: at(58)},
	}, all)

	r.Fleet.Processes = []Process{r.Fleet.Processes[0], r.Fleet.Processes[3]}
	v, _ = r.Prove(at(0), at(60))
	assert.Equal(t, names.HeldRouterHolds, v.Missing)
	assert.Equal(t, at(58), v.QuietAt, "none can choose it any more, so the proof comes closer")
}

// TestUnknownNeverProvesOfARouter takes evidence at random, and takes from it what must
// not help.
func TestUnknownNeverProvesOfARouter(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	proven := 0
	for range 30000 {
		r := randomRouted(random)
		v, _ := r.Prove(at(0), at(60))
		if v.Proven {
			proven++
		}
		never := func(what string, other *Routed) {
			w, _ := other.Prove(at(0), at(60))
			require.False(t, !v.Proven && w.Proven, "%s: %+v", what, r)
		}
		uid := r.Fleet.Processes[random.IntN(len(r.Fleet.Processes))].UID
		all := r.Sightings[uid]
		if len(all) == 0 {
			continue
		}
		i := random.IntN(len(all))
		with := func(change func(s *Sighting)) *Routed {
			changed := slices.Clone(all)
			change(&changed[i])
			return r.with(uid, changed)
		}
		never("a sighting of which nothing is known", r.with(uid, slices.Insert(slices.Clone(all), i, Sighting{SentAt: all[i].SentAt, ReceivedAt: all[i].ReceivedAt, Run: all[i].Run})))
		never("its membership is unknown", with(func(s *Sighting) { s.Membership = MembershipUnknown }))
		never("its window is unknown", with(func(s *Sighting) { s.Window = 0 }))
		never("whether it holds is unknown", with(func(s *Sighting) { s.Holds = Unknown }))
		never("how long it holds is unknown", with(func(s *Sighting) { s.MostHeld = 0 }))
		never("whether it returns is unknown", with(func(s *Sighting) { s.Returns = Unknown }))
		never("its counts are unknown", with(func(s *Sighting) { s.InFlight, s.Whole = Count{}, Count{} }))
		never("the meaning of its count is unknown", with(func(s *Sighting) { s.InFlight = Count{Known: true} }))
		never("the last word is that it lists it", r.with(uid, append(slices.Clone(all), seen(60, Selectable))))

		later := slices.Clone(all)
		for n := range i { // all before i were another run
			later[n].Run = "0"
		}
		a, _ := r.with(uid, later).Prove(at(0), at(60))
		b, _ := r.with(uid, all[i:]).Prove(at(0), at(60))
		require.Equal(t, b, a, "what another run has said counts: %+v", r)
		_, more := r.Prove(at(1), at(60))
		require.Len(t, more, len(r.Fleet.Processes))
	}
	require.Greater(t, proven, 1000, "too few proofs to say anything")
}

func (r *Routed) with(uid types.UID, sightings []Sighting) *Routed {
	other := &Routed{Fleet: r.Fleet, Prefills: r.Prefills, Sightings: map[types.UID][]Sighting{}}
	for other2, all := range r.Sightings {
		other.Sightings[other2] = all
	}
	other.Sightings[uid] = sightings
	return other
}

func randomRouted(random *rand.Rand) *Routed {
	r := router("a", "b")
	if random.IntN(2) > 0 {
		r = router("a")
	}
	if random.IntN(10) == 0 {
		r.Prefills = Prefills{All: Yes, IdleAt: []time.Time{at(20), at(50)}, Apart: 15 * time.Second}
	}
	for _, p := range r.Fleet.Processes {
		when, chosen := 52.0+float64(random.IntN(3)), 3.0
		registered := random.IntN(3) > 0
		for when < 60 {
			m := Absent
			if registered {
				m = []Membership{Selectable, Unselectable}[random.IntN(2)]
				registered = random.IntN(3) > 0
			}
			s := seen(when, m, picks(chosen), count(int64(random.IntN(2)*random.IntN(2))))
			if random.IntN(8) == 0 {
				chosen++
			}
			switch random.IntN(8) {
			case 0:
				s.Membership = MembershipUnknown
			case 1, 2, 3:
				holds(&s)
			case 4:
				survives(&s.InFlight)
			case 5:
				whole(0)(&s)
			}
			r.says(p.Pod, s)
			when += 1 + float64(random.IntN(3))
		}
	}
	return r
}
