package retire

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// playedRouter is one process of the router of a story. One that is told chooses a
// replica until it is told not to, the others until it is marked.
type playedRouter struct {
	told bool
	runs int
	// since is when it began to run.
	since time.Time
	// left are the replicas that it was told to leave alone.
	left map[types.UID]bool
}

// router makes a process of the router, or changes one.
func (s *story) router(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	name := words(d)[0]
	r := s.routers[name]
	if r == nil {
		r = &playedRouter{runs: 1, since: s.now, left: map[types.UID]bool{}}
		if s.now.Equal(s.start) {
			r.since = s.now.Add(-time.Hour)
		}
		s.routers[name] = r
	}
	for _, arg := range d.CmdArgs[1:] {
		switch arg.Key {
		case "told":
			r.told = true
		case "restarts":
			r.runs, r.since, r.left = r.runs+1, s.now, map[types.UID]bool{}
		case "exits":
			delete(s.routers, name)
		default:
			d.Fatalf(t, "a process of a router has no %q", arg.Key)
		}
	}
}

func (s *story) process(name string) withdraw.Process {
	r := s.routers[name]
	return withdraw.Process{Pod: name, UID: types.UID(name), Run: strconv.Itoa(r.runs), StartedAt: r.since, Told: r.told}
}

// fleet is every process of the router, as it was listed at a moment.
func (s *story) fleet(at time.Time, what map[string]string) withdraw.Fleet {
	f := withdraw.Fleet{ListedAt: at, Bypassed: withdraw.No}
	if _, bypassed := what["bypassed"]; bypassed {
		f.Bypassed, f.By = withdraw.Yes, "InferencePool qwen fails open"
	}
	for _, name := range slices.Sorted(maps.Keys(s.routers)) {
		f.Processes = append(f.Processes, s.process(name))
	}
	return f
}

// testify is what every process of the router says when it is asked.
func (s *story) testify(sent time.Time, what map[string]string) {
	for _, pod := range s.askedRouter {
		m := s.byUID(pod.UID)
		if m == nil {
			continue
		}
		seen := s.seen.Routed[pod.UID]
		sightings := maps.Clone(seen.Sightings)
		if sightings == nil {
			sightings = map[types.UID][]withdraw.Sighting{}
		}
		for name, r := range s.routers {
			uid := types.UID(name)
			sightings[uid] = append(slices.Clone(sightings[uid]), s.sighting(r, m, sent, what[name]))
		}
		s.seen.Routed[pod.UID] = withdraw.Routed{Fleet: s.fleet(sent, what), Sightings: sightings}
	}
	s.askedRouter = nil
}

// sighting is what a process says of a member, unless it says something else.
func (s *story) sighting(r *playedRouter, m *Member, sent time.Time, says string) withdraw.Sighting {
	said := withdraw.Sighting{
		SentAt: sent, ReceivedAt: s.now, Run: strconv.Itoa(r.runs), Answered: true, Membership: withdraw.Selectable,
		Window: 5 * time.Second, Holds: withdraw.No, Returns: withdraw.Yes,
	}
	if m.Withdrawn {
		said.Returns = withdraw.No
	}
	if r.left[m.UID] || m.Withdrawn && !r.told {
		said.Membership = withdraw.Absent
	}
	switch kind, n, _ := strings.Cut(says, ":"); kind {
	case "silent":
		said = withdraw.Sighting{SentAt: sent, ReceivedAt: s.now, Run: said.Run, Why: "no answer in 2 s"}
	case "selects":
		said.Membership = withdraw.Selectable
	case "drains":
		if said.Membership == withdraw.Absent {
			said.Membership = withdraw.Unselectable
		}
	case "nobody":
		if said.Membership == withdraw.Absent {
			said.Membership = withdraw.Emptied
		}
	case "returns":
		said.Returns, said.Why = withdraw.Yes, "its selector does not ask for the label"
	case "holds":
		said.Holds = withdraw.Yes
		if count, err := strconv.ParseInt(n, 10, 64); err == nil {
			said.InFlight = withdraw.Count{
				Known: true, Value: count, HeldToEnd: withdraw.Yes, NeverReset: withdraw.Yes, AllPaths: withdraw.Yes,
				SurvivesRemoval: withdraw.Yes, UniqueIDs: withdraw.Yes,
			}
		}
	}
	return said
}

// tell does what a process is told.
func (s *story) tell(p withdraw.Process, pod PodRef, leave bool) {
	if r := s.routers[p.Pod]; r != nil && strconv.Itoa(r.runs) == p.Run {
		r.left[pod.UID] = leave
	}
}

// toldRouter is what processes are told, in words.
func toldRouter(action Action) string {
	switch a := action.(type) {
	case WithdrawFromRouter:
		return fmt.Sprintf("tell %s to leave %s alone", a.Process.Pod, a.Pod.Name)
	case RestoreToRouter:
		return fmt.Sprintf("tell %s to choose %s again", a.Process.Pod, a.Pod.Name)
	}
	return ""
}
