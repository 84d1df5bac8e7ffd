package fake

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Status is a worker's, in SMG's words.
type Status string

// What a worker can be.
const (
	Ready    Status = "ready"
	NotReady Status = "not_ready"
	Draining Status = "draining"
)

// worker is one a router can choose. It stays what it is after it was removed: requests
// that have chosen it hold it.
type worker struct {
	id, url string
	rank    int
	pod     podInfo
	// found is whether discovery added it, and not the API.
	found    bool
	status   Status
	load     int64
	failures int       // in a row, of requests
	openTill time.Time // the breaker's
	missed   int       // health checks in a row
	gone     bool
	job      string // what SMG does with it
}

// base is the URL without a rank.
func (w *worker) base() string {
	base, _, _ := strings.Cut(w.url, "@")
	return base
}

// endpoint is llm-d's name of it.
func (w *worker) endpoint() string { return fmt.Sprintf("%s-rank-%d", w.pod.name, w.rank) }

// A breaker opens after so many failures in a row, for so long; a health check fails for
// good after so many.
const (
	breakerFailures = 10
	breakerOpen     = time.Minute
	healthFailures  = 3
)

// selectable reports whether a worker can be chosen at all.
func (w *worker) selectable(now time.Time) bool {
	return !w.gone && w.status == Ready && !now.Before(w.openTill)
}

// filter is what an llm-d profile leaves of the endpoints.
type filter struct {
	byRole   bool
	endpoint labels.Selector
}

// roles are the values of the role label that each of llm-d's role filters accepts. A
// missing label is accepted for decode, and only there.
var roles = map[Role][]string{
	Prefill: {"prefill", "prefill-decode", "encode-prefill", "encode-prefill-decode", "both"},
	Decode:  {"decode", "prefill-decode", "encode-prefill-decode", "both"},
}

func (f filter) accepts(p podInfo, as Role) bool {
	if f.endpoint != nil && !f.endpoint.Matches(labels.Set(p.labels)) {
		return false
	}
	if !f.byRole {
		return true
	}
	if as == Regular {
		as = Decode // the one profile there is filters for decode
	}
	role, set := p.labels[roleLabel]
	return !set && as == Decode || set && slices.Contains(roles[as], role)
}

// candidates are the workers that can be chosen for a role, in order of registration.
func candidates(workers []*worker, as Role, family Family, f filter, now time.Time) []*worker {
	var can []*worker
	for _, w := range workers {
		ok := w.pod.role == as
		if family == LLMD {
			ok = f.accepts(w.pod, as)
		}
		if ok && w.selectable(now) {
			can = append(can, w)
		}
	}
	return can
}

// pick chooses one of the candidates, of which there is one at least. turn counts the
// choices before.
func pick(policy string, can []*worker, turn int) *worker {
	switch policy {
	case "random":
		return can[rand.IntN(len(can))]
	case "power_of_two":
		a, b := can[rand.IntN(len(can))], can[rand.IntN(len(can))]
		if b.load < a.load {
			return b
		}
		return a
	case "cache_aware", "manual", "least_load":
		// Where no prefix is cached the least loaded is taken, and of those the next.
		least := can[turn%len(can)]
		for i := range can {
			if w := can[(turn+i)%len(can)]; w.load < least.load {
				least = w
			}
		}
		return least
	default: // round_robin
		return can[turn%len(can)]
	}
}

// failed counts a request that failed at a worker. It is chosen no more for a while after
// so many in a row, and then again by itself.
func (w *worker) failed(now time.Time) {
	w.failures++
	if w.failures >= breakerFailures {
		w.failures, w.openTill = 0, now.Add(breakerOpen)
	}
}

// checked takes a health check's result. A worker that drains is not checked.
func (w *worker) checked(healthy bool) {
	switch {
	case w.status == Draining:
	case healthy:
		w.missed, w.status = 0, Ready
	default:
		if w.missed++; w.missed >= healthFailures {
			w.status = NotReady
		}
	}
}

// removal says how long a worker is Draining before it is gone. Only one that is Ready
// is; so a second removal, which finds none, ends the first one's wait.
func removal(status Status, settle time.Duration) time.Duration {
	if status != Ready || settle < 0 {
		return 0
	}
	return settle
}
