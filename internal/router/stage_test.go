package router

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// began is when tests begin.
var began = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// stage is one process of a router: what it answers, and what it was asked.
type stage struct {
	family Family
	clock  *clocktesting.FakeClock
	// process is asked; its metrics have their own port.
	process Process
	// workers and metrics are its pages.
	workers, metrics string
	// status is that of /workers, and commanded that of what is not GET; 200 if 0.
	status, commanded int
	// told are the commands, with the bodies.
	told []string
}

func newStage(t *testing.T, name v1alpha1.RouterName, workers, metrics string) *stage {
	s := &stage{clock: clocktesting.NewFakeClock(began), workers: workers, metrics: metrics}
	s.family, _ = of(name, s.clock)
	api := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(api.Close)
	pages := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(pages.Close)
	s.process = Process{Process: withdraw.Process{Pod: "router-0", UID: "router-0", Run: "containerd://1"}, URL: api.URL, Metrics: pages.URL}
	if name == v1alpha1.LLMDRouter {
		s.process.Metrics = ""
	}
	return s
}

func (s *stage) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodGet:
		body, _ := io.ReadAll(r.Body)
		s.told = append(s.told, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		if s.commanded != 0 {
			w.WriteHeader(s.commanded)
		}
	case r.URL.Path == "/workers" && s.workers != "":
		if s.status != 0 {
			w.WriteHeader(s.status)
		}
		_, _ = io.WriteString(w, s.workers)
	case r.URL.Path == "/metrics" && s.metrics != "":
		_, _ = io.WriteString(w, s.metrics)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// look asks about one replica.
func (s *stage) look(t *testing.T, b Backend) withdraw.Sighting {
	all := s.family.Look(t.Context(), http.DefaultClient, s.process, []Backend{b})
	require.Len(t, all, 1)
	return all[0]
}

// replica is the one that is being retired.
func replica(changes ...func(*Backend)) Backend {
	b := Backend{
		Namespace: "team-a", Name: "qwen-server-1", UID: "uid-1", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Port: 8000, Ready: true,
		Labels: map[string]string{"app": "qwen", names.LabelServing: names.Withdrawn},
	}
	for _, change := range changes {
		change(&b)
	}
	return b
}

func labelled(key, value string) func(*Backend) {
	return func(b *Backend) { b.Labels[key] = value }
}

func uid(uid types.UID) func(*Backend) { return func(b *Backend) { b.UID = uid } }

func read(t testing.TB, name string) string {
	body, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(body)
}

// without takes the lines away that contain a word.
func without(text, word string) string {
	var rest strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, word) {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

// edited is a list of workers after a change, with the total that it has then. The first
// worker is the replica.
func edited(t testing.TB, body string, change func(all []map[string]any) []map[string]any) string {
	var answer struct {
		Workers []map[string]any `json:"workers"`
		Total   int              `json:"total"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	answer.Workers = change(answer.Workers)
	answer.Total = len(answer.Workers)
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	return string(text)
}

// removed is a list without the replica.
func removed(t testing.TB, body string) string {
	return edited(t, body, func(all []map[string]any) []map[string]any { return all[1:] })
}

// set changes fields of the replica's entry.
func set(t testing.TB, body string, fields map[string]any) string {
	return edited(t, body, func(all []map[string]any) []map[string]any {
		for name, value := range fields {
			if all[0][name] = value; value == nil {
				delete(all[0], name)
			}
		}
		return all
	})
}

// want are the facts that a case is about.
type want struct {
	membership withdraw.Membership
	// listed is whether it has an entry, where that is not the membership.
	listed  bool
	returns withdraw.Tri
	holds   withdraw.Tri
	window  time.Duration
	// inFlight is nil where it is unknown, and sound whether 0 of it would prove
	// something in its place.
	inFlight   *int64
	sound      bool
	dispatches *float64
	// why is a part of the reason.
	why string
}

func (w want) check(t *testing.T, s withdraw.Sighting) {
	assert.Equal(t, w.membership, s.Membership, "membership: %s", s.Why)
	assert.Equal(t, w.returns, s.Returns, "returns: %s", s.Why)
	assert.Equal(t, w.holds, s.Holds, "holds: %s", s.Why)
	window := w.window
	if window == httpWindow && w.membership != withdraw.Selectable && w.membership != withdraw.Unselectable && !w.listed {
		window = grpcWindow // nothing says how a replica is sent to that is not listed
	}
	assert.Equal(t, window, s.Window)
	assert.Equal(t, w.inFlight != nil, s.InFlight.Known, "in flight: %s", s.Why)
	if w.inFlight != nil {
		assert.Equal(t, *w.inFlight, s.InFlight.Value)
	}
	assert.Equal(t, w.sound, sound(s), "sound: %+v", s.InFlight)
	assert.Equal(t, w.dispatches != nil, s.Dispatches.Known, "dispatches: %s", s.Why)
	if w.dispatches != nil {
		assert.InDelta(t, *w.dispatches, s.Dispatches.Value, 0)
	}
	assert.Contains(t, s.Why, w.why)
	assert.True(t, s.Answered)
	whyUnknown(t, s)
}

// whyUnknown checks that a sighting says why something is unknown.
func whyUnknown(t testing.TB, s withdraw.Sighting) {
	if s.Membership == withdraw.MembershipUnknown || s.Holds == withdraw.Unknown || s.Membership == withdraw.Absent && s.Returns == withdraw.Unknown ||
		!s.Dispatches.Known || !s.InFlight.Known && s.Membership != withdraw.Absent {
		assert.NotEmpty(t, s.Why, "%+v", s)
	}
	assert.NotContains(t, s.Why, "\n")
	assert.Less(t, len(s.Why), 800)
}

// sound is whether a count of 0 says that nothing is bound.
func sound(s withdraw.Sighting) bool {
	c := s.InFlight
	for _, yes := range []withdraw.Tri{c.HeldToEnd, c.NeverReset, c.AllPaths, c.UniqueIDs} {
		if yes != withdraw.Yes {
			return false
		}
	}
	return c.Known && (s.Membership != withdraw.Absent || c.SurvivesRemoval == withdraw.Yes)
}

func ptr[T any](v T) *T { return &v }

// fleet is the one process of a stage, and what it has said so far.
type fleet struct {
	*stage
	routed withdraw.Routed
}

func newFleet(s *stage) *fleet {
	return &fleet{s, withdraw.Routed{
		Fleet:     withdraw.Fleet{Processes: []withdraw.Process{s.process.Process}, Bypassed: withdraw.No},
		Sightings: map[types.UID][]withdraw.Sighting{},
	}}
}

// sees looks once, a number of seconds after the mark, as the retirer does: it asks the
// process in the run that answered last.
func (f *fleet) sees(t *testing.T, seconds float64, b Backend) *fleet {
	f.clock.SetTime(began.Add(time.Duration(seconds * float64(time.Second))))
	s := f.look(t, b)
	f.process.Run = s.Run
	f.routed.Fleet.Processes[0].Run = s.Run
	f.routed.Fleet.ListedAt = f.clock.Now()
	f.routed.Sightings[f.process.UID] = append(f.routed.Sightings[f.process.UID], s)
	return f
}

// proves checks what all that comes to.
func (f *fleet) proves(t *testing.T, missing string) {
	v, all := f.routed.Prove(began, f.clock.Now())
	assert.Equal(t, missing, v.Missing, "%s %+v", v.Message, all)
	assert.Equal(t, missing == "", v.Proven)
}
