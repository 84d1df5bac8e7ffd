package retire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// TestTraces plays the stories of testdata, one for each file. A story is what the
// world does; the output is what the protocol did, at minutes and seconds from its
// beginning. Run with -rewrite to write the outputs, and read them.
//
//	new
//	    begins another story in the same file
//	spec [ROLE=REPLICAS] [plan=Hold] [drop=ROLE] [delete] [wait-for-idle] [orphan] [retry=TOKEN] …
//	    what the ModelDeployment asks for from now on
//	pod ROLE-ORDINAL[-MEMBER] [size=N] [split] [taken-over] [never-started] …
//	    a Pod as it is from now on; server-0..9 are ten
//	workload ROLE-ORDINAL
//	    a Workload of Kueue's that holds the Pods of a replica, in the place of another
//	router NAME [told] [restarts] [exits]
//	    a process of the router, for plan=Router: it follows labels, or has to be told
//	gone NAME, leave NAME, mark NAME, unmark NAME
//	    what a stranger does to a Pod
//	crash [away=5m]
//	    the process ends and another one takes over, at once or after a while
//	run [for=30s] [until=STATE] [read=busy:N|REASON] [NAME=busy:N] [connections=N] [ROUTER=selects|silent|returns|drains|nobody|holds:N] [bypassed] [deletes=REFUSAL] [marks=refused] [workloads=refused|unread:N] [stuck] [crashes]
//	    rounds, each when the last one asked for it or the API server tells of
//	    something, until nothing is to be done any more. What was read meanwhile is
//	    said; engines are idle where it is not. With crashes the process ends after
//	    each write in which a target came into another state, before it could act.
//	    The first N deletes of Workloads are refused, or those that are to be deleted
//	    cannot be read in N rounds
//	status
//	    what people see
func TestTraces(t *testing.T) {
	datadriven.Walk(t, "testdata/traces", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			if d.Cmd == "new" {
				s = newStory()
				return ""
			}
			return s.command(t, d)
		})
	})
}

func (s *story) command(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	s.due = s.now // the API server tells of whatever it is
	for _, name := range words(d) {
		m := s.pods[name]
		switch d.Cmd {
		case "gone":
			delete(s.pods, name)
		case "leave":
			m.LeavingBy = s.now.Add(m.Grace)
		case "mark", "unmark":
			m.Withdrawn = d.Cmd == "mark"
		}
	}
	switch d.Cmd {
	case "gone", "leave", "mark", "unmark":
	case "workload":
		s.uids++
		at := slotIn(words(d)[0])
		s.workloads[at] = &Workload{Name: "qwen-" + at.String(), UID: types.UID(fmt.Sprint("w", s.uids)), ResourceVersion: "1"}
	case "spec":
		s.ask(t, d)
	case "pod":
		s.pod(t, d)
	case "router":
		s.router(t, d)
	case "crash":
		if d.HasArg("away") {
			var away string
			d.ScanArgs(t, "away", &away)
			duration, err := time.ParseDuration(away)
			require.NoError(t, err, d.Pos)
			s.asked = nil
			s.pass(s.now.Add(duration), nil)
		}
		s.crash()
	case "run":
		return s.run(t, d)
	case "status":
		return s.people()
	default:
		d.Fatalf(t, "no such command %q", d.Cmd)
	}
	return ""
}

func words(d *datadriven.TestData) (all []string) {
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			all = append(all, arg.Key)
		}
	}
	return all
}

// run plays rounds, and prints those in which something was done.
func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	limit, what := 15*time.Minute, map[string]string{}
	for _, arg := range d.CmdArgs {
		what[arg.Key] = strings.Join(arg.Vals, ",")
	}
	if text, ok := what["for"]; ok {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err, d.Pos)
	}
	if _, stuck := what["stuck"]; stuck {
		s.leaves = 0
	}
	_, crashes := what["crashes"]
	s.done, s.workloadsFail = nil, 0
	if _, n, ok := strings.Cut(what["workloads"], ":"); ok {
		s.workloadsFail, _ = strconv.Atoi(n)
	}
	var text strings.Builder
	end := s.now.Add(limit)
	for rounds := 0; !s.released; rounds++ {
		require.Less(t, rounds, 5000, "%s: the rounds do not end", d.Pos)
		at := s.next()
		if at.IsZero() && what["for"] == "" {
			break
		}
		if at.IsZero() || at.After(end) {
			s.pass(end, what)
			break
		}
		s.pass(at, what)
		told, moved := s.round(what, crashes)
		if s.status.Retirement != nil {
			require.LessOrEqual(t, len(s.status.Retirement.Targets), maxListed, d.Pos)
		}
		text.WriteString(told)
		if until := what["until"]; until != "" && moved && s.status.Retirement != nil && string(s.status.Retirement.State) == until {
			break
		}
	}
	return text.String()
}

// round is one Step and what comes of it, and what it was in words: nothing where
// it only read or waited. It reports whether a target came into another state.
func (s *story) round(what map[string]string, crashes bool) (told string, moved bool) {
	s.seen.Replicas = s.replicas()
	for i := range s.seen.Replicas {
		r := &s.seen.Replicas[i]
		leaves := r.Workload != nil && !slices.ContainsFunc(r.Members, func(m Member) bool { return !m.leaving() })
		if leaves && strings.HasPrefix(what["workloads"], "unread") && s.workloadsFail > 0 {
			s.workloadsFail--
			r.Workload, r.WorkloadUnknown = nil, true
		}
	}
	before := s.status
	after, actions := Step(s.now, s.spec, s.status, s.seen)
	s.status = after
	lines, moved := differences(before, after)
	if crashes && moved {
		lines = append(lines, "the process ends, and another one takes over")
		s.crash()
	} else {
		var done []string
		for _, text := range []string{"tell", "mark", "unmark", "delete", "clear", "let"} {
			done = append(done, said(actions, text)...)
		}
		if !slices.Equal(done, s.done) { // what is tried again and again is said once
			lines = append(lines, done...)
		}
		s.done = done
		s.obey(actions, what)
	}
	elapsed := s.now.Sub(s.start)
	clock := fmt.Sprintf("%d:%02d", int(elapsed.Minutes()), int(elapsed.Seconds())%60)
	for _, line := range lines {
		told += fmt.Sprintf("%5s  %s\n", clock, line)
		clock = ""
	}
	return told, moved
}

// said are the actions that begin so, in words, those of many Pods as one.
func said(actions []Action, kind string) []string {
	var all []string
	for _, action := range actions {
		text := toldRouter(action)
		switch a := action.(type) {
		case Disqualify:
			text = "mark " + a.Pod.Name
		case Requalify:
			text = "unmark " + a.Pod.Name
		case DeleteMember:
			text = "delete " + a.Pod.Name
			if a.ResourceVersion != "" {
				text += " if it has not changed"
			}
		case DeleteWorkload:
			text = fmt.Sprintf("delete the Workload %s (%s)", a.Workload.Name, a.Workload.UID)
		case ClearRetry:
			text = "clear the token " + a.Token
		case ReleaseFinalizer:
			text = "let the ModelDeployment go"
		}
		if strings.HasPrefix(text, kind+" ") {
			all = append(all, text)
		}
	}
	if n := len(all); n > 4 {
		return []string{fmt.Sprintf("%s … %s (%d)", all[0], strings.TrimPrefix(all[n-1], kind+" "), n)}
	}
	return all
}

// differences are the targets whose state or reason changed, and how an operation
// began or ended; and whether a target came into another state.
func differences(before, after Status) (lines []string, moved bool) {
	old := map[key]v1alpha1.RetirementTarget{}
	if before.Retirement != nil {
		for _, t := range before.Retirement.Targets {
			old[key{t.Role, t.Ordinal}] = t
		}
	}
	if r := after.Retirement; r != nil {
		if before.Retirement == nil || !before.Retirement.StartedAt.Equal(&r.StartedAt) {
			lines = append(lines, "begins: "+string(r.Cause))
		}
		var which []string
		for i := range r.Targets {
			t := &r.Targets[i]
			was := old[key{t.Role, t.Ordinal}]
			moved = moved || was.State != t.State
			if was.State == t.State && was.Reason == t.Reason {
				continue
			}
			which = append(which, fmt.Sprintf("%s-%d", t.Role, t.Ordinal))
			next := i+1 < len(r.Targets) && r.Targets[i+1].State == t.State && r.Targets[i+1].Reason == t.Reason
			if next {
				was = old[key{r.Targets[i+1].Role, r.Targets[i+1].Ordinal}]
				next = was.State != t.State || was.Reason != t.Reason
			}
			if next {
				continue
			}
			text := strings.Join(which, ", ")
			if n := len(which); n > 4 {
				text = fmt.Sprintf("%s … %s (%d)", which[0], which[n-1], n)
			}
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s: %s %s", text, t.State, t.Reason)))
			which = nil
		}
	}
	if after.Last != nil && (before.Last == nil || *before.Last != *after.Last) {
		lines = append(lines, fmt.Sprintf("ends: %s %s", after.Last.End, after.Last.Reason))
		moved = true
	}
	return lines, moved
}

// people is what they see of an operation.
func (s *story) people() string {
	r := s.status.Retirement
	if r == nil {
		return "nothing is being retired\n"
	}
	left := max(r.Deadline.Sub(s.now), 0).Round(time.Second)
	text := fmt.Sprintf("%s, %s left: %s %s: %s\n", r.Cause, left, r.State, r.Reason, r.Message)
	states := map[v1alpha1.RetirementState]int{}
	for _, t := range r.Targets {
		states[t.State]++
	}
	for _, state := range slices.Backward(order) {
		if n := states[state]; n > 0 {
			text += fmt.Sprintf("  %s: %d\n", state, n)
		}
	}
	for _, t := range r.Targets {
		for _, p := range t.Routers {
			text += fmt.Sprintf("  %s of %s-%d: %s %s\n", p.Pod, t.Role, t.Ordinal, p.Missing, p.Message)
		}
	}
	return text
}
