package fake

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Source is where a router learns of Pods.
type Source interface {
	// Watch tells of all Pods, as one Listed, and then of each change, until ctx is done.
	Watch(ctx context.Context, see func(Event))
	// List is all Pods as they are.
	List(ctx context.Context) ([]*corev1.Pod, error)
}

// APIServer is the Source of a router in a cluster: the Pods of a namespace, or of all.
type APIServer struct {
	Client    kubernetes.Interface
	Namespace string
}

// Watch lists and watches. What a watch that broke has missed shows only in the list that
// the next begins with.
func (a *APIServer) Watch(ctx context.Context, see func(Event)) {
	pods := a.Client.CoreV1().Pods(a.Namespace)
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) },
	}, a.Client)
	cache.NewReflectorWithOptions(lw, &corev1.Pod{}, events(see), cache.ReflectorOptions{}).RunWithContext(ctx)
}

// List asks for all Pods.
func (a *APIServer) List(ctx context.Context) ([]*corev1.Pod, error) {
	list, err := a.Client.CoreV1().Pods(a.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
}

// events is a reflector's store that keeps nothing, so that nothing is told of but what
// the API server said.
type events func(Event)

func (e events) Add(o any) error    { return e.one(Applied, o) }
func (e events) Update(o any) error { return e.one(Applied, o) }
func (e events) Delete(o any) error { return e.one(Deleted, o) }
func (e events) Resync() error      { return nil }

func (e events) one(kind EventKind, o any) error {
	if pod, ok := o.(*corev1.Pod); ok {
		e(Event{Kind: kind, Pod: pod})
	}
	return nil
}

func (e events) Replace(all []any, _ string) error {
	pods := make([]*corev1.Pod, 0, len(all))
	for _, o := range all {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	e(Event{Kind: Listed, Pods: pods})
	return nil
}

// Script is the Source of a router in a test, which says itself what happens to Pods. A
// router has seen it when a method returns.
type Script struct {
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	watchers map[int]func(Event)
	next     int
}

// NewScript has these Pods to begin with.
func NewScript(pods ...*corev1.Pod) *Script {
	s := &Script{pods: map[string]*corev1.Pod{}, watchers: map[int]func(Event){}}
	for _, pod := range pods {
		s.pods[pod.Namespace+"/"+pod.Name] = pod
	}
	return s
}

// Apply makes a Pod, or what it is now.
func (s *Script) Apply(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[pod.Namespace+"/"+pod.Name] = pod
	s.tell(Event{Kind: Applied, Pod: pod})
}

// Delete takes a Pod away.
func (s *Script) Delete(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, pod.Namespace+"/"+pod.Name)
	s.tell(Event{Kind: Deleted, Pod: pod})
}

func (s *Script) tell(e Event) {
	for _, see := range s.watchers {
		see(e)
	}
}

// Watch tells of what Apply and Delete do.
func (s *Script) Watch(ctx context.Context, see func(Event)) {
	s.mu.Lock()
	n := s.next
	s.next++
	see(Event{Kind: Listed, Pods: s.sorted()})
	s.watchers[n] = see
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watchers, n)
	s.mu.Unlock()
}

// List is the Pods there are.
func (s *Script) List(context.Context) ([]*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted(), nil
}

func (s *Script) sorted() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		pods = append(pods, s.pods[key])
	}
	return pods
}

// TB is the part of testing.TB that Start uses, named here so that the binary does not
// link the testing package.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start runs a router on free ports of this machine until the test ends, whatever ports o
// names. It has seen the Pods of script when Start returns. The fault Restart puts a new
// process in the place of the one there is. With a clock, nothing happens by itself.
func Start(t TB, o Options, script *Script, c clock.WithTicker) *Router {
	t.Helper()
	o.Listen, o.Metrics = "127.0.0.1:0", "127.0.0.1:0"
	if o.Family == LLMD {
		o.Admin = "127.0.0.1:0"
	}
	r, err := New(o, script, io.Discard, nil)
	if err != nil {
		t.Fatalf("making a router: %v", err)
	}
	if c != nil {
		r.clock = c
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.restart = func() { <-r.begin(ctx) }
	if err := r.listen(); err != nil {
		t.Fatalf("opening a router's ports: %v", err)
	}
	listed := r.begin(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.serve(ctx, ctx) }()
	<-listed
	t.Cleanup(func() {
		cancel()
		<-ended //nolint:errcheck // it serves no more, for whatever reason
	})
	return r
}
