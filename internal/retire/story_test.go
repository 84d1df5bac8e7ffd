package retire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// story is a small world in which everything goes as it should unless the file
// says otherwise: marks and deletes are done at once, the API server tells of them
// a second later, engines are idle and end ten seconds after their Pod's delete.
type story struct {
	start, now time.Time
	spec       Spec
	status     Status
	pods       map[string]*Member
	// workloads are Kueue's, by the slot whose Pods it holds.
	workloads     map[key]*Workload
	workloadsFail int
	seen          Observations
	// asked are the reads of the last round, wake when it asked for the next, and due
	// when the API server tells of something; zero where there is none.
	asked       []Probe
	askedRouter []PodRef
	wake, due   time.Time
	// routers are the processes of the router, by name.
	routers map[string]*playedRouter
	// leaves is how long an engine takes to end.
	leaves   time.Duration
	uids     int
	released bool
	// done is what the last round did, in words.
	done []string
}

func newStory() *story {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return &story{
		start: start, now: start, due: start,
		spec: Spec{
			Generation: 1, Plan: PlanConnections, Wanted: map[string]int32{},
			Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal},
		},
		pods: map[string]*Member{}, workloads: map[key]*Workload{}, routers: map[string]*playedRouter{},
		seen: Observations{
			Reads: map[types.UID][]Read{}, Direct: map[types.UID]withdraw.Direct{}, Refused: map[types.UID]Refusal{},
			Routed: map[types.UID]withdraw.Routed{},
		},
		leaves: 10 * time.Second,
	}
}

// crash is the end of the process: what it had read is lost, what is in the status
// is not. Another one begins at once.
func (s *story) crash() {
	s.seen.Reads, s.seen.Direct, s.seen.Refused = map[types.UID][]Read{}, map[types.UID]withdraw.Direct{}, map[types.UID]Refusal{}
	s.seen.Routed, s.seen.Since = map[types.UID]withdraw.Routed{}, s.now
	s.asked, s.askedRouter, s.due = nil, nil, s.now
}

// ask reads what the ModelDeployment asks for: its roles as NAME=REPLICAS, and the
// rest by name.
func (s *story) ask(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	s.spec.Generation++
	for _, arg := range d.CmdArgs {
		value := strings.Join(arg.Vals, ",")
		switch arg.Key {
		case "plan":
			s.spec.Plan = Plan(value)
		case "delete":
			s.spec.Deleting = true
		case "wait-for-idle":
			s.spec.WaitForIdle = true
		case "no-wait":
			s.spec.WaitForIdle = false
		case "retry":
			s.spec.Generation--
			s.spec.RetryToken = value
		case "drop":
			delete(s.spec.Wanted, value)
		case "orphan":
			s.seen.Orphaned = true
		case "foreground":
			s.seen.Foreground = true
		case "namespace":
			s.seen.NamespaceTerminating = true
		default:
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				d.Fatalf(t, "a role is NAME=REPLICAS, not %s=%s", arg.Key, value)
			}
			s.spec.Wanted[arg.Key] = int32(n)
		}
	}
}

// pod makes a Pod, or changes one. It runs vLLM, and is the only one of its
// replica, unless it is said otherwise.
func (s *story) pod(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	name := words(d)[0]
	role, span, _ := strings.Cut(name, "-")
	if from, to, ok := strings.Cut(span, ".."); ok {
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		for ordinal := first; ordinal <= last; ordinal++ {
			s.change(t, d, fmt.Sprintf("%s-%d", role, ordinal))
		}
		return
	}
	s.change(t, d, name)
}

func (s *story) change(t *testing.T, d *datadriven.TestData, name string) {
	t.Helper()
	m := s.pods[name]
	if m == nil {
		s.uids++
		m = &Member{
			Name: "qwen-" + name, UID: types.UID(fmt.Sprint("u", s.uids)), ResourceVersion: "1", Size: 1,
			ContainerID: fmt.Sprint("c", s.uids), Running: true, Grace: 30 * time.Second, Refresh: 6 * time.Second,
			Engine: "vllm", Endpoint: "http://127.0.0.1:8000/metrics",
		}
		if parts := strings.Split(name, "-"); len(parts) == 3 {
			index, _ := strconv.Atoi(parts[2])
			m.Index = int32(index)
		}
		s.pods[name] = m
	}
	for _, arg := range d.CmdArgs[1:] {
		value := strings.Join(arg.Vals, ",")
		number, _ := strconv.Atoi(value)
		switch arg.Key {
		case "size":
			m.Size = int32(number)
		case "index":
			m.Index = int32(number)
		case "container":
			m.ContainerID, m.Running = value, true
		case "engine":
			m.Engine = value
		case "endpoint":
			m.Endpoint = value
		case "refresh":
			m.Refresh = time.Duration(number) * time.Second
		case "grace":
			m.Grace = time.Duration(number) * time.Second
		case "never-started":
			m.ContainerID, m.Running = "", false
		case "stopped":
			m.Running = false
		case "split":
			m.Split = true
		case "taken-over":
			m.TakenOver = true
		case "unreachable":
			m.NodeUnreachable = true
		case "reachable":
			m.NodeUnreachable = false
		case "ended":
			m.Ended, m.Running = true, false
		default:
			d.Fatalf(t, "a Pod has no %q", arg.Key)
		}
	}
}

// obey does what a round asked for, as the host and the cluster would; reads come
// with the next round.
func (s *story) obey(actions []Action, what map[string]string) {
	s.asked, s.askedRouter, s.wake = nil, nil, time.Time{}
	for _, action := range actions {
		switch a := action.(type) {
		case Disqualify:
			s.mark(a.Pod, what["marks"] != "refused")
		case Requalify:
			s.mark(a.Pod, false)
		case Probe:
			s.asked = append(s.asked, a)
		case AskRouter:
			s.askedRouter = append(s.askedRouter, a.Pod)
		case WithdrawFromRouter:
			s.tell(a.Process, a.Pod, true)
		case RestoreToRouter:
			s.tell(a.Process, a.Pod, false)
		case DeleteMember:
			m := s.byUID(a.Pod.UID)
			switch {
			case m == nil || m.leaving():
			case what["deletes"] != "":
				s.seen.Refused[m.UID] = Refusal{At: s.now, Message: what["deletes"]}
			default:
				m.LeavingBy = s.now.Add(m.Grace)
				s.due = s.now.Add(time.Second)
			}
		case DeleteWorkload:
			if s.workloadsFail > 0 {
				s.workloadsFail--
				break
			}
			maps.DeleteFunc(s.workloads, func(_ key, w *Workload) bool { return *w == a.Workload })
		case ClearRetry:
			s.spec.RetryToken = ""
			s.due = s.now.Add(time.Second)
		case ReleaseFinalizer:
			s.released = true
		case WakeAt:
			s.wake = a.Time
		}
	}
}

func (s *story) mark(pod PodRef, withdrawn bool) {
	if m := s.byUID(pod.UID); m != nil && m.Withdrawn != withdrawn {
		m.Withdrawn = withdrawn
		s.due = s.now.Add(time.Second)
	}
}

func (s *story) byUID(uid types.UID) *Member {
	for _, m := range s.pods {
		if m.UID == uid {
			return m
		}
	}
	return nil
}

// answer makes the reads that the last round asked for. They were sent when it
// asked.
func (s *story) answer(sent time.Time, what map[string]string) {
	for _, a := range s.asked {
		name := strings.TrimPrefix(a.Pod.Name, "qwen-")
		m := s.byUID(a.Pod.UID)
		r := Read{SentAt: sent, ReceivedAt: s.now, ContainerID: a.Pod.ContainerID, Started: a.Pod.ContainerID, Verdict: ReadIdle}
		said := cmp.Or(what[name], what["read"])
		switch {
		case m == nil || m.ContainerID != a.Pod.ContainerID:
			said = names.HeldContainerRestarted
		case m.NodeUnreachable:
			said = names.HeldReadFailed
		}
		switch kind, n, _ := strings.Cut(said, ":"); kind {
		case "", "idle":
		case "busy":
			r.Verdict, r.InFlight = ReadBusy, 1
			if count, err := strconv.ParseInt(n, 10, 64); err == nil {
				r.InFlight = count
			}
		default:
			r.Verdict, r.Reason = ReadFailed, said
		}
		s.seen.Reads[a.Pod.UID] = append(s.seen.Reads[a.Pod.UID], r)
		if a.Clients && m != nil && m.Withdrawn {
			s.watch(a.Pod, sent, r.Verdict != ReadFailed, what["connections"])
		}
	}
	s.asked = nil
}

// watch notes what is seen of a member's clients: no connection unless it is said
// how many there are.
func (s *story) watch(pod PodRef, sent time.Time, known bool, connections string) {
	seen := s.seen.Direct[pod.UID]
	if connections == "in-service" {
		s.seen.Direct[pod.UID] = withdraw.Direct{In: []string{"qwen"}}
		return
	}
	if seen.DroppedAt.IsZero() {
		seen.DroppedAt = sent
	}
	open, _ := strconv.Atoi(connections)
	seen.Samples = append(slices.Clone(seen.Samples), withdraw.Sample{
		SentAt: sent, ReceivedAt: s.now, ContainerID: pod.ContainerID, Known: known, Established: open,
	})
	s.seen.Direct[pod.UID] = seen
}

// slotIn is the slot in the name of a Pod, ROLE-ORDINAL[-MEMBER].
func slotIn(name string) key {
	parts := strings.Split(name, "-")
	ordinal, _ := strconv.Atoi(parts[1])
	return key{parts[0], int32(ordinal)}
}

func (s *story) replicas() (all []Replica) {
	bySlot := map[key]*Replica{}
	for _, name := range slices.Sorted(maps.Keys(s.pods)) {
		k := slotIn(name)
		if bySlot[k] == nil {
			bySlot[k] = &Replica{Role: k.role, Ordinal: k.ordinal}
		}
		bySlot[k].Members = append(bySlot[k].Members, *s.pods[name])
		bySlot[k].Workload = s.workloads[k]
	}
	for _, r := range bySlot {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Replica) int { return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Ordinal, b.Ordinal)) })
	return all
}

// next is when the next round is: when the last one asked for it, or when the API
// server tells of a change. Zero: never.
func (s *story) next() time.Time {
	at := s.due
	if at.IsZero() || !s.wake.IsZero() && s.wake.Before(at) {
		at = s.wake
	}
	for name, m := range s.pods {
		held := m.Ended && s.workloads[slotIn(name)] != nil
		if end := s.gone(m); !end.IsZero() && !held && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	if at.Before(s.now) && !at.IsZero() {
		at = s.now
	}
	return at
}

// gone is when a Pod that leaves is gone; zero for one that stays.
func (s *story) gone(m *Member) time.Time {
	if !m.leaving() || s.leaves == 0 {
		return time.Time{}
	}
	return m.LeavingBy.Add(s.leaves - m.Grace)
}

// pass lets time pass to a moment.
func (s *story) pass(at time.Time, what map[string]string) {
	sent := s.now
	s.now = at
	if !s.due.IsZero() && !s.due.After(at) {
		s.due = time.Time{}
	}
	for name, m := range s.pods {
		if end := s.gone(m); end.IsZero() || end.After(at) {
			continue
		}
		if m.Ended, m.Running = true, false; s.workloads[slotIn(name)] == nil {
			delete(s.pods, name)
		}
	}
	s.answer(sent, what)
	s.testify(sent, what)
}
