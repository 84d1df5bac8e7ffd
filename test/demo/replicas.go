package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/engine/standin"
)

// labelDemo is on the Pods of engines: "engine" on those that a node drain takes
// away, "model-deployment" and "retirement" on others.
const labelDemo = "demo"

// replicas watches the engine Pods of a namespace and notes when each is
// deleted, gets SIGTERM and ends.
type replicas struct {
	cluster   *kube.Cluster
	namespace string

	mu sync.Mutex
	// pods are all there ever were. A replacement may have its predecessor's name.
	pods map[types.UID]*watched
}

type watched struct {
	pod     string
	name    string // of its engine: vllm, sglang, idle
	ready   bool
	deleted time.Time
	gone    time.Time
	log     *kube.Log
}

func watchReplicas(ctx context.Context, c *kube.Cluster, namespace string) *replicas {
	r := &replicas{cluster: c, namespace: namespace, pods: map[types.UID]*watched{}}
	pods := cache.NewFilteredListWatchFromClient(c.Clientset.CoreV1().RESTClient(), "pods", namespace,
		func(o *metav1.ListOptions) { o.LabelSelector = labelDemo })
	_, _, events, done := toolswatch.NewIndexerInformerWatcher(pods, &corev1.Pod{})
	go func() {
		defer func() { events.Stop(); <-done }()
		for {
			select {
			case event := <-events.ResultChan():
				if pod, ok := event.Object.(*corev1.Pod); ok {
					r.see(ctx, pod, event.Type == watch.Deleted)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return r
}

func (r *replicas) see(ctx context.Context, pod *corev1.Pod, gone bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.pods[pod.UID]
	if w == nil {
		w = &watched{pod: pod.Name, name: pod.Labels["name"]}
		r.pods[pod.UID] = w
	}
	w.ready = kube.Ready(pod) && pod.DeletionTimestamp == nil
	if w.log == nil && w.ready {
		// A log that cannot be followed leaves its marks out of the picture.
		w.log, _ = r.cluster.Follow(ctx, client.ObjectKeyFromObject(pod), pod.Spec.Containers[0].Name)
	}
	if w.deleted.IsZero() && pod.DeletionTimestamp != nil {
		w.deleted = now
	}
	if gone {
		w.gone = now
	}
}

// settled waits until every engine of the mode has one ready replica and nothing
// is leaving.
func (r *replicas) settled(ctx context.Context) error {
	return r.wait(ctx, "the engines", func() bool {
		leaving := false
		for _, w := range r.pods {
			leaving = leaving || !w.deleted.IsZero() && w.gone.IsZero()
		}
		return !leaving && r.ready("vllm", "") && r.ready("sglang", "") && r.ready("idle", "")
	})
}

// number waits until there are so many engines, all of them ready.
func (r *replicas) number(ctx context.Context, want int) error {
	return r.wait(ctx, fmt.Sprintf("%d engines", want), func() bool {
		ready, others := 0, 0
		for _, w := range r.pods {
			switch {
			case w.ready:
				ready++
			case w.gone.IsZero():
				others++
			}
		}
		return ready == want && others == 0
	})
}

// replaced waits until the engine has a ready replica beside the old one, whose
// delete may not have been seen yet.
func (r *replicas) replaced(ctx context.Context, engine, old string) error {
	return r.wait(ctx, "the replacement of "+old, func() bool { return r.ready(engine, old) })
}

// ready tells whether the engine has a replica, another one than this, that is
// ready and not leaving.
func (r *replicas) ready(engine, but string) bool {
	for _, w := range r.pods {
		if w.name == engine && w.pod != but && w.ready && w.deleted.IsZero() {
			return true
		}
	}
	return false
}

func (r *replicas) wait(ctx context.Context, what string, done func() bool) error {
	for {
		r.mu.Lock()
		ok := done()
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s in %s: %w", what, r.namespace, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// alive is the Pod of this engine that is not being deleted.
func (r *replicas) alive(engine string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.pods {
		if w.name == engine && w.deleted.IsZero() {
			return w.pod
		}
	}
	return ""
}

// left returns the replicas that were deleted in a window, oldest first, and how
// long the idle one among them took.
func (r *replicas) left(in window) (served []Replica, idle time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.pods {
		if w.deleted.Before(in.began) || w.deleted.After(in.end) || w.log == nil {
			continue
		}
		replica := Replica{Pod: w.pod, Engine: w.name, Deleted: w.deleted, Exited: w.gone}
		for _, line := range w.log.Lines() {
			var e standin.Event
			if json.Unmarshal([]byte(line.Text), &e) != nil {
				continue // a line of the drain hook
			}
			switch e.Event {
			case standin.Terminated:
				replica.SIGTERM = e.Time
			case standin.Exiting:
				replica.Exited = e.Time
			}
		}
		if w.name == "idle" {
			idle = max(0, replica.Exited.Sub(replica.Deleted)) // the watch is not always the first to see a delete
			continue
		}
		served = append(served, replica)
	}
	slices.SortFunc(served, func(a, b Replica) int { return a.Deleted.Compare(b.Deleted) })
	return served, idle
}
