package kube

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/remotecommand"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// waitTimeout bounds every wait that the caller's context does not bound tighter.
const waitTimeout = 2 * time.Minute

// poll calls ready until it returns nil.
func poll(ctx context.Context, what string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, last: %w", what, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Ready tells whether a Pod is ready, for WaitPod.
func Ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Finished tells whether all containers of a Pod have ended for good, for WaitPod.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// WaitPod waits, for two minutes at most, until the Pod exists and fulfils the condition, and returns it as it was then.
// Its error has the Pod's last status.
func (c *Cluster) WaitPod(ctx context.Context, pod client.ObjectKey, condition func(*corev1.Pod) bool) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	last := &corev1.Pod{}
	_, err := toolswatch.UntilWithSync(ctx, c.podWatch(pod), &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		seen, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Deleted {
			return false, nil
		}
		last = seen
		return condition(seen), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for Pod %s: %w; its status was %s", pod, err, last.Status.String())
	}
	return last, nil
}

// Ending is how a Pod went away.
type Ending struct {
	// Pod is the last that was seen of it. Its container statuses tell exit codes and, in whole seconds, end times.
	Pod *corev1.Pod
	// Leaving is the Pod as its delete left it: in the end its grace period is 0.
	Leaving *corev1.Pod
	// Gone is when the Pod object was removed, by this machine's clock.
	Gone time.Time
}

// WatchEnding starts to watch a Pod that exists. The function it returns waits until the Pod is gone or ctx ends.
func (c *Cluster) WatchEnding(ctx context.Context, pod client.ObjectKey) (wait func() (Ending, error), err error) {
	seen := &corev1.Pod{}
	if err := c.Client.Get(ctx, pod, seen); err != nil {
		return nil, fmt.Errorf("watching Pod %s: %w", pod, err)
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, seen.ResourceVersion, c.podWatch(pod))
	if err != nil {
		return nil, fmt.Errorf("watching Pod %s: %w", pod, err)
	}
	return func() (Ending, error) {
		defer watcher.Stop()
		var leaving *corev1.Pod
		for event := range watcher.ResultChan() {
			if latest, ok := event.Object.(*corev1.Pod); ok {
				seen = latest
			}
			if leaving == nil && seen.DeletionTimestamp != nil {
				leaving = seen
			}
			if event.Type == watch.Deleted {
				return Ending{Pod: seen, Leaving: leaving, Gone: time.Now()}, nil
			}
		}
		return Ending{Pod: seen}, fmt.Errorf("waiting for Pod %s to go: %w; its status was %s", pod, context.Cause(ctx), seen.Status.String())
	}, nil
}

// Delete deletes a Pod and waits until it is gone or ctx ends. accepted is when the API server answered the delete.
func (c *Cluster) Delete(ctx context.Context, pod client.ObjectKey, options ...client.DeleteOption) (accepted time.Time, ending Ending, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait, err := c.WatchEnding(ctx, pod)
	if err != nil {
		return time.Time{}, Ending{}, err
	}
	object := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	if err := c.Client.Delete(ctx, object, options...); err != nil {
		return time.Time{}, Ending{}, fmt.Errorf("deleting Pod %s: %w", pod, err)
	}
	accepted = time.Now()
	ending, err = wait()
	return accepted, ending, err
}

// Exec runs a command in a container and returns its standard output. Its error has the standard error.
func (c *Cluster) Exec(ctx context.Context, pod client.ObjectKey, container string, argv ...string) (string, error) {
	request := c.Clientset.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: container, Command: argv, Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config, "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return stdout.String(), fmt.Errorf("running %q in Pod %s: %w: %s", argv, pod, err, stderr.String())
	}
	return stdout.String(), nil
}

// podWatch lists and watches the one Pod.
func (c *Cluster) podWatch(pod client.ObjectKey) *cache.ListWatch {
	return cache.NewListWatchFromClient(c.Clientset.CoreV1().RESTClient(), "pods", pod.Namespace,
		fields.OneTermEqualSelector("metadata.name", pod.Name))
}
