package retire

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func idleAt(seconds int) Read {
	return Read{SentAt: beginning.Add(time.Duration(seconds) * time.Second), ContainerID: "c1", Started: "1", Verdict: ReadIdle}
}

func busyAt(seconds int) Read {
	r := idleAt(seconds)
	r.Verdict, r.InFlight = ReadBusy, 1
	return r
}

func failedAt(seconds int) Read {
	r := idleAt(seconds)
	r.Verdict, r.Reason = ReadFailed, names.HeldReadTimedOut
	return r
}

func in2(seconds int) Read {
	r := idleAt(seconds)
	r.ContainerID = "c2"
	return r
}

func run2(seconds int) Read {
	r := idleAt(seconds)
	r.Started = "2"
	return r
}

// Reads count from 10 on, and the gauges can lag by 6 s.
func TestIdleRun(t *testing.T) {
	for sentence, c := range map[string]struct {
		reads  []Read
		lag    int
		reason string
		since  int // of the run of idle reads; 0 where there is none
	}{
		"two idle reads 6 s apart prove":                  {reads: []Read{idleAt(10), idleAt(16)}, reason: names.RetireIdle, since: 10},
		"what was before the run does not matter":         {reads: []Read{busyAt(10), failedAt(11), idleAt(12), idleAt(14), idleAt(18)}, reason: names.RetireIdle, since: 12},
		"nothing was read":                                {reason: names.HeldNotReadYet},
		"the reads are of before":                         {reads: []Read{idleAt(3), idleAt(9)}, reason: names.HeldNotReadYet},
		"the first of them is of before":                  {reads: []Read{idleAt(9), idleAt(15)}, reason: names.HeldProvingIdle, since: 15},
		"they are less than 6 s apart":                    {reads: []Read{idleAt(10), idleAt(15)}, reason: names.HeldProvingIdle, since: 10},
		"one is not enough, though nothing lags":          {reads: []Read{idleAt(10)}, lag: -6, reason: names.HeldProvingIdle, since: 10},
		"it is busy":                                      {reads: []Read{idleAt(10), idleAt(16), busyAt(18)}, reason: names.HeldServingRequests},
		"it was busy in between":                          {reads: []Read{idleAt(10), busyAt(14), idleAt(16), idleAt(18)}, reason: names.HeldProvingIdle, since: 16},
		"the last read failed":                            {reads: []Read{idleAt(10), idleAt(16), failedAt(18)}, reason: names.HeldReadTimedOut},
		"a read failed in between":                        {reads: []Read{idleAt(10), failedAt(14), idleAt(16)}, reason: names.HeldProvingIdle, since: 16},
		"the last read is of another container":           {reads: []Read{idleAt(10), idleAt(16), in2(18)}, reason: names.HeldNotReadYet},
		"the container was another one before":            {reads: []Read{in2(10), idleAt(16)}, reason: names.HeldProvingIdle, since: 16},
		"it was another run, which the API server missed": {reads: []Read{idleAt(10), idleAt(14), run2(16)}, reason: names.HeldProvingIdle, since: 16},
		"it was another run in between":                   {reads: []Read{idleAt(10), run2(12), idleAt(16)}, reason: names.HeldProvingIdle, since: 16},
		"a verdict that nobody knows is none":             {reads: []Read{{SentAt: beginning.Add(10 * second), ContainerID: "c1", Verdict: "Asleep"}}, reason: ""},
		"SGLang's lag by 31 s: not yet":                   {reads: []Read{idleAt(10), idleAt(40)}, lag: 25, reason: names.HeldProvingIdle, since: 10},
		"SGLang's lag by 31 s":                            {reads: []Read{idleAt(10), idleAt(41)}, lag: 25, reason: names.RetireIdle, since: 10},
	} {
		t.Run(sentence, func(t *testing.T) {
			v := idleRun(c.reads, "c1", beginning.Add(10*second), time.Duration(6+c.lag)*second)
			assert.Equal(t, c.reason, v.reason)
			assert.Equal(t, c.reason == names.RetireIdle, v.idle)
			since := time.Time{}
			if c.since > 0 {
				since = beginning.Add(time.Duration(c.since) * second)
			}
			assert.Equal(t, since, v.idleSince)
		})
	}
}

const second = time.Second

// A proof is about a moment. A host that slept over it reads again before it
// deletes.
func TestAnOldProofDeletesNothing(t *testing.T) {
	for age, deletes := range map[time.Duration]bool{ProofAge: true, ProofAge + time.Millisecond: false} {
		spec, status, seen := in(v1alpha1.StateDeleting)
		target := &status.Retirement.Targets[0]
		target.Reason, target.PhaseStartedAt.Time = names.RetireIdle, beginning.Add(16*second)
		reads := []Read{idleAt(10), idleAt(16)}
		seen.Reads = map[types.UID][]Read{"u1": reads}
		_, actions := Step(reads[1].SentAt.Add(age), spec, status, seen)
		deleted := slices.ContainsFunc(actions, func(a Action) bool { _, ok := a.(DeleteMember); return ok })
		assert.Equal(t, deletes, deleted, "%s", age)
	}
}
