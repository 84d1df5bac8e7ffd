package fake

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// soon bounds what happens at once; it passes only where a test fails.
const soon = 10 * time.Second

// engine is a small real backend at an address of its own, and its Pod.
type engine struct {
	pod  *corev1.Pod
	host string

	mu       sync.Mutex
	requests []recorded
	status   int           // answers with it instead
	stays    chan struct{} // a stream stays open until it is closed
	sick     bool          // its health check fails
	checks   int           // of its health
	resets   int           // connections it closes instead of an answer
	server   *httptest.Server
}

// breakOff cuts every stream that is open.
func (e *engine) breakOff() { e.server.CloseClientConnections() }

type recorded struct {
	header http.Header
	body   map[string]any
}

var nextHost atomic.Int32

// engines starts backends on one port, as a router expects its workers.
func engines(t *testing.T, n int) []*engine {
	t.Helper()
	var all []*engine
	port := "0"
	for len(all) < n {
		i := nextHost.Add(1)
		host := fmt.Sprintf("127.7.%d.%d", i/250, 1+i%250)
		e := listenAt(t, host, port)
		e.pod = pod(fmt.Sprintf("pod-%d", len(all)), host)
		_, port, _ = net.SplitHostPort(e.host)
		all = append(all, e)
	}
	return all
}

func listenAt(t *testing.T, host, port string) *engine {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	require.NoError(t, err)
	e := &engine{host: l.Addr().String()}
	e.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(e.serve)}}
	e.server.Start()
	t.Cleanup(func() {
		e.server.CloseClientConnections()
		e.release()
		e.server.Close()
	})
	return e
}

func portOf(all []*engine) int {
	_, text, _ := net.SplitHostPort(all[0].host)
	n, _ := strconv.Atoi(text)
	return n
}

// pod is a Ready one that the selector app=engine takes.
func pod(name, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), Labels: map[string]string{"app": "engine"}, Annotations: map[string]string{},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// with is a Pod as it is after something happened to it.
func with(pod *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func unlabelled(p *corev1.Pod) { delete(p.Labels, "app") }

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[key] = value }
}

func (e *engine) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	status, stays, sick, resets := e.status, e.stays, e.sick, e.resets
	if r.URL.Path == "/health" {
		e.checks++
	}
	if r.Method == http.MethodPost && resets > 0 {
		e.resets--
	}
	e.mu.Unlock()
	switch {
	case r.URL.Path == "/health" && sick:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case r.URL.Path == "/metrics":
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 3.0\nvllm:num_requests_waiting{engine=\"0\"} 2.0\nvllm:num_requests_waiting_by_reason 7\n")
		return
	case r.Method == http.MethodGet:
		_, _ = fmt.Fprintf(w, `{"object":"list","served_by":%q}`, e.pod.Name)
		return
	case resets > 0:
		panic(http.ErrAbortHandler)
	}
	in := recorded{header: r.Header.Clone()}
	_ = json.NewDecoder(r.Body).Decode(&in.body)
	e.mu.Lock()
	e.requests = append(e.requests, in)
	e.mu.Unlock()
	w.Header().Set("X-Served-By", e.pod.Name)
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: first\n\n")
	_ = http.NewResponseController(w).Flush()
	if stays != nil && in.body["stream"] == true {
		select {
		case <-stays:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

func (e *engine) set(change func(*engine)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

// stay makes streams stay open until release.
func (e *engine) stay() { e.set(func(e *engine) { e.stays = make(chan struct{}) }) }

func (e *engine) release() {
	e.set(func(e *engine) {
		if e.stays != nil {
			close(e.stays)
			e.stays = nil
		}
	})
}

func (e *engine) got() []recorded {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]recorded{}, e.requests...)
}
