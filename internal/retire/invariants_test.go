package retire

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// target is the one of a status that has bound a Pod.
func target(status Status, uid types.UID) *v1alpha1.RetirementTarget {
	if status.Retirement == nil {
		return nil
	}
	for i := range status.Retirement.Targets {
		t := &status.Retirement.Targets[i]
		if slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return m.UID == uid }) {
			return t
		}
	}
	return nil
}

func inSlot(status Status, slot key) *v1alpha1.RetirementTarget {
	if status.Retirement == nil {
		return nil
	}
	for i := range status.Retirement.Targets {
		if t := &status.Retirement.Targets[i]; t.Role == slot.role && t.Ordinal == slot.ordinal {
			return t
		}
	}
	return nil
}

// mustBeFunction: equal inputs give equal outputs, and inputs are left as they were.
func (h *host) mustBeFunction(r *round) {
	status, seen := copied(r.before, h.seen)
	after, actions := Step(h.clock(), r.spec, r.before, h.seen)
	h.must(reflect.DeepEqual(status, r.before) && reflect.DeepEqual(seen, h.seen), "Step has changed what it was given")
	again, once := Step(h.clock(), r.spec, status, seen)
	h.must(reflect.DeepEqual(after, again) && reflect.DeepEqual(actions, once), "Step is no function")
}

func copied(status Status, seen Observations) (Status, Observations) {
	status = Status{Retirement: status.Retirement.DeepCopy(), Last: status.Last.DeepCopy()}
	seen.Replicas = eachMember(seen.Replicas, func(*Member) {})
	seen.Reads = maps.Clone(seen.Reads)
	for uid := range seen.Reads {
		seen.Reads[uid] = slices.Clone(seen.Reads[uid])
	}
	seen.Direct = maps.Clone(seen.Direct)
	for uid, d := range seen.Direct {
		d.Samples = slices.Clone(d.Samples)
		seen.Direct[uid] = d
	}
	seen.Refused = maps.Clone(seen.Refused)
	seen.Routed = maps.Clone(seen.Routed)
	for uid, r := range seen.Routed {
		r.Fleet.Processes = slices.Clone(r.Fleet.Processes)
		r.Sightings = maps.Clone(r.Sightings)
		for process := range r.Sightings {
			r.Sightings[process] = slices.Clone(r.Sightings[process])
		}
		seen.Routed[uid] = r
	}
	return status, seen
}

// checkRound: nothing is done but to what is bound and in a state for it, and no
// round asks for the next one at once although nothing changes.
func (h *host) checkRound(r *round) {
	quick := false
	for _, action := range r.actions {
		switch a := action.(type) {
		case Disqualify:
			t := target(r.after, a.Pod.UID)
			h.must(t != nil && active(t) && t.State != v1alpha1.StateAdmitted, "%s is to be marked, which no target withdraws", a.Pod.Name)
		case Requalify:
			t := target(r.after, a.Pod.UID)
			h.must(t == nil || t.State == v1alpha1.StateAborted, "%s is to be given traffic while it is being withdrawn", a.Pod.Name)
		case Probe:
			t := target(r.after, a.Pod.UID)
			h.must(t != nil && active(t) && t.State != v1alpha1.StateAdmitted, "%s is to be read, which is no target", a.Pod.Name)
			bound := slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool {
				return m.UID == a.Pod.UID && m.ContainerID == a.Pod.ContainerID && m.Answering
			})
			h.must(bound, "%s is to be read in a container that is not bound, or does not answer", a.Pod.Name)
		case DeleteMember:
			t := target(r.after, a.Pod.UID)
			h.must(t != nil && t.State == v1alpha1.StateDeleting, "%s is to be deleted without a decision", a.Pod.Name)
			was := target(r.before, a.Pod.UID)
			h.must(was != nil && was.State == v1alpha1.StateDeleting, "%s is to be deleted on a decision that is not written", a.Pod.Name)
		case DeleteWorkload:
			for _, replica := range h.seen.Replicas {
				stays := slices.ContainsFunc(replica.Members, func(m Member) bool { return !m.leaving() })
				mine := replica.Workload != nil && replica.Workload.UID == a.Workload.UID
				h.must(!mine || !stays, "the Workload %s is to be deleted, and its Pods stay", a.Workload.Name)
			}
		case WakeAt:
			h.must(!quick && a.Time.After(h.clock()), "the next round is in the past, or there are two")
			quick = a.Time.Before(h.clock().Add(500 * time.Millisecond))
		}
	}
	if r.after.Retirement != nil {
		for i := range r.after.Retirement.Targets {
			t := &r.after.Retirement.Targets[i]
			was := inSlot(r.before, key{t.Role, t.Ordinal})
			if t.State == v1alpha1.StateAdmitted && (was == nil || !active(was)) {
				h.checkAdmitted(t)
			}
			if t.Reason == names.RetireIdle && t.State == v1alpha1.StateDeleting && was != nil && was.State == v1alpha1.StateDraining {
				h.checkProof(was, t)
			}
			if t.State == v1alpha1.StateDraining && was != nil && was.State == v1alpha1.StateWithdrawing && !r.spec.Deleting {
				h.checkWithdrawn(was, t)
			}
			h.checkWake(t, r.actions)
		}
	}
	h.checkReasons(r)
	if !quick || !reflect.DeepEqual(r.before, r.after) {
		h.hurried = 0
		return
	}
	h.hurried++
	h.must(h.hurried < 3, "rounds follow each other at once, and nothing changes")
}

// checkReasons: a reason that is new is what was seen.
func (h *host) checkReasons(r *round) {
	if r.after.Retirement == nil {
		return
	}
	for i := range r.after.Retirement.Targets {
		t := &r.after.Retirement.Targets[i]
		was := inSlot(r.before, key{t.Role, t.Ordinal})
		at := slices.IndexFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return m.Answering })
		if was == nil || was.Reason == t.Reason || t.State != v1alpha1.StateDraining && t.State != v1alpha1.StateAborted || at < 0 {
			continue
		}
		uid := t.Members[at].UID
		reads := h.seen.Reads[uid]
		switch t.Reason {
		case names.HeldServingRequests:
			h.must(len(reads) > 0 && reads[len(reads)-1].Verdict == ReadBusy, "%s is said to serve requests, and was not seen to", t.Members[at].Name)
		case names.HeldReadTimedOut, names.HeldReadIncomplete, names.HeldExecForbidden, names.ReadGaugesMissing:
			h.must(len(reads) > 0 && reads[len(reads)-1].Reason == t.Reason, "%s is said to be %s, and was not", t.Members[at].Name, t.Reason)
		case names.HeldContainerRestarted:
			for _, replica := range h.seen.Replicas {
				for _, m := range replica.Members {
					read := len(reads) > 0 && reads[len(reads)-1].Reason == t.Reason
					h.must(m.UID != uid || m.ContainerID != t.Members[at].ContainerID || read, "%s has not restarted", m.Name)
				}
			}
		}
	}
}

// checkWrite is what must hold between two statuses that follow each other.
func (h *host) checkWrite(r *round) {
	before, after := h.status, r.after
	h.checkEnds(before, after)
	if before.Retirement != nil {
		for i := range before.Retirement.Targets {
			h.checkVanished(&before.Retirement.Targets[i], r)
		}
	}
	if after.Retirement == nil {
		return
	}
	h.checkOperation(before.Retirement, after.Retirement)
	underWay := 0
	for i := range after.Retirement.Targets {
		t := &after.Retirement.Targets[i]
		if active(t) {
			underWay++
		}
		was := inSlot(before, key{t.Role, t.Ordinal})
		if was == nil || t.State == v1alpha1.StateAdmitted && !active(was) {
			was = &v1alpha1.RetirementTarget{}
		}
		h.checkTarget(was, t, r)
		for _, m := range t.Members {
			h.everBound[m.UID] = true
			h.everMarked[m.UID] = h.everMarked[m.UID] || active(t) && t.State != v1alpha1.StateAdmitted
			h.everDone[m.UID] = h.everDone[m.UID] || t.State == v1alpha1.StateDeleting
		}
	}
	h.must(underWay <= MaxTargets && len(after.Retirement.Targets) <= maxListed, "%d targets are under way", underWay)
}

func (h *host) checkEnds(before, after Status) {
	if after.Last == nil || before.Last != nil && *before.Last == *after.Last {
		return
	}
	h.reached["end "+string(after.Last.End)]++
	h.reached["reason "+after.Last.Reason]++
	h.log("ends: %s %s", after.Last.End, after.Last.Reason)
	if before.Retirement != nil && after.Last.End == v1alpha1.EndCompleted {
		h.reached["state Completed"]++
	}
}

// checkVanished: what was under way is only left out when its Pods are gone or
// leave, or when it is wanted again, or nothing is held any more.
func (h *host) checkVanished(was *v1alpha1.RetirementTarget, r *round) {
	slot := key{was.Role, was.Ordinal}
	if !active(was) || inSlot(r.after, slot) != nil || h.orphan || h.namespace {
		return
	}
	for _, m := range was.Members {
		p := h.byUID(m.UID)
		// A decision stands, unless the mark was lost before any delete was accepted.
		released := wants(r.spec, slot) && (!decided(was) || was.State == v1alpha1.StateDeleting && p != nil && !p.Withdrawn)
		h.must(p == nil || p.leaving() || released, "%s was forgotten in %s", m.Name, was.State)
	}
}

func wants(spec Spec, slot key) bool {
	n, there := spec.Wanted[slot.role]
	return !spec.Deleting && there && slot.ordinal < n
}

// checkOperation: there is one at a time, and its deadline stands.
func (h *host) checkOperation(before, after *v1alpha1.RetirementStatus) {
	if before == nil || !before.StartedAt.Equal(&after.StartedAt) {
		h.reached["cause "+string(after.Cause)]++
		h.log("begins: %s", after.Cause)
	}
	if before == nil {
		return
	}
	if before.StartedAt.Equal(&after.StartedAt) {
		h.must(before.Deadline.Equal(&after.Deadline), "a deadline was moved")
		return
	}
	takenOver := before.Cause != v1alpha1.CauseDeletion && after.Cause == v1alpha1.CauseDeletion
	if takenOver {
		h.reached["taken over"]++
	}
	if before.LastConsumedRetryToken != after.LastConsumedRetryToken {
		h.reached["retried"]++
	}
	for i := range before.Targets {
		h.must(!active(&before.Targets[i]) || takenOver, "another operation begins while %s-%d is %s",
			before.Targets[i].Role, before.Targets[i].Ordinal, before.Targets[i].State)
	}
}

// checkAdmitted: a target binds every Pod of its slot, as they were seen.
func (h *host) checkAdmitted(t *v1alpha1.RetirementTarget) {
	for _, r := range h.seen.Replicas {
		if r.Role == t.Role && r.Ordinal == t.Ordinal {
			all := slices.EqualFunc(r.Members, t.Members, func(m Member, b v1alpha1.RetirementMember) bool { return m.UID == b.UID })
			h.must(all, "%s-%d does not bind the Pods there are", t.Role, t.Ordinal)
			same := r.Workload == nil && t.Workload == nil || r.Workload != nil && t.Workload != nil && r.Workload.UID == t.Workload.UID
			h.must(same, "%s-%d does not bind its Workload", t.Role, t.Ordinal)
		}
	}
}

// checkTarget: members stand, decisions stand, and a decision has its reason.
func (h *host) checkTarget(was, t *v1alpha1.RetirementTarget, r *round) {
	if was.State == t.State && was.Reason == t.Reason {
		h.checkRecord(was, t)
		return
	}
	h.reached["state "+string(t.State)]++
	h.reached["reason "+t.Reason]++
	h.log("%s-%d: %s %s", t.Role, t.Ordinal, t.State, t.Reason)
	if was.State == "" {
		return
	}
	h.checkBound(was, t)
	if t.State == v1alpha1.StateAborted && active(was) && was.State != v1alpha1.StateAdmitted && t.Reason != names.RetireCancelled {
		looked := r.now.Sub(r.since)
		h.must(looked >= r.spec.Budgets.Withdraw, "%s-%d is given up by a process that has looked for %s", t.Role, t.Ordinal, looked)
	}
	if t.State == v1alpha1.StateDeleting && (was.State != t.State || was.Reason != t.Reason) {
		h.checkDecision(was, t, r)
	}
}

func (h *host) checkBound(was, t *v1alpha1.RetirementTarget) {
	if was.State == v1alpha1.StateAborted {
		if t.State == v1alpha1.StateAborted && t.Reason == names.RetireMemberReplaced && len(t.Members) > 0 {
			h.reached["aborted then replaced"]++
		}
		return
	}
	same := slices.EqualFunc(was.Members, t.Members, func(a, b v1alpha1.RetirementMember) bool { return a.UID == b.UID })
	h.must(same, "%s-%d has other members than it was admitted with", t.Role, t.Ordinal)
	h.must(reflect.DeepEqual(was.Workload, t.Workload), "%s-%d has another Workload than it was admitted with", t.Role, t.Ordinal)
	// Before any delete was accepted, a mark or a proof that is lost makes the decision
	// void.
	void := t.Reason == names.RetireMarkLost || t.Reason == names.RetireNotProvenAgain || t.Reason == names.RetireCancelled
	h.must(!decided(was) || t.State != v1alpha1.StateAborted || void,
		"the decision about %s-%d was taken back: %s", t.Role, t.Ordinal, t.Reason)
}

// checkWake: what holds a target can pass without the API server telling of it, such
// as a node that did not answer. It is looked at again soon.
func (h *host) checkWake(t *v1alpha1.RetirementTarget, actions []Action) {
	if !active(t) || t.State == v1alpha1.StateSettling {
		return
	}
	soon := slices.ContainsFunc(actions, func(a Action) bool {
		w, ok := a.(WakeAt)
		return ok && !w.Time.After(h.clock().Add(max(ReadInterval, RefusedDelay)))
	})
	h.must(soon, "%s-%d is %s %s, and nobody looks at it again", t.Role, t.Ordinal, t.State, t.Reason)
}

// checkRecord: a status that says nothing new is not written for every read.
func (h *host) checkRecord(was, t *v1alpha1.RetirementTarget) {
	if was.ReadAt == nil || t.ReadAt == nil || was.ReadAt.Equal(t.ReadAt) {
		return
	}
	sameKind := (was.InFlight == nil) == (t.InFlight == nil) && (was.IdleSince == nil) == (t.IdleSince == nil)
	h.must(!sameKind || t.ReadAt.Sub(was.ReadAt.Time) >= RecordInterval, "the reads of %s-%d are written too often", t.Role, t.Ordinal)
}

// checkDecision: to delete is decided on a proof, for want of anything to prove, or
// when the time of a deletion is over.
func (h *host) checkDecision(was, t *v1alpha1.RetirementTarget, r *round) {
	switch {
	case ranNothing(t), t.Reason == names.HeldCommandTakenOver && r.spec.Deleting:
	case t.Reason == names.RetireIdle: // see checkProof
	default:
		h.must(r.spec.Deleting, "%s-%d is to be deleted although it is %s", t.Role, t.Ordinal, t.Reason)
		h.must(!r.spec.WaitForIdle, "%s-%d is to be deleted although somebody waits for it to be idle", t.Role, t.Ordinal)
		until := was.PhaseStartedAt.Add(r.spec.Budgets.Drain)
		h.must(!r.now.Before(until), "%s-%d is to be deleted before its time is over", t.Role, t.Ordinal)
	}
}

// checkProof looks at the reads as they really were: at least two, over the time by
// which gauges lag, after withdrawal, all idle and of one run of the engine.
func (h *host) checkProof(was, t *v1alpha1.RetirementTarget) {
	for _, m := range t.Members {
		p := h.byUID(m.UID)
		if !m.Answering || p == nil || p.Ended {
			continue
		}
		reads := h.seen.Reads[m.UID]
		first, n := len(reads), 0
		for first > 0 && reads[first-1].Verdict == ReadIdle && !reads[first-1].SentAt.Before(was.PhaseStartedAt.Time) &&
			reads[first-1].Message == reads[len(reads)-1].Message {
			first--
			n++
		}
		h.must(n >= IdleReads && reads[len(reads)-1].SentAt.Sub(reads[first].SentAt) >= p.Refresh,
			"%s was read idle %d times, over too short a time", m.Name, n)
	}
}

// checkWithdrawn looks at the connections as they were really read: none in at least
// two reads over 6 s, from 5 s after the member had left its Services.
func (h *host) checkWithdrawn(was, t *v1alpha1.RetirementTarget) {
	for _, m := range t.Members {
		p := h.byUID(m.UID)
		if !m.Answering || p == nil || p.Ended || p.leaving() {
			continue
		}
		if h.spec.Plan == PlanRouter {
			h.checkUnrouted(m)
			continue
		}
		d := h.seen.Direct[m.UID]
		if t.DroppedAt != nil && t.DroppedAt.Time.Before(d.DroppedAt) {
			d.DroppedAt = t.DroppedAt.Time // as another process saw it
		}
		from := d.DroppedAt.Add(5 * time.Second)
		if marked := was.PhaseStartedAt.Add(5 * time.Second); from.Before(marked) {
			from = marked
		}
		first, n := len(d.Samples), 0
		for first > 0 && d.Samples[first-1].From != nil && d.Samples[first-1].Established == 0 && !d.Samples[first-1].SentAt.Before(from) {
			first--
			n++
		}
		h.must(!d.DroppedAt.IsZero() && n >= 2 && d.Samples[len(d.Samples)-1].SentAt.Sub(d.Samples[first].SentAt) >= 6*time.Second,
			"%s was seen without connections %d times, over too short a time", m.Name, n)
	}
}

// checkUnrouted looks at the router as it really is: no process can choose the member,
// and none holds a request for it.
func (h *host) checkUnrouted(m v1alpha1.RetirementMember) {
	for _, p := range h.routers {
		h.must(!p.lists[m.UID], "%s is said to be out of reach, and %s can choose it", m.Name, p.name)
	}
	n := h.holding(m.UID)
	h.must(n == 0, "%s is said to be out of reach, and the router holds %d requests for it", m.Name, n)
}
