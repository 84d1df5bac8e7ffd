package retire

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// planted are the bugs that the simulation has to find, and in how many worlds at
// most. Each is a host that does not do its duty, or a Step that is fooled about
// its input so that it decides as if it had the bug.
var planted = map[string]uint64{
	// The host.
	"acts by name":                           2000,
	"deletes without a UID":                  4000,
	"deletes the leader only":                500,
	"deletes what has changed":               4000,
	"acts before it has written":             500,
	"writes in spite of a conflict":          500,
	"trusts a cached Pod":                    500,
	"leaves the mark after a cancel":         500,
	"leaves the mark on Aborted":             500,
	"counts a read from another container":   2000,
	"reads an absent gauge as zero":          2000,
	"takes an unread connection for none":    2000,
	"deletes a Workload by name":             12000,
	"forgets a process of the router":        4000,
	"counts from when a process was told":    12000,
	"takes silence for absence":              4000,
	"believes that nothing comes back":       4000,
	"does not wait for what a router holds":  4000,
	"tells no router that a replica is kept": 500,
	// Prove.
	"takes a router's window for over": 4000,
	"trusts a count that is set back":  12000,
	"trusts the count of what is gone": 12000,
	// Step.
	"moves the deadline":                     500,
	"begins another operation":               500,
	"forgets a member":                       500,
	"takes one idle read for enough":         500,
	"does not wait for the gauges":           500,
	"counts reads from before withdrawal":    2000,
	"keeps a proof after a refused delete":   4000,
	"does not look whether the mark is left": 4000,
	"gives up after the decision":            500,
	"binds what came later":                  500,
	"gives up before it has looked":          500,
	"deletes the Workload first":             500,
	"deletes the Workload of what was given": 500,
}

// TestPlantedBugs proves the simulation: what it does not find here it would not
// find in Step either.
func TestPlantedBugs(t *testing.T) {
	for bug, worlds := range planted {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			for seed := range worlds {
				if found := simulate(seed, bug, nil, nil); found != "" {
					t.Logf("world %d: %s", seed, found)
					return
				}
			}
			require.Fail(t, "the bug lives", "%d worlds have not found it", worlds)
		})
	}
}

// eachSighting is what is known of routers, with something changed in all that was said.
func eachSighting(routed map[types.UID]withdraw.Routed, change func(*withdraw.Sighting)) map[types.UID]withdraw.Routed {
	all := map[types.UID]withdraw.Routed{}
	for uid, r := range routed {
		said := map[types.UID][]withdraw.Sighting{}
		for _, p := range r.Fleet.Processes {
			said[p.UID] = slices.Clone(r.Sightings[p.UID])
			for i := range said[p.UID] {
				change(&said[p.UID][i])
			}
		}
		r.Sightings = said
		all[uid] = r
	}
	return all
}

// decide is Step, fooled where a bug is planted.
func (h *host) decide(r *round) (Status, []Action) {
	seen, before := h.seen, r.before
	switch h.bug {
	case "takes one idle read for enough":
		seen.Reads = eachRead(seen.Reads, func(read Read) []Read {
			earlier := read
			earlier.SentAt = read.SentAt.Add(-time.Minute)
			before = drainingSince(before, -time.Hour)
			return []Read{earlier, read}
		})
	case "does not wait for the gauges":
		seen.Replicas = eachMember(seen.Replicas, func(m *Member) { m.Refresh = min(m.Refresh, time.Second) })
	case "does not look whether the mark is left":
		seen.Replicas = eachMember(seen.Replicas, func(m *Member) {
			t := target(before, m.UID)
			m.Withdrawn = m.Withdrawn || t != nil && (t.State == v1alpha1.StateDraining || t.State == v1alpha1.StateDeleting)
		})
	case "counts reads from before withdrawal":
		before = drainingSince(before, -time.Hour)
	case "counts a read from another container":
		seen.Replicas = eachMember(seen.Replicas, func(m *Member) {
			if t := target(before, m.UID); t != nil {
				m.ContainerID = t.Members[slices.IndexFunc(t.Members, func(b v1alpha1.RetirementMember) bool { return b.UID == m.UID })].ContainerID
			}
		})
		seen.Reads = eachRead(seen.Reads, func(read Read) []Read {
			read.Started = ""
			return []Read{read}
		})
	case "keeps a proof after a refused delete":
		seen.Refused = nil
		seen.Reads, seen.Direct = h.stillProven(before)
	case "takes a router's window for over":
		seen.Routed = eachSighting(seen.Routed, func(s *withdraw.Sighting) { s.Window = 1 })
	case "trusts a count that is set back":
		seen.Routed = eachSighting(seen.Routed, func(s *withdraw.Sighting) { s.InFlight.NeverReset = withdraw.Yes })
	case "trusts the count of what is gone":
		seen.Routed = eachSighting(seen.Routed, func(s *withdraw.Sighting) { s.InFlight.SurvivesRemoval = withdraw.Yes })
	case "gives up before it has looked":
		seen.Since = time.Time{}
	case "begins another operation":
		if h.chance(50) {
			before.Retirement = nil
		}
	}
	after, actions := Step(h.clock(), r.spec, before, seen)
	if after.Retirement != nil {
		after.Retirement = after.Retirement.DeepCopy()
		h.spoil(r, after.Retirement)
	}
	return after, h.plantWorkloads(r, actions)
}

// spoil plants the bugs of what is written.
func (h *host) spoil(r *round, operation *v1alpha1.RetirementStatus) {
	switch h.bug {
	case "moves the deadline":
		operation.Deadline.Time = h.clock().Add(time.Minute)
	case "takes one idle read for enough", "counts reads from before withdrawal":
		for i := range operation.Targets { // as it was before it was fooled
			t := &operation.Targets[i]
			if t.PhaseStartedAt.Before(&operation.StartedAt) {
				if was := target(r.before, t.Members[0].UID); was != nil {
					t.PhaseStartedAt = was.PhaseStartedAt
				}
			}
		}
	case "forgets a member":
		for i := range operation.Targets {
			if t := &operation.Targets[i]; len(t.Members) > 1 {
				t.Members = t.Members[:1]
			}
		}
	case "counts from when a process was told": // who starts after that can choose what is not marked yet
		for i := range operation.Targets {
			t := &operation.Targets[i]
			for _, p := range t.Routers {
				if p.ToldAt != nil && (t.MarkedAt == nil || p.ToldAt.Before(t.MarkedAt)) {
					t.MarkedAt = p.ToldAt
				}
			}
		}
	case "gives up after the decision":
		for i := range operation.Targets {
			if t := &operation.Targets[i]; t.State == v1alpha1.StateDeleting && h.clock().After(t.PhaseStartedAt.Add(20*time.Second)) {
				t.State = v1alpha1.StateAborted
			}
		}
	case "binds what came later":
		for i := range operation.Targets {
			t := &operation.Targets[i]
			for _, p := range h.pods {
				if p.Name == t.Members[0].Name {
					t.Members[0].UID, t.Members[0].ContainerID = p.UID, p.ContainerID
				}
			}
		}
	}
}

func drainingSince(status Status, ago time.Duration) Status {
	if status.Retirement == nil {
		return status
	}
	status.Retirement = status.Retirement.DeepCopy()
	for i := range status.Retirement.Targets {
		if t := &status.Retirement.Targets[i]; t.State == v1alpha1.StateDraining {
			t.PhaseStartedAt.Time = t.PhaseStartedAt.Add(ago)
		}
	}
	return status
}

func eachRead(reads map[types.UID][]Read, change func(Read) []Read) map[types.UID][]Read {
	all := map[types.UID][]Read{}
	for uid := range reads {
		for _, r := range reads[uid] {
			all[uid] = append(all[uid], change(r)...)
		}
	}
	return all
}

func eachMember(replicas []Replica, change func(m *Member)) []Replica {
	all := slices.Clone(replicas)
	for i := range all {
		all[i].Members = slices.Clone(all[i].Members)
		for j := range all[i].Members {
			change(&all[i].Members[j])
		}
	}
	return all
}

// stillProven is what would be seen if a decision to delete were a proof for ever.
func (h *host) stillProven(status Status) (map[types.UID][]Read, map[types.UID]withdraw.Direct) {
	reads, direct := map[types.UID][]Read{}, map[types.UID]withdraw.Direct{}
	for uid := range h.seen.Reads {
		reads[uid], direct[uid] = h.seen.Reads[uid], h.seen.Direct[uid]
		p := h.byUID(uid)
		if t := target(status, uid); p == nil || t == nil || t.State != v1alpha1.StateDeleting {
			continue
		}
		reads[uid], direct[uid] = nil, withdraw.Direct{DroppedAt: h.clock().Add(-time.Hour)}
		for ago := range 30 {
			at := h.clock().Add(time.Duration(ago-30) * 2 * time.Second)
			reads[uid] = append(reads[uid], Read{SentAt: at, ReceivedAt: at, ContainerID: p.ContainerID, Verdict: ReadIdle})
			d := direct[uid]
			d.Samples = append(d.Samples, withdraw.Sample{SentAt: at, ContainerID: p.ContainerID, Known: true})
			direct[uid] = d
		}
	}
	return reads, direct
}
