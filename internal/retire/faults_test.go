package retire

import (
	"strconv"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// fault is what may go wrong, or be asked for, in one second.
func (w *world) fault(h *host) {
	if len(w.pods) == 0 || !w.chance(3) {
		return
	}
	p := w.pods[w.random.IntN(len(w.pods))]
	switch w.random.IntN(5) {
	case 0:
		w.people(p)
	case 1:
		w.stranger(p)
	case 2:
		w.machine(p)
	case 3:
		if w.chance(4) {
			h.crash()
		}
	case 4:
		w.unsettle()
	}
}

// people change their minds.
func (w *world) people(p *pod) {
	switch w.random.IntN(20) {
	case 0, 1, 2, 3:
		for _, role := range roles {
			if _, there := w.spec.Wanted[role]; there || w.chance(3) {
				w.wanted(role, int32(w.random.IntN(4)))
			}
		}
		w.ask("want %v", w.spec.Wanted)
	case 4:
		if !w.chance(3) {
			return
		}
		dropped := map[string]int32{}
		for role, n := range w.spec.Wanted {
			if role != "b" {
				dropped[role] = n
			}
		}
		w.spec.Wanted = dropped
		w.ask("drop role b")
	case 5, 6, 7:
		w.spec.RetryToken = "t" + strconv.Itoa(w.random.IntN(100))
		w.changed = true
		w.log("people: retry %s", w.spec.RetryToken)
	case 8:
		if w.chance(5) {
			w.delete()
		}
	case 9:
		if w.spec.Deleting {
			w.spec.WaitForIdle, w.waitedUntil = !w.spec.WaitForIdle, w.tick
			w.ask("wait for idle: %t", w.spec.WaitForIdle)
		}
	case 10:
		if w.chance(2) {
			w.spec.Plan = w.plans()[w.random.IntN(2)]
			w.ask("plan %s", w.spec.Plan)
			w.reached["fault plan"]++
		}
	case 11, 12: // a rollout, which replaces what is not being retired
		if t := target(w.status, p.UID); !w.spec.Deleting && (t == nil || t.State == v1alpha1.StateAborted) {
			w.replace(p.slot, "is rolled")
			w.reached["fault rollout"]++
		}
	}
}

// plans are those that people can change to. Connections prove nothing where a router
// holds requests.
func (w *world) plans() []Plan {
	if w.routed {
		return []Plan{PlanHold, PlanRouter}
	}
	return []Plan{PlanHold, PlanConnections}
}

// wanted changes a copy: an observer may still have what it was.
func (w *world) wanted(role string, n int32) {
	all := map[string]int32{role: n}
	for other, n := range w.spec.Wanted {
		if other != role {
			all[other] = n
		}
	}
	w.spec.Wanted = all
}

func (w *world) delete() {
	if w.spec.Deleting {
		return
	}
	w.spec.Deleting, w.spec.WaitForIdle = true, w.chance(4)
	switch w.random.IntN(8) {
	case 0:
		w.orphan = true
		w.reached["fault orphan"]++
	case 1:
		w.foreground = true
		w.reached["fault foreground"]++
	case 2:
		w.namespace = true
		w.reached["fault namespace"]++
	}
	if w.foreground || w.namespace {
		for _, p := range w.pods {
			w.leave(p)
		}
	}
	w.ask("delete; orphan %t, foreground %t, namespace %t, wait for idle %t", w.orphan, w.foreground, w.namespace, w.spec.WaitForIdle)
}

func (w *world) leave(p *pod) {
	if !p.leaving() {
		p.LeavingBy = w.now().Add(p.Grace)
		p.touch(w)
	}
}

// replace takes the Pods of a slot away by force and makes new ones.
func (w *world) replace(slot key, why string) {
	w.log("%s %s", slot, why)
	for i := len(w.pods) - 1; i >= 0; i-- {
		if w.pods[i].slot == slot {
			w.remove(w.pods[i])
		}
	}
	w.create(slot)
}

// stranger is somebody else with access to Pods.
func (w *world) stranger(p *pod) {
	switch w.random.IntN(12) {
	case 0:
		w.log("%s is gone by force", p.Name)
		w.reached["fault replaced"]++
		w.remove(p)
		if !w.spec.Deleting {
			w.create(p.slot) // also beyond the spec: somebody's backup
		}
	case 1, 2:
		p.Withdrawn = !p.Withdrawn
		p.touch(w)
		w.reached["fault stranger"]++
		w.log("a stranger marks %s %t", p.Name, p.Withdrawn)
	case 3:
		w.log("a stranger deletes %s", p.Name)
		w.reached["fault stranger deletes"]++
		w.leave(p)
	case 4, 5, 6:
		p.touch(w) // somebody writes something else
		w.reached["fault unrelated write"]++
	case 7:
		w.unqueue(p)
	}
}

// flap gives a Pod to its Services for so short a time that nobody sees it. A
// delete that was refused because of that finds a member with work.
func (w *world) flap(p *pod) {
	if w.faulty && p.run > 0 && p.Index == 0 && !p.leaving() && w.chance(2) {
		p.conns = append(p.conns, connection{busyUntil: w.tick + 30 + w.random.IntN(40), peer: w.chance(2)})
		p.touch(w)
		w.reached["fault flap"]++
		w.log("somebody takes the mark of %s away and sets it again", p.Name)
	}
}

// machine is what engines, nodes and the API server do of their own.
func (w *world) machine(p *pod) {
	switch w.random.IntN(12) {
	case 0, 1:
		if p.run > 0 {
			w.log("%s restarts", p.Name)
			w.reached["fault restart"]++
			w.startEngine(p, w.random.IntN(3))
		}
	case 2:
		if p.run > 0 {
			w.log("%s crashes", p.Name)
			w.reached["fault engine crash"]++
			p.run, p.conns, p.knownAt = 0, nil, w.tick+w.random.IntN(3)
		}
	case 3:
		if w.chance(3) {
			w.log("%s has failed for good", p.Name)
			w.reached["fault ended"]++
			p.run, p.conns, p.Ended = 0, nil, true
			w.learn(p)
		}
	case 4, 5:
		p.NodeUnreachable = !p.NodeUnreachable
		w.changed = true
		w.reached["fault node"]++
		w.log("the node of %s is unreachable: %t", p.Name, p.NodeUnreachable)
	case 6:
		w.apiAway = w.tick + 2 + w.random.IntN(20)
		w.reached["fault API server away"]++
		w.log("the API server refuses writes")
	case 8:
		if w.chance(6) {
			w.marksRefused = w.tick + 100 + w.random.IntN(100)
			w.log("marks are refused")
		}
	case 7:
		p.noGauges = !p.noGauges
		w.reached["fault gauges"]++
		w.log("%s serves no gauges: %t", p.Name, p.noGauges)
	}
}

// calm ends all faults. What people asked for stands.
func (w *world) calm() {
	w.faulty, w.apiAway, w.marksRefused = false, 0, 0
	w.changed = true
	for _, p := range w.pods {
		p.NodeUnreachable = false
	}
	for _, p := range w.routers {
		p.silentUntil = 0
	}
	w.log("no more faults")
}

// patience ends what would never end of itself: a wait without bound for clients
// that never stop, or for what is never proven.
func (w *world) patience(since int) {
	switch {
	case !w.spec.WaitForIdle:
	case w.tick == since+60:
		w.quiet = true
	case w.tick == since+180:
		w.spec.WaitForIdle = false // for what cannot be proven
		w.waitedUntil = w.tick
		w.ask("wait no longer")
	}
}
