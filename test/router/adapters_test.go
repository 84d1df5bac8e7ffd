package router

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	adapters "github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// The adapters of lastcall against the fakes, over real HTTP: what they read of a router
// that is withdrawn from must be what the router does.

var adapterOf = map[fake.Family]v1alpha1.RouterName{
	fake.VLLMRouter: v1alpha1.VLLMRouter, fake.SMG: v1alpha1.SGLangGateway, fake.SGLModelGateway: v1alpha1.SGLangGateway, fake.LLMD: v1alpha1.LLMDRouter,
}

// scene is a router with two engines, of which the first is withdrawn.
type scene struct {
	t       *testing.T
	fake    *fake.Router
	script  *fake.Script
	family  adapters.Family
	process adapters.Process
	pods    []*corev1.Pod
	port    uint16
	streams chan struct{} // open streams end when it is closed
}

const selector = "app=engine," + names.LabelServing + "=" + names.Serving

func newScene(t *testing.T, r Router, host string) *scene {
	t.Helper()
	t.Parallel()
	s := &scene{t: t, streams: make(chan struct{})}
	port := "0"
	for i := range 2 {
		ip := fmt.Sprintf("%s.%d", host, i+1)
		l, err := net.Listen("tcp", net.JoinHostPort(ip, port))
		require.NoError(t, err)
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(s.engine)}}
		server.Start()
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		_, port, _ = net.SplitHostPort(l.Addr().String())
		s.pods = append(s.pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: fmt.Sprintf("qwen-server-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)),
				Labels: map[string]string{"app": "engine", names.LabelServing: names.Serving},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		})
	}
	s.port = netip.MustParseAddrPort(net.JoinHostPort(host+".1", port)).Port()
	r.Selector, r.EnginePort = selector, int(s.port)
	argv := r.Command("ns")
	options, err := fake.Parse(argv)
	require.NoError(t, err)
	s.script = fake.NewScript(s.pods...)
	s.fake = fake.Start(t, options, s.script, nil)
	known := false
	s.family, known = adapters.Of(adapterOf[r.Release.Family])
	require.True(t, known)
	s.process = adapters.Process{
		Process: withdraw.Process{Pod: r.Name + "-0", UID: "router", Run: "first"},
		URL:     s.fake.URL(), Metrics: s.fake.MetricsURL(), Image: r.Release.Ref(), Args: argv,
	}
	return s
}

func (s *scene) engine(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	_, _ = io.WriteString(w, "data: first\n\n")
	_ = http.NewResponseController(w).Flush()
	select {
	case <-s.streams:
	case <-r.Context().Done():
	}
}

// open begins streams until each engine has one.
func (s *scene) open() {
	s.t.Helper()
	for range s.pods {
		ctx, cancel := context.WithCancel(s.t.Context())
		s.t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.fake.URL()+"/v1/completions", http.NoBody)
		require.NoError(s.t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(s.t, err)
		go func() {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}()
	}
}

func (s *scene) backend(i int) adapters.Backend {
	pod := s.pods[i]
	return adapters.Backend{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Addrs: []netip.Addr{netip.MustParseAddr(pod.Status.PodIP)}, Port: s.port, Labels: pod.Labels, Ready: true,
	}
}

// look is what the router says of the first replica.
func (s *scene) look() withdraw.Sighting {
	s.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	seen := s.family.Look(s.t.Context(), client, s.process, []adapters.Backend{s.backend(0), s.backend(1)})
	require.Len(s.t, seen, 2)
	return seen[0]
}

func (s *scene) mark(serving string) {
	pod := s.pods[0].DeepCopy()
	pod.Labels[names.LabelServing] = serving
	s.pods[0] = pod
	s.script.Apply(pod)
}

func (s *scene) eventually(what string, ok func(withdraw.Sighting) bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return ok(s.look()) }, 20*time.Second, 20*time.Millisecond, what)
}

func is(m withdraw.Membership) func(withdraw.Sighting) bool {
	return func(s withdraw.Sighting) bool { return s.Membership == m }
}

func TestAdaptersFollowAWithdrawal(t *testing.T) {
	for i, c := range []struct {
		family  fake.Family
		version string
		policy  string
		told    bool
		out     withdraw.Membership
		// counted is whether what is in flight is known while the replica is on its way out.
		counted bool
		picks   bool // whether its dispatches are
	}{
		{family: fake.VLLMRouter, version: "0.1.15", policy: "round_robin", told: true, out: withdraw.Absent, picks: true},
		{family: fake.SGLModelGateway, version: "0.3.0", policy: "round_robin", told: true, out: withdraw.Absent, picks: true},
		{family: fake.SMG, version: "1.9.0", policy: "round_robin", told: true, out: withdraw.Unselectable},
		{family: fake.SMG, version: "1.9.0", policy: "cache_aware", told: true, out: withdraw.Unselectable, counted: true},
		{family: fake.SMG, version: "1.10.0", policy: "round_robin", out: withdraw.Unselectable, counted: true, picks: true},
		{family: fake.LLMD, version: "0.10.0", out: withdraw.Absent, counted: true, picks: true},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.family, c.version, c.policy), func(t *testing.T) {
			r := Router{Name: "router", Release: bundle.Release{Family: c.family, Version: c.version}, Policy: c.policy}
			if c.family == fake.SMG {
				r.Args = []string{"--drain-settle-secs", "600"}
			}
			s := newScene(t, r, fmt.Sprintf("127.8.%d", i))
			s.open()
			before := s.look()
			assert.Equal(t, withdraw.Selectable, before.Membership, before.Why)
			assert.Equal(t, c.picks, before.Dispatches.Known, before.Why)
			if c.picks {
				assert.Equal(t, 1.0, before.Dispatches.Value)
			}
			told, _ := s.family.Told(s.process)
			assert.Equal(t, c.told, told)
			if c.told {
				require.NoError(t, s.family.Withdraw(t.Context(), http.DefaultClient, s.process, s.backend(0)))
			}
			s.mark(names.Withdrawn)
			s.eventually("it is out", is(c.out))
			out := s.look()
			assert.Equal(t, withdraw.No, out.Returns, out.Why)
			assert.Equal(t, c.counted, out.InFlight.Known, out.Why)
			if c.counted {
				assert.EqualValues(t, 1, out.InFlight.Value, "its stream is open")
				close(s.streams)
				s.eventually("the stream is counted out", func(s withdraw.Sighting) bool { return s.InFlight.Known && s.InFlight.Value == 0 })
			}
		})
	}
}

// A replica that is kept is listed again, and leaves with its Pod as one does that was
// never taken out.
func TestAdaptersPutAReplicaBack(t *testing.T) {
	for i, r := range []Router{
		{Release: bundle.Release{Family: fake.VLLMRouter, Version: "0.1.15"}},
		{Release: bundle.Release{Family: fake.SGLModelGateway, Version: "0.3.0"}},
		{Release: bundle.Release{Family: fake.SMG, Version: "1.9.0"}, Args: []string{"--drain-settle-secs", "1"}},
	} {
		t.Run(string(r.Release.Family), func(t *testing.T) {
			r.Name = "router"
			s := newScene(t, r, fmt.Sprintf("127.8.2%d", i))
			require.NoError(t, s.family.Withdraw(t.Context(), http.DefaultClient, s.process, s.backend(0)))
			s.eventually("it is out", is(withdraw.Absent))
			s.mark(names.Withdrawn)
			s.mark(names.Serving)
			assert.Equal(t, withdraw.Absent, s.look().Membership, "the label alone does not bring it back")
			require.NoError(t, s.family.Restore(t.Context(), http.DefaultClient, s.process, s.backend(0)))
			s.eventually("it is back", is(withdraw.Selectable))

			pod, now := s.pods[0].DeepCopy(), metav1.Now()
			pod.DeletionTimestamp = &now // by another hand, as in the drain of a node
			s.script.Apply(pod)
			s.script.Delete(pod)
			s.eventually("it is out with its Pod", is(withdraw.Absent))
		})
	}
}

// What is wrong with a router must not look like a withdrawal that is done.
func TestAdaptersAreNotFooled(t *testing.T) {
	vllm, smg, epp := bundle.Release{Family: fake.VLLMRouter, Version: "0.1.15"}, bundle.Release{Family: fake.SMG, Version: "1.10.0"}, bundle.Release{Family: fake.LLMD, Version: "0.10.0"}
	withdrawn := func(s *scene) {
		s.t.Helper()
		require.NoError(s.t, s.family.Withdraw(s.t.Context(), http.DefaultClient, s.process, s.backend(0)))
	}
	for i, c := range []struct {
		release bundle.Release
		fault   fake.Fault
		then    func(*scene)
		want    func(withdraw.Sighting) bool
	}{
		{vllm, fake.Fault{Name: fake.Unauthorized}, nil, is(withdraw.MembershipUnknown)},
		{vllm, fake.Fault{Name: fake.Forbidden}, nil, is(withdraw.MembershipUnknown)},
		{vllm, fake.Fault{Name: fake.TruncateList, Value: "0"}, nil, is(withdraw.MembershipUnknown)},
		{vllm, fake.Fault{Name: fake.AsyncRemoval, Value: "1h"}, withdrawn, is(withdraw.Selectable)},
		{vllm, fake.Fault{Name: fake.Disagree}, withdrawn, is(withdraw.Selectable)},
		{vllm, fake.Fault{Name: fake.AddAgain, Value: "1ms"}, withdrawn, is(withdraw.Selectable)},
		{vllm, fake.Fault{Name: fake.DataParallelRanks}, nil, is(withdraw.Selectable)},
		{vllm, fake.Fault{Name: fake.DataParallelRanks}, withdrawn, is(withdraw.Absent)},
		{smg, fake.Fault{Name: fake.IgnoreLabels}, func(s *scene) { s.mark(names.Withdrawn) }, is(withdraw.Selectable)},
		{epp, fake.Fault{Name: fake.Unauthorized}, nil, is(withdraw.MembershipUnknown)},
		{epp, fake.Fault{Name: fake.LoseDeletes}, func(s *scene) { s.script.Delete(s.pods[0]) }, is(withdraw.Selectable)},
		{epp, fake.Fault{Name: fake.NegativeGauge}, (*scene).open, func(s withdraw.Sighting) bool { return !s.InFlight.Known }},
		{epp, fake.Fault{Name: fake.Restart}, nil, func(s withdraw.Sighting) bool { return s.Dispatches.Value == 0 && s.Run != "first" }},
	} {
		t.Run(fmt.Sprintf("%s %s %d", c.release.Family, c.fault.Name, i), func(t *testing.T) {
			s := newScene(t, Router{Name: "router", Release: c.release}, fmt.Sprintf("127.8.%d", 40+i))
			require.NoError(t, s.fake.Set(c.fault))
			if c.then != nil {
				c.then(s)
			}
			s.eventually(c.fault.Name, c.want)
		})
	}
}
