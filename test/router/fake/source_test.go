package fake

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// watched is an API server with one Pod, whose only watch says what the test sends.
type watched struct {
	pod    *corev1.Pod
	events chan metav1.WatchEvent
}

func (s *watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/api/v1/namespaces/ns/pods" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	query := r.URL.Query()
	if query.Get("watch") != "true" {
		_ = json.NewEncoder(w).Encode(corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*s.pod},
		})
		return
	}
	send := func(e metav1.WatchEvent) {
		_ = json.NewEncoder(w).Encode(e)
		_ = http.NewResponseController(w).Flush()
	}
	if query.Get("sendInitialEvents") == "true" {
		send(watchEvent("ADDED", s.pod))
		send(watchEvent("BOOKMARK", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}))
	}
	for {
		select {
		case e := <-s.events:
			send(e)
		case <-r.Context().Done():
			return
		}
	}
}

func watchEvent(what string, pod *corev1.Pod) (e metav1.WatchEvent) {
	pod = pod.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	e.Type = what
	e.Object.Raw, _ = json.Marshal(pod)
	return e
}

func TestWhatIsToldOfTheAPIServersPods(t *testing.T) {
	api := &watched{pod: a, events: make(chan metav1.WatchEvent)}
	server := httptest.NewServer(api)
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	source := &APIServer{Client: client, Namespace: "ns"}
	told := make(chan Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		source.Watch(ctx, func(e Event) { told <- e })
	}()
	first := <-told
	assert.Equal(t, Listed, first.Kind)
	require.Len(t, first.Pods, 1)
	assert.Equal(t, "a", first.Pods[0].Name)
	c := pod("c", "10.0.0.3")
	for _, event := range []struct {
		sent metav1.WatchEvent
		told Event
	}{
		{watchEvent("ADDED", c), Event{Kind: Applied, Pod: c}},
		{watchEvent("MODIFIED", with(a, unlabelled)), Event{Kind: Applied, Pod: with(a, unlabelled)}},
		{watchEvent("DELETED", c), Event{Kind: Deleted, Pod: c}},
	} {
		api.events <- event.sent
		e := <-told
		assert.Equal(t, event.told.Kind, e.Kind)
		assert.Equal(t, event.told.Pod.Name, e.Pod.Name)
		assert.Equal(t, event.told.Pod.Labels["app"], e.Pod.Labels["app"])
	}
	list, err := source.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, list, 1)
	cancel()
	<-ended
}
