package retirer

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// routed is a router of vLLM with processes on addresses of their own.
type routed struct {
	*routers
	api  *listed
	ref  routerRef
	mu   sync.Mutex
	list map[string]string // what a process answers to GET /workers, by its address
	asks []string
	// woken is how often each ModelDeployment was.
	woken map[types.NamespacedName]int
}

func workersOf(urls ...string) string {
	var all []string
	for _, at := range urls {
		all = append(all, fmt.Sprintf(`{"url":%q,"worker_type":"regular","connection_mode":"http"}`, at))
	}
	return fmt.Sprintf(`{"workers":[%s],"total":%d}`, strings.Join(all, ","), len(urls))
}

// inFrontOf plays in a bubble, with servers outside of it: who waits for a network does
// not let its time pass.
func inFrontOf(t *testing.T, host string, processes int, test func(t *testing.T, r *routed)) {
	t.Helper()
	r := &routed{api: &listed{}, list: map[string]string{}, woken: map[types.NamespacedName]int{}}
	port := "0"
	for n := range processes {
		at := fmt.Sprintf("%s.%d", host, n+1)
		l, err := net.Listen("tcp", net.JoinHostPort(at, port))
		require.NoError(t, err)
		_, port, _ = net.SplitHostPort(l.Addr().String())
		server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(r.serve)}}
		server.Start()
		t.Cleanup(server.Close)
		r.list[at] = workersOf("http://10.0.0.1:8000", "http://10.0.0.2:8000")
		r.api.pods = append(r.api.pods, processPod(fmt.Sprintf("router-%d", n), at, int32(netip.MustParseAddrPort(l.Addr().String()).Port())))
	}
	md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: chat.Namespace, Name: chat.Name}}
	md.Spec.Router = &v1alpha1.Router{
		Name: v1alpha1.VLLMRouter, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "router"}},
		Port: r.api.pods[0].Spec.Containers[0].Ports[0].ContainerPort,
	}
	r.ref = refOf(md)
	synctest.Test(t, func(t *testing.T) {
		r.routers = New(nil, r.api, nil, clock.RealClock{}, Options{Registry: prometheus.NewRegistry()}, func(key types.NamespacedName) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.woken[key]++
		}).routers
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- r.Start(ctx) }()
		synctest.Wait()
		test(t, r)
		cancel()
		require.NoError(t, <-ended)
	})
}

func processPod(name, at string, port int32) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: chat.Namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": "router"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "router", Image: "registry.example/vllm-router:v0.1.15", Ports: []corev1.ContainerPort{{ContainerPort: port}},
			Command: []string{"vllm-router", "--service-discovery", "--selector", "app=qwen", names.LabelServing + "=" + names.Serving},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: at, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "router", ContainerID: "containerd://" + name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
}

func (r *routed) serve(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, _, _ := net.SplitHostPort(request.Host)
	r.asks = append(r.asks, request.Method+" "+at+" "+request.RequestURI)
	switch answer := r.list[at]; {
	case answer == "":
		w.WriteHeader(http.StatusInternalServerError)
	case request.Method == http.MethodGet && request.URL.Path == "/workers":
		_, _ = io.WriteString(w, answer)
	}
}

// asked is what was asked and told since the last time.
func (r *routed) asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asks := r.asks
	r.asks = nil
	return asks
}

func (r *routed) says(process, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list[process] = answer
}

func (r *routed) about(key types.NamespacedName, uids ...types.UID) {
	for n, uid := range uids {
		r.ask(r.ref, wanted{key, router.Backend{
			Namespace: key.Namespace, Name: string(uid), UID: uid, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)})}, Port: 8000,
			Labels: map[string]string{"app": "qwen", names.LabelServing: names.Withdrawn},
		}})
	}
	synctest.Wait()
}

func pass(d time.Duration) {
	clock.RealClock{}.Sleep(d)
	synctest.Wait()
}

func TestAProcessIsAskedOnceForAllReplicasOfAllDeployments(t *testing.T) {
	other := types.NamespacedName{Namespace: chat.Namespace, Name: "other"}
	inFrontOf(t, "127.11.1", 2, func(t *testing.T, r *routed) {
		r.about(chat, "a")
		assert.ElementsMatch(t, []string{"GET 127.11.1.1 /workers", "GET 127.11.1.2 /workers"}, r.asked())
		r.about(chat, "a", "b")
		r.about(other, "c")
		assert.Empty(t, r.asked(), "the interval of reads is not over")
		pass(lookInterval)
		assert.Len(t, r.asked(), 2)
		pass(time.Minute)
		assert.Empty(t, r.asked(), "nobody wants to know any more")
		assert.Equal(t, map[types.NamespacedName]int{chat: 2, other: 1}, r.woken)

		routed := r.of(chat, r.ref)
		require.Len(t, routed, 2)
		require.Len(t, routed["a"].Sightings["router-0"], 2)
		require.Len(t, routed["b"].Sightings["router-1"], 1)
		assert.Equal(t, withdraw.Selectable, routed["b"].Sightings["router-1"][0].Membership)
		assert.Equal(t, withdraw.No, routed["a"].Fleet.Bypassed)
		require.Len(t, routed["a"].Fleet.Processes, 2)
		assert.True(t, routed["a"].Fleet.Processes[0].Told)
		require.Len(t, r.of(other, r.ref), 1)

		r.keep(chat, r.ref, map[types.UID]bool{"b": true})
		assert.NotContains(t, r.of(chat, r.ref), types.UID("a"))
		r.keep(chat, routerRef{}, nil)
		r.keep(other, routerRef{}, nil)
		assert.Empty(t, r.all)
	})
}

func TestAListThatFailsTakesNothingBack(t *testing.T) {
	inFrontOf(t, "127.11.2", 1, func(t *testing.T, r *routed) {
		r.about(chat, "a")
		at := r.of(chat, r.ref)["a"].Fleet.ListedAt
		r.api.fail = fmt.Errorf("the API server is away")
		r.asked()
		pass(lookInterval)
		r.about(chat, "a")
		seen := r.of(chat, r.ref)["a"]
		assert.Empty(t, r.asked(), "who the processes are is not known")
		assert.Equal(t, at, seen.Fleet.ListedAt)
		assert.Contains(t, seen.Fleet.By, "the API server is away")
		v, _ := seen.Prove(at, at.Add(11*time.Second))
		assert.Equal(t, withdraw.Verdict{Missing: names.HeldRouterUnread, Message: seen.Fleet.By}, v, "but what is known becomes old")
	})
}

func TestWhatAProcessIsToldIsToldOnceAtATimeAndToOneRun(t *testing.T) {
	inFrontOf(t, "127.11.3", 1, func(t *testing.T, r *routed) {
		r.about(chat, "a")
		r.asked()
		run := r.of(chat, r.ref)["a"].Fleet.Processes[0]
		pod := retire.PodRef{Name: "a", UID: "a"}
		r.tell(t.Context(), r.ref, run, pod, true)
		r.tell(t.Context(), r.ref, run, pod, true)
		synctest.Wait()
		assert.Equal(t, []string{"GET 127.11.3.1 /workers", "DELETE 127.11.3.1 /workers/http:%2F%2F10.0.0.1:8000"}, r.asked())
		old := run
		old.Run = "containerd://before"
		r.tell(t.Context(), r.ref, old, pod, true)
		r.tell(t.Context(), r.ref, run, retire.PodRef{Name: "b", UID: "b"}, true)
		synctest.Wait()
		assert.Empty(t, r.asked(), "another run, and a member that nobody asks about")

		r.says("127.11.3.1", workersOf())
		r.tell(t.Context(), r.ref, run, pod, false)
		synctest.Wait()
		assert.Equal(t, []string{"GET 127.11.3.1 /workers", "POST 127.11.3.1 /workers"}, r.asked())

		r.says("127.11.3.1", "")
		r.tell(t.Context(), r.ref, run, pod, true)
		pass(lookInterval)
		r.about(chat, "a")
		seen := r.of(chat, r.ref)["a"]
		assert.Contains(t, seen.Fleet.Processes[0].Refused, "500")
	})
}

func TestASilentProcessTakesNoTimeFromOthers(t *testing.T) {
	inFrontOf(t, "127.11.8", 1, func(t *testing.T, r *routed) {
		r.about(chat, "a")
		require.Len(t, r.asked(), 1)
		r.all[r.ref].silent["router-0"] = true
		for range cap(r.patient) { // others that do not answer
			r.patient <- struct{}{}
		}
		r.about(chat, "a")
		pass(lookInterval)
		assert.Empty(t, r.asked(), "it waits for its turn among them")
		r.patient.done()
		synctest.Wait()
		assert.Len(t, r.asked(), 1)
		assert.False(t, r.all[r.ref].silent["router-0"])
		r.about(chat, "a")
		pass(lookInterval)
		assert.Len(t, r.asked(), 1, "it answers, and waits for nobody")
	})
}

func TestProcessesOfARouter(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*corev1.Pod)
		is     bool
		run    string
	}{
		"it runs":                             {func(*corev1.Pod) {}, true, "containerd://router-0"},
		"it is not Ready and terminates":      {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true, "containerd://router-0"},
		"it has succeeded":                    {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false, ""},
		"its container was never started":     {func(p *corev1.Pod) { p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "router"} }, false, ""},
		"it has exited on its way out":        {exited(true), false, ""},
		"it has exited and will be restarted": {exited(false), false, ""},
		"it crashes in a loop": {func(p *corev1.Pod) {
			s := &p.Status.ContainerStatuses[0]
			s.State, s.LastTerminationState = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}, false, ""},
		"it was restarted": {func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{}
		}, true, "containerd://router-0"},
		"nobody has said anything of it":       {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, true, ""},
		"it is not scheduled":                  {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }, false, ""},
		"a sidecar, and the port is declared":  {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"}) }, true, "containerd://router-0"},
		"a sidecar, and no container has it":   {sidecar, true, ""},
		"the process in it was started again":  {func(p *corev1.Pod) { p.UID = "known" }, true, "containerd://router-0@17"},
		"another container than was known has": {func(p *corev1.Pod) { p.UID = "other" }, true, "containerd://router-0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := processPod("router-0", "10.1.1.1", 8000)
			c.change(&pod)
			p, is := processOf(&pod, routerRef{port: 8000, secure: true, metricsPort: 29000}, map[types.UID]string{
				"known": "containerd://router-0@17", "other": "containerd://gone@17",
			})
			assert.Equal(t, c.is, is)
			if !is {
				return
			}
			assert.Equal(t, c.run, p.Run)
			if c.run != "" {
				assert.Equal(t, "https://10.1.1.1:8000", p.URL)
				assert.Equal(t, "http://10.1.1.1:29000", p.Metrics)
			}
		})
	}
}

func exited(leaving bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		if leaving {
			p.DeletionTimestamp = &metav1.Time{}
		}
	}
}

func sidecar(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = nil
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"})
}

func TestATokenGoesToOnePortOnly(t *testing.T) {
	var got []string
	sent := roundTrips(func(request *http.Request) { got = append(got, request.Host+" "+request.Header.Get("Authorization")) })
	client := &http.Client{Transport: bearer{sent, "secret", "8000"}}
	for _, at := range []string{"http://router:8000/workers", "http://router:29000/metrics"} {
		response, err := client.Get(at)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	assert.Equal(t, []string{"router:8000 Bearer secret", "router:29000 "}, got)

	client.Transport = bearer{sent, "not a\ntoken", "8000"}
	_, err := client.Get("http://router:8000/workers")
	require.ErrorContains(t, err, "is no bearer token")
	require.NotContains(t, err.Error(), "not a")
}

type roundTrips func(*http.Request)

func (r roundTrips) RoundTrip(request *http.Request) (*http.Response, error) {
	r(request)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, nil
}
