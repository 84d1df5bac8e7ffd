package retire

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// workload is Kueue's object for the Pods of a slot, which it is owned by.
type workload struct {
	Workload
	slot    key
	owners  []types.UID
	version int
}

func (w *world) workload(slot key) *workload {
	for _, k := range w.workloads {
		if k.slot == slot {
			return k
		}
	}
	return nil
}

func (k *workload) touch() {
	k.version++
	k.ResourceVersion = strconv.Itoa(k.version)
}

// kueue does in a second what Kueue and the garbage collector do: the Pods of a group
// are owners of its Workload, which goes with the last of them.
func (w *world) kueue() {
	kept := w.workloads[:0]
	for _, k := range w.workloads {
		if slices.ContainsFunc(k.owners, func(uid types.UID) bool { return w.byUID(uid) != nil }) {
			kept = append(kept, k)
		}
	}
	clear(w.workloads[len(kept):])
	w.workloads = kept
	for _, p := range w.pods {
		if !p.queued || p.leaving() || w.holds(p) {
			continue
		}
		k := w.workload(p.slot)
		if k == nil {
			w.made++
			k = &workload{Workload: Workload{Name: p.slot.String(), UID: types.UID("w" + strconv.Itoa(w.made))}, slot: p.slot}
			w.workloads = append(w.workloads, k)
		}
		k.owners = append(k.owners, p.UID)
		k.touch()
	}
}

// holds reports whether Kueue's finalizer is on a Pod: it has a Workload.
func (w *world) holds(p *pod) bool {
	k := w.workload(p.slot)
	return k != nil && slices.Contains(k.owners, p.UID)
}

// drop is the end of a Workload. Kueue deletes the Pods that are left of it, and lets
// go of those that are leaving.
func (w *world) drop(gone *workload) {
	w.workloads = slices.DeleteFunc(w.workloads, func(k *workload) bool { return k == gone })
	w.changed = true
	for _, uid := range gone.owners {
		if p := w.byUID(uid); p != nil {
			p.queued = false
			w.leave(p)
		}
	}
}

// unqueue is what strangers and Kueue do to a Workload.
func (w *world) unqueue(p *pod) {
	k := w.workload(p.slot)
	if k == nil {
		return
	}
	switch w.random.IntN(4) {
	case 0:
		w.log("a stranger deletes the Workload of %s", p.slot)
		w.reached["fault Workload deleted"]++
		w.drop(k)
	case 1, 2:
		w.made++
		k.UID = types.UID("w" + strconv.Itoa(w.made))
		k.touch()
		w.log("the Workload of %s is replaced", p.slot)
		w.reached["fault Workload replaced"]++
	default:
		k.touch()
	}
}

// queue adds to what the API server has what the host looks up of Workloads.
func (h *host) queue(replicas []Replica) []Replica {
	all := slices.Clone(replicas)
	for i := range all {
		r := &all[i]
		if k := h.workload(key{r.Role, r.Ordinal}); k != nil {
			r.Workload, r.WorkloadUnknown = &Workload{k.Name, k.UID, k.ResourceVersion}, false
			if h.faulty && h.chance(8) {
				r.Workload, r.WorkloadUnknown = nil, true
			}
		}
	}
	return all
}

func (h *host) deleteWorkload(a DeleteWorkload) {
	for _, k := range h.workloads {
		same := k.UID == a.Workload.UID && k.ResourceVersion == a.Workload.ResourceVersion
		if h.bug == "deletes a Workload by name" {
			same = k.Name == a.Workload.Name
		}
		switch {
		case !same:
			continue
		case h.tick < h.apiAway || h.faulty && h.chance(8):
			h.reached["refused: Workload"]++
			return
		}
		h.checkDeleteWorkload(k)
		h.log("the Workload of %s is deleted", k.slot)
		h.drop(k)
		return
	}
}

// checkDeleteWorkload: Kueue would delete what stays of it; what was given up or is
// wanted again keeps it; and what was bound is not another one, unless all goes.
func (h *host) checkDeleteWorkload(k *workload) {
	for _, uid := range k.owners {
		p := h.byUID(uid)
		h.must(p == nil || p.leaving(), "the Workload of %s is deleted, and with it %s, which stays", k.slot, uid)
	}
	h.reached["Workload deleted"]++
	t := inSlot(h.status, k.slot)
	if t == nil || !active(t) || t.Workload == nil {
		h.reached["Workload deleted of what others deleted"]++
		return
	}
	h.must(t.State == v1alpha1.StateSettling, "the Workload of %s is deleted in %s", k.slot, t.State)
	h.must(t.Workload.UID == k.UID || h.spec.Deleting, "the Workload %s of %s is deleted, and %s is bound", k.UID, k.slot, t.Workload.UID)
}

// checkQueued: no Workload is left that holds Pods which are to go.
func (h *host) checkQueued() {
	for _, k := range h.workloads {
		stays := slices.ContainsFunc(h.pods, func(p *pod) bool { return slices.Contains(k.owners, p.UID) && !p.leaving() })
		h.must(stays, "the Workload of %s is left, and holds Pods that are gone but for that", k.slot)
	}
}

// plantWorkloads plants the bugs of what is done about Workloads.
func (h *host) plantWorkloads(r *round, actions []Action) []Action {
	state := map[string]v1alpha1.RetirementState{
		"deletes the Workload first":             v1alpha1.StateDeleting,
		"deletes the Workload of what was given": v1alpha1.StateAborted,
	}[h.bug]
	if state == "" || r.before.Retirement == nil {
		return actions
	}
	for i := range r.before.Retirement.Targets {
		t := &r.before.Retirement.Targets[i]
		if k := h.workload(key{t.Role, t.Ordinal}); k != nil && t.State == state && t.Workload != nil && t.Workload.UID == k.UID {
			actions = append(slices.Clone(actions), DeleteWorkload{k.Workload})
		}
	}
	return actions
}
