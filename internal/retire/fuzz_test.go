package retire

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// FuzzStep gives Step what no host and no older version would: it never fails, is a
// function, leaves its inputs alone, and acts on nothing that is not bound.
func FuzzStep(f *testing.F) {
	f.Add([]byte{})
	for kind := range byte(16) {
		seed := make([]byte, 160)
		for i := range seed {
			seed[i] = byte(i)*7*kind + kind
		}
		f.Add(seed)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20000 { // to what a router is told leads a long way of coincidences
		seed := make([]byte, 400)
		for i := range seed {
			seed[i] = byte(random.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &input{data: data}
		now, spec, status, seen := beginning.Add(in.seconds()), in.spec(), in.status(), in.observations()
		sameStatus, sameSeen := copied(status, seen)
		after, actions := Step(now, spec, status, seen)
		again, once := Step(now, spec, status, seen)
		require.True(t, reflect.DeepEqual(after, again) && reflect.DeepEqual(actions, once), "Step is no function")
		require.True(t, reflect.DeepEqual(sameStatus, status) && reflect.DeepEqual(sameSeen, seen), "Step has changed what it was given")

		wakes := 0
		for _, action := range actions {
			switch a := action.(type) {
			case Disqualify:
				require.True(t, binds(after, a.Pod.UID, active), "%s is not bound, or has ended", a.Pod.UID)
			case Probe:
				require.True(t, binds(after, a.Pod.UID, active), "%s is not bound, or has ended", a.Pod.UID)
			case DeleteMember:
				require.True(t, binds(after, a.Pod.UID, deleting), "%s is deleted without a decision", a.Pod.UID)
				require.True(t, binds(status, a.Pod.UID, deleting), "%s is deleted on a decision that is not written", a.Pod.UID)
			case DeleteWorkload:
				require.False(t, stays(seen, a.Workload), "%s is deleted, and Pods of it stay", a.Workload.UID)
			case AskRouter:
				require.True(t, spec.Plan == PlanRouter && observed(seen, a.Pod.UID), "the router is asked about %s", a.Pod.UID)
			case WithdrawFromRouter:
				require.True(t, binds(after, a.Pod.UID, told(a.Process.UID)), "%s is told to leave %s alone, and it is not written", a.Process.UID, a.Pod.UID)
			case RestoreToRouter:
				require.True(t, binds(after, a.Pod.UID, aborted) && binds(status, a.Pod.UID, told(a.Process.UID)), "%s was not told to leave %s alone", a.Process.UID, a.Pod.UID)
			case Requalify:
				require.True(t, observed(seen, a.Pod.UID), "%s is not there", a.Pod.UID)
			case ReleaseFinalizer:
				require.True(t, spec.Deleting)
			case WakeAt:
				wakes++
				require.True(t, a.Time.After(now.Truncate(time.Microsecond)))
			}
		}
		require.LessOrEqual(t, wakes, 1)
	})
}

// told is whether a target says that a process was told to leave it alone.
func told(process types.UID) func(*v1alpha1.RetirementTarget) bool {
	return func(t *v1alpha1.RetirementTarget) bool {
		return slices.ContainsFunc(toldOf(t), func(r v1alpha1.RetirementRouter) bool { return r.UID == process })
	}
}

func deleting(t *v1alpha1.RetirementTarget) bool { return t.State == v1alpha1.StateDeleting }

// binds reports whether a target of this kind has bound a Pod. Where somebody has
// put a Pod into another slot, two can have it.
func binds(status Status, uid types.UID, kind func(*v1alpha1.RetirementTarget) bool) bool {
	if status.Retirement == nil {
		return false
	}
	for i := range status.Retirement.Targets {
		t := &status.Retirement.Targets[i]
		if kind(t) && slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return m.UID == uid }) {
			return true
		}
	}
	return false
}

func observed(seen Observations, uid types.UID) bool {
	for _, r := range seen.Replicas {
		for _, m := range r.Members {
			if m.UID == uid {
				return true
			}
		}
	}
	return false
}

// stays reports whether every replica with a Workload has a Pod that stays.
func stays(seen Observations, w Workload) bool {
	return !slices.ContainsFunc(seen.Replicas, func(r Replica) bool {
		leaves := !slices.ContainsFunc(r.Members, func(m Member) bool { return !m.leaving() })
		return leaves && r.Workload != nil && *r.Workload == w
	})
}

// input makes values of bytes; zeros where there are no more.
type input struct{ data []byte }

func (in *input) next() byte {
	if len(in.data) == 0 {
		return 0
	}
	b := in.data[0]
	in.data = in.data[1:]
	return b
}

func (in *input) below(n int) int { return int(in.next()) % n }

func (in *input) yes() bool { return in.next()&1 == 1 }

// seconds are some around the budgets, before and after the beginning.
func (in *input) seconds() time.Duration {
	return time.Duration(int(in.next())*3-60) * time.Second
}

func (in *input) at() metav1.MicroTime {
	if in.below(8) == 7 {
		return metav1.MicroTime{}
	}
	return metav1.NewMicroTime(beginning.Add(in.seconds()))
}

func (in *input) uid() types.UID { return types.UID("u" + strconv.Itoa(in.below(6))) }

func (in *input) container() string { return []string{"c1", "c2", ""}[in.below(3)] }

func (in *input) role() string { return []string{"a", "b"}[in.below(2)] }

func (in *input) spec() Spec {
	flags := in.next()
	s := Spec{
		Generation: int64(in.below(4)), Plan: []Plan{PlanHold, PlanConnections, "Unknown", PlanRouter}[in.below(4)], Wanted: map[string]int32{},
		Budgets:  Budgets{in.seconds(), in.seconds(), in.seconds()},
		Deleting: flags&1 == 1, WaitForIdle: flags&2 == 2, RetryToken: []string{"", "t1", "t2"}[in.below(3)],
	}
	for range in.below(3) {
		s.Wanted[in.role()] = int32(in.below(4)) - 1
	}
	return s
}

func (in *input) reason() string {
	return []string{
		"", names.RetireIdle, names.RetireNeverStarted, names.RetireNotRunning, names.HeldServingRequests, names.HeldCommandTakenOver,
		names.RetireMarkLost, names.RetireWithdrawalUnobservable, names.RetireNotProvenAgain, names.RetireCancelled,
	}[in.below(10)]
}

func (in *input) status() (s Status) {
	if in.below(4) > 0 {
		s.Last = &v1alpha1.LastRetirement{Cause: v1alpha1.CauseScaleDown, Generation: int64(in.below(4)), EndedAt: in.at()}
	}
	if in.below(4) == 0 {
		return s
	}
	s.Retirement = &v1alpha1.RetirementStatus{
		Cause: []v1alpha1.RetirementCause{v1alpha1.CauseScaleDown, v1alpha1.CauseDeletion, "Unknown"}[in.below(3)],
		State: v1alpha1.StateAborted, Generation: int64(in.below(4)), StartedAt: in.at(), Deadline: in.at(),
		LastConsumedRetryToken: []string{"", "t1"}[in.below(2)],
	}
	for range in.below(5) {
		states := append([]v1alpha1.RetirementState{"Unknown", ""}, order...)
		t := v1alpha1.RetirementTarget{
			Role: in.role(), Ordinal: int32(in.below(4)), State: states[in.below(len(states))], Reason: in.reason(), PhaseStartedAt: in.at(),
		}
		for range in.below(3) {
			m := v1alpha1.RetirementMember{Name: "p", UID: in.uid(), ContainerID: in.container(), Answering: in.yes()}
			if target(s, m.UID) == nil { // as the schema has it: a Pod is in one target
				t.Members = append(t.Members, m)
			}
		}
		if in.yes() {
			t.Workload = &v1alpha1.RetirementWorkload{Name: "w", UID: in.uid()}
		}
		for n := range in.below(3) {
			r := v1alpha1.RetirementRouter{Pod: "r", UID: types.UID("r" + strconv.Itoa(n))}
			if in.yes() {
				at := in.at()
				r.ToldAt = &at
			}
			t.Routers = append(t.Routers, r)
		}
		if in.yes() {
			at := in.at()
			t.MarkedAt, t.WithdrawnAt = &at, &at
		}
		if in.yes() {
			at, n := in.at(), int64(in.below(3))
			t.ReadAt, t.IdleSince, t.InFlight = &at, &at, &n
		}
		s.Retirement.Targets = append(s.Retirement.Targets, t)
	}
	return s
}

func (in *input) observations() Observations {
	flags := in.next()
	seen := Observations{
		Orphaned: flags&7 == 1, Foreground: flags&7 == 2, NamespaceTerminating: flags&7 == 3,
		Reads: map[types.UID][]Read{}, Direct: map[types.UID]withdraw.Direct{}, Refused: map[types.UID]Refusal{},
	}
	for range in.below(5) {
		r := Replica{Role: in.role(), Ordinal: int32(in.below(4))}
		for range in.below(4) {
			r.Members = append(r.Members, in.member())
		}
		switch in.below(4) {
		case 0:
			r.Workload = &Workload{Name: "w", UID: in.uid(), ResourceVersion: "1"}
		case 1:
			r.WorkloadUnknown = true
		}
		seen.Replicas = append(seen.Replicas, r)
	}
	for range in.below(12) {
		uid := in.uid()
		read := Read{SentAt: in.at().Time, ContainerID: in.container(), Started: in.container(), InFlight: int64(in.below(3)) - 1}
		read.Verdict = []ReadVerdict{ReadIdle, ReadBusy, ReadFailed, "Unknown"}[in.below(4)]
		seen.Reads[uid] = append(seen.Reads[uid], read)
		d := seen.Direct[uid]
		d.DroppedAt = in.at().Time
		d.Samples = append(d.Samples, withdraw.Sample{SentAt: read.SentAt, ContainerID: read.ContainerID, Known: in.yes(), Established: in.below(3)})
		seen.Direct[uid] = d
		if in.below(6) == 0 {
			seen.Refused[uid] = Refusal{At: in.at().Time, Message: "refused"}
		}
	}
	if in.below(3) == 0 {
		seen.Since = beginning.Add(in.seconds())
	}
	seen.Routed = map[types.UID]withdraw.Routed{}
	for _, r := range seen.Replicas {
		for _, m := range r.Members {
			if in.yes() {
				seen.Routed[m.UID] = in.routed()
			}
		}
	}
	return seen
}

func (in *input) run() string { return []string{"1", "1", "1", "2"}[in.below(4)] }

// routed is what up to three processes of a router have said.
func (in *input) routed() withdraw.Routed {
	tri := func() withdraw.Tri { return []withdraw.Tri{withdraw.Unknown, withdraw.Yes, withdraw.No}[in.below(3)] }
	r := withdraw.Routed{Fleet: withdraw.Fleet{ListedAt: in.at().Time, Bypassed: tri()}, Sightings: map[types.UID][]withdraw.Sighting{}}
	for n := range in.below(4) {
		p := withdraw.Process{Pod: "r", UID: types.UID("r" + strconv.Itoa(n)), Run: in.run(), StartedAt: in.at().Time, Told: in.yes(), Drains: in.yes()}
		r.Fleet.Processes = append(r.Fleet.Processes, p)
		for range in.below(4) {
			at := in.at().Time
			r.Sightings[p.UID] = append(r.Sightings[p.UID], withdraw.Sighting{
				SentAt: at, ReceivedAt: at, Run: in.run(), Answered: in.yes(), Membership: withdraw.Membership(in.below(5)),
				Window: time.Duration(in.below(4)) * time.Second, Holds: tri(), Returns: tri(),
			})
		}
	}
	return r
}

func (in *input) member() Member {
	flags := in.next()
	m := Member{
		Name: "p", UID: in.uid(), ResourceVersion: "1", Index: int32(in.below(3)) - 1, Size: int32(in.below(3)), ContainerID: in.container(),
		Running: flags&1 == 1, Ended: flags&6 == 6, Withdrawn: flags&8 == 8, TakenOver: flags&48 == 48, Split: flags&192 == 192,
		Grace: in.seconds(), Engine: []string{"vllm", "sglang", ""}[in.below(3)], Refresh: time.Duration(in.below(8)) * time.Second,
		NodeUnreachable: in.below(8) == 7, Starting: in.below(4) == 3,
	}
	if in.below(4) == 3 {
		m.LeavingBy = beginning.Add(in.seconds())
	}
	return m
}
