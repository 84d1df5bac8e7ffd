package retire

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// TestSimulation plays the protocol in a world that does not help it: clients send
// requests to whatever they can reach, processes crash between any two writes,
// reads fail and lie about nothing but come late, marks are taken away by
// strangers, engines restart, Pods are replaced, deletes are refused, and people
// change their minds. What must hold is checked at every delete; once faults stop,
// everything must come to its end in time.
func TestSimulation(t *testing.T) {
	seeds := uint64(2000)
	if more, err := strconv.ParseUint(os.Getenv("SIMULATION_SEEDS"), 10, 64); err == nil {
		seeds = more
	}
	reached := map[string]int{}
	for seed := range seeds {
		s := &simulation{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 7)), story: newStory(), reached: reached}
		s.play()
		if t.Failed() {
			return
		}
	}
	for _, what := range slices.Sorted(maps.Keys(reached)) {
		t.Logf("%7d %s", reached[what], what)
	}
	for _, what := range []string{
		"end Completed", "end Aborted", "end Cancelled", "crash", "refused", "restart", "replaced", "stranger",
		"cause ScaleDown", "cause RoleDropped", "cause Deletion", "cause Surplus", "released",
		names.RetireIdle, names.RetireNeverStarted, names.RetireMarkLost, names.RetireWithdrawalUnobservable,
		names.HeldServingRequests, names.HeldContainerRestarted, names.HeldReadTimedOut, names.HeldNodeUnreachable,
		names.HeldPrefillDecode, names.RetireMemberReplaced, names.RetireSettlingOverran,
	} {
		require.Positive(t, reached[what], "%q never happened, so nothing is known of it", what)
	}
}

type simulation struct {
	*testing.T
	*story
	seed    uint64
	random  *rand.Rand
	reached map[string]int
	log     []string
	// work is when each member's requests end; a member without work is not there.
	work map[types.UID][]time.Time
	// droppedAt is when a member left its Services.
	droppedAt map[types.UID]time.Time
	faulty    bool
	released  bool
}

func (s *simulation) chance(one int) bool { return s.random.IntN(one) == 0 }

func (s *simulation) tell(format string, args ...any) {
	s.log = append(s.log, s.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (s *simulation) must(ok bool, format string, args ...any) {
	if !ok {
		s.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.log[max(0, len(s.log)-80):], "\n"))
	}
}

func (s *simulation) play() {
	s.work, s.droppedAt = map[types.UID][]time.Time{}, map[types.UID]time.Time{}
	s.spec.Plan = []Plan{PlanConnections, PlanConnections, PlanHold}[s.random.IntN(3)]
	s.spec.Wanted = map[string]int32{"a": int32(1 + s.random.IntN(3)), "b": int32(s.random.IntN(3))}
	for role, n := range s.spec.Wanted {
		for ordinal := range n {
			s.create(role, ordinal)
		}
	}
	s.faulty = true
	for range 400 {
		s.tick()
	}
	s.faulty = false
	for _, m := range s.pods {
		m.NodeUnreachable = false
	}
	calm := s.now
	for s.now.Before(calm.Add(20 * time.Minute)) {
		s.tick()
		if s.now.After(calm.Add(time.Minute)) && s.status.Retirement == nil && len(s.asked) == 0 {
			break
		}
	}
	s.ended(calm)
}

// create makes the Pods of a slot, as the operator would.
func (s *simulation) create(role string, ordinal int32) {
	size := int32(1)
	if role == "b" {
		size = 2
	}
	for index := range size {
		name := fmt.Sprintf("%s-%d", role, ordinal)
		if size > 1 {
			name += fmt.Sprintf("-%d", index)
		}
		if s.pods[name] != nil {
			continue
		}
		s.uids++
		m := &Member{
			Name: "qwen-" + name, UID: types.UID(fmt.Sprint("u", s.uids)), ResourceVersion: "1", Index: index, Size: size,
			ContainerID: fmt.Sprint("c", s.uids), Running: true, Grace: 30 * time.Second, Refresh: 6 * time.Second,
			Engine: "vllm", Endpoint: "e",
		}
		if s.chance(12) {
			m.ContainerID, m.Running = "", false
		}
		m.Split = s.chance(40)
		s.pods[name] = m
	}
}

func (s *simulation) tick() {
	s.now = s.now.Add(time.Second)
	if s.faulty {
		s.fault()
	}
	s.world()
	due := len(s.asked) == 0 && s.chance(5)
	for _, a := range s.asked {
		if w, ok := a.(WakeAt); ok && !s.now.Before(w.Time) {
			due = true
		}
	}
	if due || s.chance(4) {
		s.host()
	}
}

// world lets clients send, engines work, the operator fill slots and Pods go.
func (s *simulation) world() {
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		m := s.pods[name]
		if m.Withdrawn && s.droppedAt[m.UID].IsZero() && s.chance(2) {
			s.droppedAt[m.UID] = s.now
		}
		if !m.Withdrawn {
			delete(s.droppedAt, m.UID)
		}
		reachable := m.Index == 0 && m.Running && !m.leaving() && (s.droppedAt[m.UID].IsZero() || s.now.Before(s.droppedAt[m.UID].Add(4*time.Second)))
		if reachable && s.chance(8) {
			s.work[m.UID] = append(s.work[m.UID], s.now.Add(time.Duration(1+s.random.IntN(60))*time.Second))
		}
		s.work[m.UID] = slices.DeleteFunc(s.work[m.UID], func(end time.Time) bool { return !s.now.Before(end) })
		if m.ContainerID == "" && s.chance(10) {
			s.uids++
			m.ContainerID, m.Running, m.ResourceVersion = fmt.Sprint("c", s.uids), true, "2"
		}
		if m.leaving() && (s.chance(6) && !m.NodeUnreachable || !s.faulty && s.now.After(m.LeavingBy)) {
			delete(s.pods, name)
		}
	}
	for role, n := range s.spec.Wanted {
		for ordinal := range n {
			if !s.spec.Deleting && s.chance(10) {
				s.create(role, ordinal)
			}
		}
	}
}

func (s *simulation) fault() {
	all := slices.Sorted(maps.Keys(s.pods))
	if len(all) == 0 {
		return
	}
	name := all[s.random.IntN(len(all))]
	m := s.pods[name]
	switch s.random.IntN(60) {
	case 0, 1:
		s.spec.Generation++
		for _, role := range slices.Sorted(maps.Keys(s.spec.Wanted)) {
			s.spec.Wanted[role] = int32(s.random.IntN(4))
		}
		s.tell("wanted %v", s.spec.Wanted)
	case 2:
		s.spec.Generation++
		delete(s.spec.Wanted, "b")
		s.tell("role b is dropped")
	case 3:
		s.spec.Wanted["b"] = 1
		s.spec.Generation++
	case 4:
		s.spec.RetryToken = fmt.Sprint("t", s.random.IntN(100))
	case 5:
		if s.chance(6) {
			s.spec.Deleting, s.spec.WaitForIdle = true, false
			s.tell("deleted")
		}
	case 6:
		s.uids++
		m.ContainerID, s.work[m.UID] = fmt.Sprint("c", s.uids), nil
		s.reached["restart"]++
		s.tell("%s restarts", name)
	case 7:
		delete(s.pods, name)
		s.reached["replaced"]++
		s.tell("%s is gone by force", name)
		parts := strings.Split(name, "-")
		ordinal, _ := strconv.Atoi(parts[1])
		s.create(parts[0], int32(ordinal)) // somebody's backup brings it back, also beyond the spec
	case 8:
		m.Withdrawn = !m.Withdrawn
		s.reached["stranger"]++
		s.tell("a stranger marks %s %t", name, m.Withdrawn)
	case 9:
		m.NodeUnreachable = !m.NodeUnreachable
	case 10:
		if !m.leaving() {
			m.LeavingBy = s.now.Add(m.Grace)
			s.tell("a stranger deletes %s", name)
		}
	case 11:
		s.seen.Reads, s.seen.Direct = map[types.UID][]Read{}, map[types.UID]withdraw.Direct{}
		s.asked = nil
		s.reached["crash"]++
		s.tell("crash")
	}
}

// host is one round: what was asked for is done, the protocol decides, and a crash
// may come before anything is done.
func (s *simulation) host() {
	s.seen.Replicas = s.replicas()
	before := s.status
	after, actions := Step(s.now, s.spec, s.status, s.seen)
	again, _ := Step(s.now, s.spec, s.status, s.seen)
	s.must(reflect.DeepEqual(after, again), "Step is no function")
	s.check(before, after)
	s.status, s.asked = after, actions
	if s.faulty && s.chance(30) {
		s.reached["crash"]++
		s.tell("crash before acting")
		s.seen.Reads, s.seen.Direct = map[types.UID][]Read{}, map[types.UID]withdraw.Direct{}
		return
	}
	for _, a := range actions {
		if s.faulty && s.chance(20) {
			continue // lost
		}
		s.act(a)
	}
}

func (s *simulation) act(action Action) {
	switch a := action.(type) {
	case Disqualify:
		if m := s.byUID(a.Pod.UID); m != nil {
			m.Withdrawn = true
		}
	case Requalify:
		if m := s.byUID(a.Pod.UID); m != nil {
			m.Withdrawn = false
		}
	case Probe:
		if a.Clients {
			s.look(a.Pod)
		}
		s.probe(a.Pod)
	case DeleteMember:
		s.delete(a)
	case ClearRetry:
		if s.spec.RetryToken == a.Token {
			s.spec.RetryToken = ""
		}
	case ReleaseFinalizer:
		s.released = true
		s.reached["released"]++
	}
}

// look is what the host sees of a member's clients: each request is a connection.
func (s *simulation) look(pod PodRef) {
	m := s.byUID(pod.UID)
	if m == nil || s.droppedAt[pod.UID].IsZero() {
		delete(s.seen.Direct, pod.UID)
		return
	}
	seen := s.seen.Direct[pod.UID]
	if seen.DroppedAt.IsZero() || seen.DroppedAt.Before(s.droppedAt[pod.UID]) {
		seen = withdraw.Direct{DroppedAt: s.now}
	}
	known := m.ContainerID == pod.ContainerID && !m.NodeUnreachable && !(s.faulty && s.chance(10))
	seen.Samples = append(seen.Samples, withdraw.Sample{SentAt: s.now, ReceivedAt: s.now, ContainerID: pod.ContainerID, Known: known, Established: len(s.work[pod.UID])})
	s.seen.Direct[pod.UID] = seen
}

func (s *simulation) probe(pod PodRef) {
	m := s.byUID(pod.UID)
	r := Read{SentAt: s.now, ReceivedAt: s.now, ContainerID: pod.ContainerID, Reason: names.HeldReadFailed}
	switch busy := int64(len(s.work[pod.UID])); {
	case m == nil || m.ContainerID != pod.ContainerID || m.NodeUnreachable:
	case s.faulty && s.chance(10):
		r.Reason = names.HeldReadTimedOut
	case busy > 0:
		r.Verdict, r.InFlight = ReadBusy, busy
	default:
		r.Verdict = ReadIdle
	}
	s.seen.Reads[pod.UID] = append(s.seen.Reads[pod.UID], r)
}

// delete is where most of what must hold is checked.
func (s *simulation) delete(a DeleteMember) {
	m := s.byUID(a.Pod.UID)
	if m == nil || a.ResourceVersion != "" && a.ResourceVersion != m.ResourceVersion {
		return
	}
	if s.faulty && s.chance(6) {
		s.seen.Refused[a.Pod.UID] = Refusal{At: s.now, Message: "refused"}
		s.reached["refused"]++
		s.tell("the delete of %s is refused", a.Pod.Name)
		return
	}
	t := s.target(a.Pod.UID)
	s.must(t != nil && t.State == v1alpha1.StateDeleting, "%s is deleted, which is no target", a.Pod.Name)
	for _, b := range t.Members {
		// A Deletion does not wait for ever, nor for a withdrawal that cannot be proven:
		// what comes last is left to the drain window.
		window := s.status.Retirement.Cause == v1alpha1.CauseDeletion
		s.must(len(s.work[b.UID]) == 0 || window || s.byUID(b.UID) == nil, "%s is deleted with %d requests in flight: %s", b.Name, len(s.work[b.UID]), t.Reason)
	}
	if !m.leaving() {
		s.tell("%s is deleted: %s", a.Pod.Name, t.Reason)
		m.LeavingBy = s.now.Add(m.Grace)
	}
}

func (s *simulation) target(uid types.UID) *v1alpha1.RetirementTarget {
	if s.status.Retirement == nil {
		return nil
	}
	for i := range s.status.Retirement.Targets {
		t := &s.status.Retirement.Targets[i]
		if slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return m.UID == uid }) {
			return t
		}
	}
	return nil
}

// check is what must hold between two statuses.
func (s *simulation) check(before, after Status) {
	if after.Last != nil && (before.Last == nil || *before.Last != *after.Last) {
		s.reached["end "+string(after.Last.End)]++
		s.tell("ends %s %s", after.Last.End, after.Last.Reason)
	}
	if after.Retirement == nil {
		return
	}
	s.reached["cause "+string(after.Retirement.Cause)]++
	if before.Retirement != nil && before.Retirement.StartedAt.Equal(&after.Retirement.StartedAt) {
		s.must(before.Retirement.Deadline.Equal(&after.Retirement.Deadline), "a deadline moved")
	}
	for _, t := range after.Retirement.Targets {
		var was v1alpha1.RetirementTarget
		if before.Retirement != nil {
			for _, b := range before.Retirement.Targets {
				if b.Role == t.Role && b.Ordinal == t.Ordinal && slices.Equal(b.Members, t.Members) {
					was = b
				}
			}
		}
		s.reached[t.Reason]++
		if was.State != t.State {
			s.tell("%s-%d: %s -> %s %s", t.Role, t.Ordinal, was.State, t.State, t.Reason)
			// Before any delete was accepted, a mark that is lost makes the decision void.
			s.must(was.State != v1alpha1.StateDeleting || t.State != v1alpha1.StateAborted || t.Reason == names.RetireMarkLost, "a decision was taken back")
		}
	}
}

// ended is how everything must be once there are no more faults.
func (s *simulation) ended(calm time.Time) {
	if r := s.status.Retirement; r != nil {
		for _, t := range r.Targets {
			s.must(t.State == v1alpha1.StateAborted, "%s-%d is still %s %s %s after the faults stopped", t.Role, t.Ordinal, t.State, t.Reason, s.now.Sub(calm))
		}
	}
	if s.spec.Deleting {
		s.must(s.released, "the ModelDeployment is held for ever; %d Pods", len(s.pods))
		return
	}
	for name, m := range s.pods {
		s.must(!m.Withdrawn || m.leaving(), "%s is left withdrawn", name)
	}
}
