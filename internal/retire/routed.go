package retire

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// routed is reachable by what every process of the router says, and reports whether all
// that have to be told were told and have done it, so that the members may be marked: a
// router that follows the mark at the same time would end its own drain.
func (s *step) routed(t *v1alpha1.RetirementTarget, members []bound) (reason string, closer time.Time, told bool) {
	b, gone, reason := s.answering(t, members)
	if gone || reason != "" {
		return reason, closer, true
	}
	s.askRouter(b)
	s.probe(t, b, true)
	seen := s.seen.Routed[b.UID]
	told, leaves := s.tell(t, b, &seen)
	after := withdrawnFrom(t)
	verdict, all := seen.Prove(after, s.now)
	s.testify(t, all)
	services := s.dropped(t, s.seen.Direct[b.UID])
	if verdict.Proven && services.DroppedAt.IsZero() {
		verdict = services.Prove(s.now) // clients may go there without the router
	}
	// What drains records its reads itself.
	news := t.State != v1alpha1.StateDraining && s.record(t, idleRun(s.seen.Reads[b.UID], b.ContainerID, after, b.pod.Refresh))
	if news || verdict.Missing != t.Reason {
		t.Message = cmp.Or(verdict.Message, t.Message)
	}
	closer = verdict.QuietAt
	if leaves && t.State == v1alpha1.StateDisqualified { // where it would come back until it is marked
		closer = s.now
	}
	return verdict.Missing, closer, told
}

// withdrawnFrom is from when what is said of a target counts. Before it is marked that
// is no part of a proof: a process that starts until then learns of it as of any other.
func withdrawnFrom(t *v1alpha1.RetirementTarget) time.Time {
	if t.MarkedAt != nil {
		return t.MarkedAt.Time
	}
	return t.PhaseStartedAt.Time
}

func (s *step) askRouter(b bound) {
	ask := AskRouter{PodRef{Name: b.Name, UID: b.UID, ContainerID: b.ContainerID}}
	if !slices.Contains(s.actions, Action(ask)) {
		s.do(ask)
	}
	s.wakeAt(s.now.Add(ReadInterval))
}

// tell tells those processes to leave a target alone that have to be told and say that
// they can choose it; never one that has not said so, because to be told twice ends the
// drain of some. When it was told is written before it is. The target leaves when
// none of them chooses it any more, and they are told when none lists it either.
func (s *step) tell(t *v1alpha1.RetirementTarget, b bound, seen *withdraw.Routed) (told, leaves bool) {
	after := withdrawnFrom(t)
	told = !seen.Fleet.ListedAt.IsZero()
	leaves = slices.ContainsFunc(seen.Fleet.Processes, func(p withdraw.Process) bool { return p.Told })
	for _, p := range seen.Fleet.Processes {
		if !p.Told {
			continue
		}
		last := seen.Last(p, after)
		told = told && last != nil && last.Membership == withdraw.Absent
		leaves = leaves && last != nil && (last.Membership == withdraw.Absent || last.Membership == withdraw.Unselectable)
		listed := s.router(t, p)
		switch {
		case last == nil || listed == nil || last.Membership != withdraw.Selectable:
		case listed.ToldAt == nil || !last.SentAt.Before(listed.ToldAt.Add(tellAgain(p))):
			at := s.at()
			listed.ToldAt = &at
			s.do(WithdrawFromRouter{Process: p, Pod: PodRef{Name: b.Name, UID: b.UID}})
		}
	}
	return told, leaves
}

// tellAgain is after how long a process that still chooses the replica is told once more.
// One that drains has accepted a removal before it begins with it, and a second one would
// end the drain: only where it did not take the first, or nobody sent it, it comes again.
func tellAgain(p withdraw.Process) time.Duration {
	if p.Drains && p.Refused == "" {
		return TellDrainInterval
	}
	return TellInterval
}

// router is what a target lists of a process, from now on if nothing was; nil where
// there are too many.
func (s *step) router(t *v1alpha1.RetirementTarget, p withdraw.Process) *v1alpha1.RetirementRouter {
	at := slices.IndexFunc(t.Routers, func(r v1alpha1.RetirementRouter) bool { return r.UID == p.UID })
	if at < 0 {
		if len(t.Routers) >= MaxRouters {
			return nil
		}
		at = len(t.Routers)
		t.Routers = append(t.Routers, v1alpha1.RetirementRouter{Pod: p.Pod, UID: p.UID})
	}
	return &t.Routers[at]
}

// toldOf are the processes that were told to leave a target alone, and not that they
// need not any more.
func toldOf(t *v1alpha1.RetirementTarget) (told []v1alpha1.RetirementRouter) {
	for _, r := range t.Routers {
		if r.ToldAt != nil {
			told = append(told, v1alpha1.RetirementRouter{Pod: r.Pod, UID: r.UID, ToldAt: r.ToldAt})
		}
	}
	return told
}

// testify writes down what each process contributes, where that is another thing than
// before or a while ago, and leaves out those that are gone.
func (s *step) testify(t *v1alpha1.RetirementTarget, all []withdraw.Testimony) {
	if len(all) == 0 {
		return
	}
	there := map[types.UID]bool{}
	dispatches, known := int64(0), false
	for i := range all {
		said := &all[i]
		there[said.Process.UID] = true
		dispatches, known = dispatches+said.Dispatches, known || !said.AskedAt.IsZero()
		listed := s.router(t, said.Process)
		if listed == nil {
			continue
		}
		asked := !said.AskedAt.IsZero()
		again := asked && (listed.AskedAt == nil || said.AskedAt.Sub(listed.AskedAt.Time) >= RecordInterval)
		if listed.Missing == said.Missing && !again {
			continue
		}
		listed.Missing, listed.Message = said.Missing, said.Message
		if asked {
			at := metav1.NewMicroTime(said.AskedAt)
			listed.AskedAt = &at
		}
	}
	t.Routers = slices.DeleteFunc(t.Routers, func(r v1alpha1.RetirementRouter) bool { return !there[r.UID] })
	if known && (t.RecentDispatches == nil || (*t.RecentDispatches > 0) != (dispatches > 0)) {
		t.RecentDispatches = &dispatches
	}
}

// restore has the router choose a target again that is kept, and reports whether every
// process does that was told to leave it alone, as it says itself. It goes on for as long
// as the target is listed, and holds nothing meanwhile: nobody else would ever tell them.
func (s *step) restore(t *v1alpha1.RetirementTarget) bool {
	if !s.asks() || len(toldOf(t)) == 0 {
		return true
	}
	b, stays := s.stillThere(t)
	if !stays {
		return true
	}
	seen := s.seen.Routed[b.UID]
	if next := seen.Fleet.ListedAt.Add(RestoreInterval); s.now.Before(t.PhaseStartedAt.Add(s.spec.Budgets.Withdraw)) || !s.now.Before(next) {
		s.askRouter(b)
	} else {
		s.wakeAt(next)
	}
	restored := !seen.Fleet.ListedAt.IsZero()
	for _, p := range seen.Fleet.Processes {
		settles, told := settled(t, p)
		if !told { // or one whose selector leaves the replica out would be made to list it
			continue
		}
		last := seen.Last(p, t.PhaseStartedAt.Time)
		restored = restored && last != nil && last.Membership == withdraw.Selectable && !last.SentAt.Before(settles)
		gone := last != nil && (last.Membership == withdraw.Absent || last.Membership == withdraw.MembershipUnknown && last.Answered)
		if gone { // or it may be, as in a list of nobody: to be told what is so already does nothing
			s.do(RestoreToRouter{Process: p, Pod: PodRef{Name: b.Name, UID: b.UID}})
		}
	}
	return restored
}

// stillThere is the member that answers for a target that is kept; false where it goes.
func (s *step) stillThere(t *v1alpha1.RetirementTarget) (bound, bool) {
	for _, b := range s.bound(t) {
		if b.Answering && staying(b) {
			return b, true
		}
	}
	return bound{}, false
}

// settled is from when a process that was told to leave a target alone, and lists it,
// goes on to list it; false where it was not told.
func settled(t *v1alpha1.RetirementTarget, p withdraw.Process) (time.Time, bool) {
	for _, r := range toldOf(t) {
		if r.UID == p.UID && p.Told {
			return r.ToldAt.Add(RestoreAfter), true
		}
	}
	return time.Time{}, false
}

// observe writes down what the router says of a replica that is refused because it
// prefills or decodes for others. Nothing is decided by that: people see what a proof
// could be made of.
func (s *step) observe(t *v1alpha1.RetirementTarget) {
	if !s.asks() || t.Reason != names.HeldPrefillDecode || !s.now.Before(t.PhaseStartedAt.Add(s.spec.Budgets.Withdraw)) {
		return
	}
	b, stays := s.stillThere(t)
	if !stays {
		return
	}
	s.askRouter(b)
	seen := s.seen.Routed[b.UID]
	_, all := seen.Prove(t.PhaseStartedAt.Time, s.now)
	for i := range all {
		if last := seen.Last(all[i].Process, t.PhaseStartedAt.Time); last != nil {
			all[i].Message = last.String()
		}
	}
	s.testify(t, all)
}

// restoreAll does so for every target that is kept. Those that are restored list their
// router no more.
func (s *step) restoreAll() {
	for i := range s.targets() {
		t := &s.operation.Targets[i]
		if t.State != v1alpha1.StateAborted {
			continue
		}
		s.observe(t)
		if len(t.Routers) > 0 && s.restore(t) {
			for n := range t.Routers {
				t.Routers[n].ToldAt = nil
			}
		}
	}
}
