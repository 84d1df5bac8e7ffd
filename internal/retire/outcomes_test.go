package retire

import (
	"reflect"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// checkDelete is what must hold when a delete is accepted.
func (h *host) checkDelete(p *pod, sent pending) {
	h.must(h.everDone[p.UID], "%s (%s) is deleted without a decision that was written", p.Name, p.UID)
	for _, leader := range h.pods {
		if leader.slot != p.slot || leader != p && (leader.Index != 0 || leader.leaving() || !h.everDone[leader.UID]) {
			continue // a leader that came later does not work with what is left of the old ones
		}
		busy := leader.work(h.tick)
		if !sent.deleting {
			h.must(busy == 0, "%s is deleted with %d requests in flight: %s", p.Name, busy, sent.reason)
			on := h.holding(leader.UID)
			h.must(on == 0 || leader.run == 0 || ranNothing(&v1alpha1.RetirementTarget{Reason: sent.reason}), "%s is deleted, and a router holds %d requests for it", p.Name, on)
			continue
		}
		// A deletion does not wait until nobody can reach it: what comes last is the
		// drain window's. But what was busy all the time was not idle.
		long := leader.busySince >= 0 && h.tick-leader.busySince > 2*int(leader.Refresh/time.Second)+20
		h.must(sent.reason != names.RetireIdle || !long || leader.Refresh == 0, "%s is deleted as idle, and has been busy for long", p.Name)
	}
}

// checkRelease: a ModelDeployment goes when nothing of it stays, or was asked to.
func (h *host) checkRelease() {
	h.must(h.spec.Deleting, "the finalizer is released and nobody has deleted anything")
	switch {
	case h.namespace:
		h.reached["released with its namespace"]++
		return
	case h.orphan:
		h.reached["released orphans"]++
	case h.foreground:
		h.reached["released in a foreground deletion"]++
		if !h.faulty {
			h.checkQueued()
		}
	case len(h.pods) > 0:
		h.reached["released overdue"]++
	default:
		h.reached["released"]++
	}
	for _, p := range h.pods {
		h.must(p.leaving() || h.orphan, "%s stays, and its ModelDeployment goes", p.Name)
		h.must(p.leaving() || !p.Withdrawn || h.faulty, "%s is left behind without traffic", p.Name)
	}
}

// checkCalm is what must hold in every second without faults: no target outlives
// its deadline, and no mark stays that no target has set.
func (h *host) checkCalm(calm int, marked map[*pod]int) {
	const slack = 15 * time.Second
	if r := h.status.Retirement; r != nil && h.tick > calm+20 {
		for i := range r.Targets {
			t := &r.Targets[i]
			late := active(t) && !decided(t) && h.clock().After(r.Deadline.Add(slack))
			// One that was waited for may have begun to drain just before.
			waits := h.spec.WaitForIdle || h.waitedUntil > 0 && h.tick < h.waitedUntil+int((2*h.spec.Budgets.Withdraw+h.spec.Budgets.Drain+slack)/time.Second)
			h.must(!late || waits || h.tick < calm+200, "%s-%d is still %s %s after its deadline", t.Role, t.Ordinal, t.State, t.Reason)
		}
	}
	h.checkRestored(calm)
	for _, p := range h.pods {
		t := target(h.status, p.UID)
		if !p.Withdrawn || p.leaving() || t != nil && active(t) {
			delete(marked, p)
			continue
		}
		if marked[p] == 0 {
			marked[p] = h.tick
		}
		h.must(h.tick < marked[p]+20, "%s keeps a mark that nobody asks for", p.Name)
	}
}

// checkRestored: what is given up or wanted again is listed again by every process that
// was told to leave it alone.
func (h *host) checkRestored(calm int) {
	if h.status.Retirement == nil || h.spec.Plan != PlanRouter {
		return
	}
	for i := range h.status.Retirement.Targets {
		t := &h.status.Retirement.Targets[i]
		since := t.PhaseStartedAt.Time
		if t.State != v1alpha1.StateAborted || since.Before(beginning.Add(time.Duration(calm+10)*time.Second)) || h.clock().Sub(since) < 20*time.Second {
			continue
		}
		for _, m := range t.Members {
			p := h.byUID(m.UID)
			for _, router := range h.routers {
				// It can list it again when it has drained, and is looked at now and then.
				drains := router.drains > 0 && h.clock().Sub(since) < time.Duration(20+router.drains)*time.Second+RestoreInterval
				listed := p == nil || drains || p.leaving() || !p.Running || !m.Answering || p.Index != 0 || !router.told || router.lists[m.UID]
				h.must(listed, "%s is kept, and %s was not told", m.Name, router.name)
			}
		}
	}
}

// checkEnd is what must hold once nothing is to be done any more.
func (h *host) checkEnd() {
	h.must(!h.spec.Deleting, "the ModelDeployment is held for ever; %d Pods", len(h.pods))
	h.checkQueued()
	h.seen.Replicas = h.queue(h.replicas())
	after, actions := Step(h.clock(), h.spec, h.status, h.seen)
	h.must(reflect.DeepEqual(after, h.status) && len(actions) == 0, "there is no rest: %v", actions)
	if r := h.status.Retirement; r != nil {
		for i := range r.Targets {
			t := &r.Targets[i]
			h.must(t.State == v1alpha1.StateAborted, "%s-%d is %s %s for ever", t.Role, t.Ordinal, t.State, t.Reason)
		}
	}
	for _, p := range h.pods {
		h.must(!p.Withdrawn || p.leaving(), "%s is left without traffic", p.Name)
		given := inSlot(h.status, p.slot)
		h.must(p.leaving() || wants(h.spec, p.slot) || given != nil, "%s is not wanted, and nobody takes it away", p.Name)
	}
}
