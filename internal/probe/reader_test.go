package probe

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// live answers every Get with what a function says of the Pod.
type live func(ctx context.Context, pod *corev1.Pod) error

func (f live) Get(ctx context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	return f(ctx, o.(*corev1.Pod))
}

func (live) List(context.Context, client.ObjectList, ...client.ListOption) error { panic("unused") }

// inTurn answers the first Get with the first Pod, and so on; the last one answers
// all that follow.
func inTurn(pods ...*corev1.Pod) live {
	n := 0
	return func(_ context.Context, pod *corev1.Pod) error {
		*pod = *pods[min(n, len(pods)-1)]
		n++
		return nil
	}
}

// member is a Pod in the run that target means, changed.
func member(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "qwen-server-3-0", UID: "uid-1",
			Annotations: map[string]string{names.AnnotationStatus: `{"outcome":"injected","metricsURL":"` + somewhere + `"}`},
		},
		Status: corev1.PodStatus{
			PodIPs: []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "other", ContainerID: "containerd://other"},
				{Name: "main", ContainerID: "containerd://run-1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// recorded is a Pod whose record has another endpoint.
func recorded(endpoint string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{names.AnnotationStatus: `{"outcome":"injected","metricsURL":"` + endpoint + `"}`}
	}
}

func target(t testing.TB, endpoint string) Target {
	t.Helper()
	e, ok := engine.Lookup(engine.VLLM)
	require.True(t, ok)
	return Target{
		Namespace: "team-a", Name: "qwen-server-3-0", UID: "uid-1", Container: "main", ContainerID: "containerd://run-1",
		Engine: e, Endpoint: endpoint,
	}
}

const somewhere = "http://127.0.0.1:8000/metrics"

// reader reads by way of this server, with a limit that a busy machine keeps.
func reader(t testing.TB, config *rest.Config, l client.Reader) *Reader {
	t.Helper()
	r, err := New(config, l, clock.RealClock{})
	require.NoError(t, err)
	r.limit = 20 * time.Second
	return r
}

// read reads once by way of a server whose Pod is the one that is meant.
func read(t testing.TB, server *httptest.Server) Result {
	t.Helper()
	return reader(t, at(server), inTurn(member())).Read(t.Context(), target(t, somewhere))
}
