package router

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

var vllmArgs = []string{
	"vllm-router", "--service-discovery", "--selector", "app=qwen", "lastcall.dev/serving=true",
	"--service-discovery-port=8000", "--policy", "round_robin", "--prometheus-host", "0.0.0.0",
}

func vllmStage(t *testing.T, change func(s *stage)) *stage {
	s := newStage(t, v1alpha1.VLLMRouter, read(t, "vllm-workers.json"), read(t, "vllm-metrics.txt"))
	s.process.Args, s.process.Image = vllmArgs, "vllm/vllm-router:v0.1.15"
	if change != nil {
		change(s)
	}
	return s
}

// at moves the replica's entry.
func at(t *testing.T, url string) func(*stage) {
	return func(s *stage) { s.workers = set(t, s.workers, map[string]any{"url": url}) }
}

func gone(t *testing.T) func(*stage) {
	return func(s *stage) { s.workers = removed(t, s.workers) }
}

func goneWith(t *testing.T, argv ...string) func(*stage) {
	return func(s *stage) { s.workers, s.process.Args = removed(t, s.workers), argv }
}

func TestVLLMRouterSays(t *testing.T) {
	listed := want{membership: withdraw.Selectable, returns: withdraw.No, holds: withdraw.No, window: httpWindow, dispatches: ptr(7.0)}
	with := func(change func(*want)) want { w := listed; change(&w); return w }
	absent := with(func(w *want) { w.membership = withdraw.Absent })
	unknown := func(why string) want {
		return with(func(w *want) { w.membership, w.why = withdraw.MembershipUnknown, why })
	}
	emptied := with(func(w *want) { w.membership, w.why = withdraw.Emptied, "no worker at all" })
	prefills := func(w *want) { w.holds, w.why = withdraw.Yes, "while another prefills" }
	for sentence, c := range map[string]struct {
		change  func(s *stage)
		backend func(b *Backend)
		want    want
	}{
		"it lists the replica whatever its labels and readiness are": {nil, nil, listed},
		"it lists the replica as unhealthy, which ends by itself": {
			func(s *stage) { s.workers = set(t, s.workers, map[string]any{"is_healthy": false}) }, nil, listed,
		},
		"its load is 0, and that is never what is in flight": {
			func(s *stage) { s.workers = set(t, s.workers, map[string]any{"load": 0}) }, nil,
			with(func(w *want) { w.why = "load gauges do not count" }),
		},
		"it was told, and lists only others":                         {gone(t), nil, absent},
		"it lists the ranks of the replica":                          {at(t, "http://10.0.0.1:8000@3"), nil, listed},
		"it lists the IPv6 address of the replica":                   {at(t, "http://[fd00::1]:8000@1"), sixth, with(none)},
		"it lists an IPv6 address without brackets":                  {at(t, "http://fd00::1:8000"), sixth, with(none)},
		"it lists an IPv4 address as IPv6":                           {at(t, "http://[::ffff:10.0.0.1]:8000"), nil, listed},
		"it lists a replica whose address begins with that of this":  {at(t, "http://10.0.0.11:8000"), nil, absent},
		"it lists another port of the replica":                       {at(t, "http://10.0.0.1:8001"), nil, unknown("another port")},
		"it lists a host name":                                       {at(t, "http://qwen-server-1.qwen:8000"), nil, unknown("host name")},
		"it lists nobody":                                            {func(s *stage) { s.workers = `{"workers":[],"total":0}` }, nil, emptied},
		"it lists the replica and nobody else":                       {only(t, 0), nil, listed},
		"its list is shorter than it says":                           {truncated(t), nil, unknown("not whole")},
		"its list does not say how long it is":                       {func(s *stage) { gone(t)(s); s.workers = strings.Replace(s.workers, "total", "sum", 1) }, nil, unknown("not whole")},
		"its workers register themselves, so the list is not theirs": {goneWith(t, append([]string{"--vllm-discovery-address", "0.0.0.0:30001"}, vllmArgs...)...), nil, unknown("--vllm-discovery-address")},
		"its command line is not known": {goneWith(t), nil, want{
			window: httpWindow, dispatches: ptr(7.0), why: "its command line is not known",
		}},
		"its command line is a shell's": {goneWith(t, "sh", "-c", "vllm-router --selector app=qwen"), nil, want{
			window: httpWindow, dispatches: ptr(7.0), why: "its command line is not known",
		}},
		"its selector still matches, so a restart brings the replica back": {
			gone(t), labelled(names.LabelServing, names.Serving),
			with(func(w *want) { w.membership, w.returns, w.why = withdraw.Absent, withdraw.Yes, "still matches" }),
		},
		"its selector is in one word": {goneWith(t, "vllm-router", "--service-discovery", "--selector=app=qwen,lastcall.dev/serving=true"), nil, absent},
		"it has no selector": {
			goneWith(t, "vllm-router", "--worker-urls", "http://10.0.0.2:8000"), nil,
			with(func(w *want) { w.membership, w.returns, w.why = withdraw.Absent, withdraw.Unknown, "no selector" }),
		},
		"its selector has a form that is not known": {
			goneWith(t, "vllm-router", "--selector", "app in (qwen)"), nil,
			with(func(w *want) { w.membership, w.returns, w.why = withdraw.Absent, withdraw.Unknown, "cannot be read" }),
		},
		"it has two selectors, of which one matches": {
			goneWith(t, "vllm-router", "--selector", "lastcall.dev/serving=true", "--selector", "app=qwen"), nil,
			with(func(w *want) { w.membership, w.returns = withdraw.Absent, withdraw.Yes }),
		},
		"its command line names the replica": {
			goneWith(t, append(vllmArgs, "--worker-urls", "http://10.0.0.2:8000", "http://10.0.0.1:8000")...), nil,
			with(func(w *want) { w.membership, w.returns, w.why = withdraw.Absent, withdraw.Yes, "names the replica" }),
		},
		"its command line has a host name": {
			goneWith(t, append(vllmArgs, "--worker-urls", "http://qwen:8000")...), nil,
			with(func(w *want) { w.membership, w.returns, w.why = withdraw.Absent, withdraw.Unknown, "by host name" }),
		},
		"the labels of the replica are not known": {
			gone(t), func(b *Backend) { b.Labels = nil },
			with(func(w *want) { w.membership, w.returns, w.why = withdraw.Absent, withdraw.Unknown, "labels" }),
		},
		"it decodes what others prefill, by its command line": {
			goneWith(t, "vllm-router", "--vllm-pd-disaggregation", "--prefill-selector", "role=p", "--decode-selector", "role=d"), nil,
			with(func(w *want) { prefills(w); w.membership = withdraw.Absent }),
		},
		"its decode selector still matches": {
			goneWith(t, "vllm-router", "--vllm-pd-disaggregation", "--prefill-selector", "role=p", "--decode-selector", "app=qwen"), nil,
			with(func(w *want) { prefills(w); w.membership, w.returns = withdraw.Absent, withdraw.Yes }),
		},
		"it decodes what others prefill, by its workers": {
			func(s *stage) { s.workers = strings.ReplaceAll(s.workers, `"regular"`, `"decode"`) }, nil, with(prefills),
		},
		"it keeps requests for a worker until that has room": {
			goneWith(t, append(vllmArgs, "--enable-program-scheduling")...), nil,
			with(func(w *want) {
				w.membership, w.holds, w.why = withdraw.Absent, withdraw.Yes, "--enable-program-scheduling"
			}),
		},
		"it does not speak HTTP to all of its workers": {
			func(s *stage) {
				s.workers = set(t, s.workers, map[string]any{"url": "grpc://10.0.0.1:8000", "connection_mode": "Grpc"})
			}, nil, with(func(w *want) { w.holds, w.window, w.why = withdraw.Unknown, grpcWindow, "not known to speak HTTP" }),
		},
		"it has never dispatched to the replica, and has to others": {
			func(s *stage) { s.metrics = without(s.metrics, "10.0.0.1:") }, nil, with(func(w *want) { w.dispatches = ptr(0.0) }),
		},
		"it dispatches to the ranks of the replica": {
			func(s *stage) {
				s.metrics += "vllm_router_processed_requests_total{worker=\"http://10.0.0.1:8000@1\"} 5\n"
			}, nil, with(func(w *want) { w.dispatches = ptr(12.0) }),
		},
		"it counts no dispatches": {
			func(s *stage) { s.metrics = without(s.metrics, "processed") }, nil,
			with(func(w *want) { w.dispatches, w.why = nil, "no "+vllmDispatches }),
		},
		"it has a series twice": {
			func(s *stage) {
				s.metrics += "vllm_router_processed_requests_total{worker=\"http://10.0.0.1:8000\"} 5\n"
			}, nil, with(func(w *want) { w.dispatches, w.why = nil, "twice" }),
		},
		"it has counted less than nothing": {
			func(s *stage) { s.metrics = strings.ReplaceAll(s.metrics, "} 7\n", "} -7\n") }, nil,
			with(func(w *want) { w.dispatches, w.why = nil, "no whole number" }),
		},
		"it answers metrics with a page of HTML": {
			func(s *stage) { s.metrics = "<html></html>\n" }, nil, with(func(w *want) { w.dispatches = nil }),
		},
		"it answers workers with a page of HTML":   {func(s *stage) { s.workers = "<html>" }, nil, want{why: "no list of workers"}},
		"it answers with a list of something else": {func(s *stage) { s.workers = `{"urls":["http://10.0.0.2:8000"]}` }, nil, want{why: "no list of workers"}},
		"it has a worker without a URL":            {func(s *stage) { s.workers = `{"workers":[{"id":"x"}],"total":1}` }, nil, want{why: "no list of workers"}},
		"its list ends in the middle":              {func(s *stage) { s.workers = s.workers[:200] }, nil, want{why: "no list of workers"}},
		"it wants a token":                         {func(s *stage) { s.status = http.StatusUnauthorized }, nil, want{why: "it answers 401 and wants credentials"}},
		"it refuses":                               {func(s *stage) { s.status = http.StatusForbidden }, nil, want{why: "it answers 403 and wants credentials"}},
		"it has no list":                           {func(s *stage) { s.workers = "" }, nil, want{why: "GET /workers: it answers 404"}},
		"it is broken":                             {func(s *stage) { s.status = http.StatusBadGateway }, nil, want{why: "it answers 502"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := replica()
			if c.backend != nil {
				c.backend(&b)
			}
			c.want.check(t, vllmStage(t, c.change).look(t, b))
		})
	}
}

func TestVLLMRouterCountsAtSelection(t *testing.T) {
	assert.Equal(t, withdraw.Yes, vllmStage(t, nil).look(t, replica()).Dispatches.AtSelection)
	assert.Equal(t, withdraw.Unknown, vllmStage(t, paired).look(t, replica()).Dispatches.AtSelection, "of a pair")
	programs := func(s *stage) { s.process.Args = append(slices.Clone(vllmArgs), "--enable-program-scheduling") }
	assert.Equal(t, withdraw.Unknown, vllmStage(t, programs).look(t, replica()).Dispatches.AtSelection, "of a program")
}

func sixth(b *Backend) {
	b.Addrs = []netip.Addr{netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00::1")}
}

func none(w *want) { w.dispatches = ptr(0.0) }

// only leaves one entry.
func only(t *testing.T, i int) func(*stage) {
	return func(s *stage) {
		s.workers = edited(t, s.workers, func(all []map[string]any) []map[string]any { return all[i : i+1] })
	}
}

// truncated drops the replica and leaves the total as it was.
func truncated(t *testing.T) func(*stage) {
	return func(s *stage) { s.workers = strings.Replace(removed(t, s.workers), `"total":2`, `"total":3`, 1) }
}

func TestVLLMRouterIsTold(t *testing.T) {
	encoded := "/workers/http:%2F%2F10.0.0.1:8000"
	for sentence, c := range map[string]struct {
		change  func(s *stage)
		backend func(b *Backend)
		told    []string
		err     string
	}{
		"a worker": {nil, nil, []string{"DELETE " + encoded}, ""},
		"a worker that it says it does not know": {
			func(s *stage) { s.commanded = http.StatusNotFound }, nil, []string{"DELETE " + encoded}, "",
		},
		"a worker that it does not list": {gone(t), nil, []string{"DELETE " + encoded}, ""},
		"a worker with ranks, which go by the URL without them": {
			at(t, "http://10.0.0.1:8000@0"), nil, []string{"DELETE " + encoded, "DELETE " + encoded + "@0"}, "",
		},
		"a worker with an IPv6 address": {
			at(t, "http://[fd00::1]:8000"), sixth, []string{"DELETE /workers/http:%2F%2F%5Bfd00::1%5D:8000"}, "",
		},
		"but wants a token": {
			func(s *stage) { s.commanded = http.StatusForbidden }, nil, []string{"DELETE " + encoded}, "it answers 403 and wants credentials",
		},
		"but does not list anything":   {func(s *stage) { s.workers = "" }, nil, nil, "GET /workers: it answers 404"},
		"of a replica with no address": {gone(t), func(b *Backend) { b.Addrs = nil }, nil, "no address"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := replica()
			if c.backend != nil {
				c.backend(&b)
			}
			s := vllmStage(t, c.change)
			told, drains := s.family.Told(s.process)
			require.True(t, told)
			require.False(t, drains)
			err := s.family.Withdraw(t.Context(), http.DefaultClient, s.process, b)
			assert.Equal(t, c.told, s.told)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
}

func TestVLLMRouterIsToldThatAReplicaIsBack(t *testing.T) {
	added := []string{`POST /workers {"url":"http://10.0.0.1:8000"}`}
	for sentence, c := range map[string]struct {
		change func(s *stage)
		told   []string
		err    string
	}{
		"it is listed already":        {nil, nil, ""},
		"it is not listed":            {gone(t), added, ""},
		"somebody else was faster":    {func(s *stage) { gone(t)(s); s.commanded = http.StatusConflict }, added, ""},
		"the router does not take it": {func(s *stage) { gone(t)(s); s.commanded = http.StatusInternalServerError }, added, "POST /workers: it answers 500"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := vllmStage(t, c.change)
			err := s.family.Restore(t.Context(), http.DefaultClient, s.process, replica())
			assert.Equal(t, c.told, s.told)
			if c.err == "" {
				assert.NoError(t, err)
			} else {
				assert.ErrorContains(t, err, c.err)
			}
		})
	}
	six := vllmStage(t, gone(t))
	require.NoError(t, six.family.Restore(t.Context(), http.DefaultClient, six.process, replica(func(b *Backend) {
		b.Addrs = []netip.Addr{netip.MustParseAddr("fd00::1")}
	})))
	assert.Equal(t, []string{`POST /workers {"url":"http://[fd00::1]:8000"}`}, six.told)
}

// What a process of vllm-router comes to over time.
func TestVLLMRouterProof(t *testing.T) {
	serving := replica(labelled(names.LabelServing, names.Serving))
	pairs := append([]string{"--vllm-pd-disaggregation"}, vllmArgs...)
	for sentence, c := range map[string]struct {
		story   func(t *testing.T, f *fleet)
		missing string
	}{
		"told, unlabelled, and quiet for 12 s": {func(t *testing.T, f *fleet) {
			f.sees(t, 1, replica())
			gone(t)(f.stage)
			f.sees(t, 2, replica()).sees(t, 8, replica()).sees(t, 14.5, replica())
		}, ""},
		"quiet for less": {func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.sees(t, 2, replica()).sees(t, 13.9, replica())
		}, names.HeldRouterHolds},
		"unlabelled, and never told": {func(t *testing.T, f *fleet) {
			f.sees(t, 2, replica()).sees(t, 60, replica())
		}, names.HeldRouterSelects},
		"told, and not unlabelled": {func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.sees(t, 2, serving).sees(t, 60, serving)
		}, names.HeldRouterReturns},
		"1: a prefill of 90 s is under way, and load is 0": {func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.process.Args = pairs
			for at := range 12 {
				f.sees(t, float64(5*at), replica())
			}
		}, names.HeldRouterHolds},
		"7: it restarts and lists the replica again": {func(t *testing.T, f *fleet) {
			listed := f.workers
			gone(t)(f.stage)
			f.sees(t, 2, replica()).sees(t, 15, replica())
			f.workers, f.process.Run = listed, "containerd://2"
			f.sees(t, 16, replica())
		}, names.HeldRouterSelects},
		"10: its counter is the same because it restarted": {func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.sees(t, 2, replica()).sees(t, 13, replica())
			f.process.Run = "containerd://2"
			f.sees(t, 15, replica())
		}, names.HeldRouterHolds},
		"a request was sent although it is not listed": {func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			f.sees(t, 2, replica()).sees(t, 10, replica())
			f.metrics = strings.ReplaceAll(f.metrics, "} 7\n", "} 8\n")
			f.sees(t, 15, replica())
		}, names.HeldRecentDispatches},
		"it did not answer once in between, which takes nothing back": {func(t *testing.T, f *fleet) {
			f.sees(t, 1, replica())
			gone(t)(f.stage)
			f.sees(t, 2, replica())
			url := f.process.URL
			raw(t, "")(f.stage)
			f.sees(t, 13, replica())
			f.process.URL = url
			f.sees(t, 15, replica())
		}, ""},
		"its list was cut once in between": {func(t *testing.T, f *fleet) {
			gone(t)(f.stage)
			whole := f.workers
			f.sees(t, 2, replica())
			f.workers = whole[:len(whole)-9]
			f.sees(t, 13, replica())
			f.workers = whole
			f.sees(t, 15, replica())
		}, names.HeldRouterHolds},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := newFleet(vllmStage(t, nil))
			c.story(t, f)
			f.proves(t, c.missing)
		})
	}
}
