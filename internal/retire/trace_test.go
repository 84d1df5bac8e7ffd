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

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// TestTraces plays the stories of testdata, one for each file. A story is what the
// world does, a line for each round; the output is what the protocol did.
//
//	spec plan=Connections server=1 [delete] [wait-for-idle] [retry=TOKEN]
//	    what the ModelDeployment asks for from now on
//	pod NAME [uid=U] [size=N] [split] [taken-over] [no-gauges] [never-started] …
//	    a Pod as it is from now on, by NAME ROLE-ORDINAL[-MEMBER]
//	gone NAME, leave NAME
//	step [after=1s] [read=idle|busy=N|REASON] [connections=N|dropped]
//	    one round, and before it what was read of every Pod that the last round asked
//	    to read
//	run [for=60s] …
//	    rounds, each when the last asked for it, until nothing changes
func TestTraces(t *testing.T) {
	datadriven.Walk(t, "testdata/traces", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.command(t, d)
		})
	})
}

type story struct {
	now    time.Time
	spec   Spec
	status Status
	pods   map[string]*Member
	seen   Observations
	asked  []Action
	uids   int
}

func newStory() *story {
	return &story{
		now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		spec: Spec{
			Generation: 1, Plan: PlanConnections, Wanted: map[string]int32{},
			Budgets: Budgets{DefaultWithdraw, DefaultDrain, DefaultTotal},
		},
		pods: map[string]*Member{},
		seen: Observations{
			Reads: map[types.UID][]Read{}, Direct: map[types.UID]withdraw.Direct{}, Refused: map[types.UID]Refusal{},
		},
	}
}

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	switch d.Cmd {
	case "spec":
		s.ask(t, d)
	case "pod":
		s.pod(t, d)
	case "gone":
		for _, name := range words(d) {
			delete(s.pods, name)
		}
	case "leave":
		for _, name := range words(d) {
			s.pods[name].LeavingBy = s.now.Add(s.pods[name].Grace)
		}
	case "mark":
		for _, name := range words(d) {
			s.pods[name].Withdrawn = !s.pods[name].Withdrawn
		}
	case "refuse":
		for _, name := range words(d) {
			s.seen.Refused[s.pods[name].UID] = Refusal{At: s.now, Message: "the API server is away"}
		}
	case "crash":
		// Another process goes on: what was read is lost, what is in the status is not.
		s.seen.Reads, s.seen.Direct = map[types.UID][]Read{}, map[types.UID]withdraw.Direct{}
	case "step":
		return s.step(t, d)
	case "run":
		return s.runFor(t, d)
	default:
		t.Fatalf("%s: no such command %q", d.Pos, d.Cmd)
	}
	return "ok"
}

func words(d *datadriven.TestData) (all []string) {
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			all = append(all, arg.Key)
		}
	}
	return all
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
	for _, name := range words(d)[:1] {
		m := s.pods[name]
		if m == nil {
			s.uids++
			m = &Member{
				Name: "qwen-" + name, UID: types.UID(fmt.Sprint("u", s.uids)), ResourceVersion: "1", Size: 1,
				ContainerID: "c1", Running: true, Grace: 30 * time.Second, Refresh: 6 * time.Second,
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
				m.ContainerID = value
			case "engine":
				m.Engine = value
			case "refresh":
				m.Refresh = time.Duration(number) * time.Second
			case "never-started":
				m.ContainerID, m.Running = "", false
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
}

// step plays one round: time passes, what the last round asked for is done, and
// the protocol decides.
func (s *story) step(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	after := time.Second
	what := map[string]string{}
	for _, arg := range d.CmdArgs {
		what[arg.Key] = strings.Join(arg.Vals, ",")
	}
	if text, ok := what["after"]; ok {
		var err error
		if after, err = time.ParseDuration(text); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	s.now = s.now.Add(after)
	s.obey(what)
	return s.round()
}

// obey does what the last round asked for, as the host and the cluster would.
func (s *story) obey(what map[string]string) {
	for _, action := range s.asked {
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
				s.watch(a.Pod, what["connections"])
			}
			s.read(a.Pod, what["read"])
		case DeleteMember:
			if m := s.byUID(a.Pod.UID); m != nil && what["refused"] == "" {
				m.LeavingBy = s.now.Add(m.Grace)
			} else if m != nil {
				s.seen.Refused[m.UID] = Refusal{At: s.now, Message: what["refused"]}
			}
		case ClearRetry:
			s.spec.RetryToken = ""
		}
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

// watch notes what is seen of a member's clients: no connection unless it is said
// how many there are.
func (s *story) watch(pod PodRef, connections string) {
	seen := s.seen.Direct[pod.UID]
	if m := s.byUID(pod.UID); m == nil || !m.Withdrawn {
		return
	}
	if seen.DroppedAt.IsZero() {
		seen.DroppedAt = s.now
	}
	open, err := strconv.Atoi(connections)
	known := connections == "" || err == nil
	seen.Samples = append(seen.Samples, withdraw.Sample{SentAt: s.now, ReceivedAt: s.now, ContainerID: pod.ContainerID, Known: known, Established: open})
	s.seen.Direct[pod.UID] = seen
}

// read notes one read: idle unless it is said otherwise.
func (s *story) read(pod PodRef, what string) {
	r := Read{SentAt: s.now, ReceivedAt: s.now, ContainerID: pod.ContainerID, Verdict: ReadIdle}
	switch kind, n, _ := strings.Cut(what, ":"); kind {
	case "", "idle":
	case "busy":
		r.Verdict, r.InFlight = ReadBusy, 1
		if count, err := strconv.ParseInt(n, 10, 64); err == nil {
			r.InFlight = count
		}
	default:
		r.Verdict, r.Reason = ReadFailed, what
	}
	s.seen.Reads[pod.UID] = append(s.seen.Reads[pod.UID], r)
}

// round is one Step, and what changed by it, in words.
func (s *story) round() string {
	s.seen.Replicas = s.replicas()
	before := s.status
	s.status, s.asked = Step(s.now, s.spec, s.status, s.seen)
	if s.asked == nil {
		s.asked = []Action{}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n", s.now.Format("15:04:05"))
	differences(&text, before, s.status)
	for _, action := range s.asked {
		switch a := action.(type) {
		case Disqualify:
			fmt.Fprintf(&text, "  mark %s\n", a.Pod.Name)
		case Requalify:
			fmt.Fprintf(&text, "  unmark %s\n", a.Pod.Name)
		case Probe:
			clients := ""
			if a.Clients {
				clients = " and its clients"
			}
			fmt.Fprintf(&text, "  read %s%s\n", a.Pod.Name, clients)
		case DeleteMember:
			fmt.Fprintf(&text, "  delete %s\n", a.Pod.Name)
		case ClearRetry:
			fmt.Fprintf(&text, "  clear the retry token %s\n", a.Token)
		case ReleaseFinalizer:
			fmt.Fprintf(&text, "  let the ModelDeployment go\n")
		case WakeAt:
			fmt.Fprintf(&text, "  wake at %s\n", a.Time.Format("15:04:05"))
		}
	}
	return text.String()
}

func (s *story) replicas() (all []Replica) {
	bySlot := map[key]*Replica{}
	names := slices.Sorted(maps.Keys(s.pods))
	for _, name := range names {
		parts := strings.Split(name, "-")
		ordinal, _ := strconv.Atoi(parts[1])
		k := key{parts[0], int32(ordinal)}
		if bySlot[k] == nil {
			bySlot[k] = &Replica{Role: k.role, Ordinal: k.ordinal}
		}
		bySlot[k].Members = append(bySlot[k].Members, *s.pods[name])
	}
	for _, r := range bySlot {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Replica) int { return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Ordinal, b.Ordinal)) })
	return all
}

// differences are the targets whose state or reason changed, and how an operation
// began or ended.
func differences(text *strings.Builder, before, after Status) {
	if before.Retirement == nil && after.Retirement != nil {
		fmt.Fprintf(text, "  begins: %s\n", after.Retirement.Cause)
	}
	old := map[key]v1alpha1.RetirementTarget{}
	if before.Retirement != nil {
		for _, t := range before.Retirement.Targets {
			old[key{t.Role, t.Ordinal}] = t
		}
	}
	if after.Retirement != nil {
		for _, t := range after.Retirement.Targets {
			if was := old[key{t.Role, t.Ordinal}]; was.State != t.State || was.Reason != t.Reason {
				fmt.Fprintf(text, "  %s-%d: %s %s\n", t.Role, t.Ordinal, t.State, t.Reason)
			}
		}
	}
	if after.Last != nil && (before.Last == nil || *before.Last != *after.Last) {
		fmt.Fprintf(text, "  ends: %s %s\n", after.Last.End, after.Last.Reason)
	}
}

// runFor plays rounds, each when the last one asked for it, until nothing is asked
// for or the time is over. It prints those in which something changed.
func (s *story) runFor(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	limit := 10 * time.Minute
	what := map[string]string{}
	for _, arg := range d.CmdArgs {
		what[arg.Key] = strings.Join(arg.Vals, ",")
	}
	if text, ok := what["for"]; ok {
		limit, _ = time.ParseDuration(text)
	}
	var text strings.Builder
	for end := s.now.Add(limit); s.now.Before(end); {
		wake := end
		if s.asked == nil {
			wake = s.now
		}
		for _, action := range s.asked {
			if w, ok := action.(WakeAt); ok && w.Time.Before(wake) {
				wake = w.Time
			}
		}
		if s.asked != nil && len(s.asked) == 0 {
			break
		}
		s.now = wake
		s.obey(what)
		for name, m := range s.pods { // engines leave ten seconds after their delete
			if m.leaving() && !s.now.Before(m.LeavingBy.Add(10*time.Second-m.Grace)) && what["stuck"] == "" {
				delete(s.pods, name)
			}
		}
		if told := s.round(); strings.Contains(told, "ends:") || strings.Contains(told, "begins:") || strings.Contains(told, ": ") {
			text.WriteString(strings.Join(interesting(told), "\n") + "\n")
		}
	}
	return text.String()
}

// interesting leaves out what every round asks for.
func interesting(told string) (lines []string) {
	for line := range strings.Lines(told) {
		line = strings.TrimRight(line, "\n")
		if !strings.HasPrefix(line, "  read ") && !strings.HasPrefix(line, "  wake ") {
			lines = append(lines, line)
		}
	}
	return lines
}
