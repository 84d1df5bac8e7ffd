package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/engine/standin"
	"github.com/lastcall-dev/lastcall/test/load"
)

const (
	model      = "Qwen/Qwen2.5-7B-Instruct"
	vllmPort   = 8000
	sglangPort = 30000
	// controlPort is where the stand-in's faults are switched.
	controlPort = 9901
	// rate is the tokens per second of every request: length / rate is its time.
	rate = 20
)

// engine is a running engine Pod and what is seen of it.
type engine struct {
	cluster *kube.Cluster
	pod     client.ObjectKey
	port    int
	log     *kube.Log
}

// vllm and sglang are Pods as users write them.
func vllm(graceSeconds int64, flags ...string) *corev1.Pod {
	command := append([]string{"vllm", "serve", model, "--port", fmt.Sprint(vllmPort)}, flags...)
	return enginePod(graceSeconds, vllmPort, command)
}

func sglang(graceSeconds int64, flags ...string) *corev1.Pod {
	command := append([]string{
		"python3", "-m", "sglang.launch_server", "--model-path", model,
		"--host", "0.0.0.0", "--port", fmt.Sprint(sglangPort), "--enable-metrics",
	}, flags...)
	return enginePod(graceSeconds, sglangPort, command)
}

func enginePod(graceSeconds int64, port int32, command []string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "engine", Labels: map[string]string{"app": "engine"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &graceSeconds,
			Containers: []corev1.Container{{
				Name:    "engine",
				Image:   bundle.Full.Ref,
				Command: command,
				Ports:   []corev1.ContainerPort{{Name: "http", ContainerPort: port}},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(port)}},
				},
			}},
		},
	}
}

// start creates the Pod and waits until it is ready.
func start(t *testing.T, c *kube.Cluster, namespace string, pod *corev1.Pod) *engine {
	t.Helper()
	pod.Namespace = namespace
	require.NoError(t, c.Client.Create(t.Context(), pod))
	return adopt(t, c, client.ObjectKeyFromObject(pod))
}

// adopt waits until a Pod that exists has been ready for a while, and follows its
// engine's log. A Pod that was ready a moment ago is still being synced by its
// kubelet, which starts the hook of a delete only after that: up to 3 s late.
func adopt(t *testing.T, c *kube.Cluster, key client.ObjectKey) *engine {
	t.Helper()
	pod, err := c.WaitPod(t.Context(), key, kube.Ready)
	require.NoError(t, err)
	select {
	case <-time.After(3 * time.Second):
	case <-t.Context().Done():
	}
	container := pod.Spec.Containers[0]
	log, err := c.Follow(t.Context(), key, container.Name)
	require.NoError(t, err)
	return &engine{cluster: c, pod: key, port: int(container.Ports[0].ContainerPort), log: log}
}

// fault switches faults on the engine, as {"metrics": "hang"}.
func (e *engine) fault(t *testing.T, faults string) {
	t.Helper()
	require.NoError(t, e.control("faults").SetHeader("Content-Type", "application/json").Body([]byte(faults)).Do(t.Context()).Error())
}

// crash ends the engine's process, whose kubelet starts another.
func (e *engine) crash(t *testing.T) {
	t.Helper()
	_ = e.control("crash").Do(t.Context()).Error() // its answer is cut, or none
}

func (e *engine) control(path string) *rest.Request {
	return e.cluster.Clientset.CoreV1().RESTClient().Post().Namespace(e.pod.Namespace).Resource("pods").
		Name(fmt.Sprintf("%s:%d", e.pod.Name, controlPort)).SubResource("proxy").Suffix(path)
}

// generate starts a request that takes this long, straight to the engine, and
// returns a function that waits for its record.
func (e *engine) generate(t *testing.T, length time.Duration) func() load.Request {
	t.Helper()
	httpClient, err := rest.HTTPClientFor(e.cluster.Config)
	require.NoError(t, err)
	options := load.Options{
		Model: model, TokensPerSecond: rate,
		URL: fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s:%d/proxy", strings.TrimSuffix(e.cluster.Config.Host, "/"), e.pod.Namespace, e.pod.Name, e.port),
	}
	record := make(chan load.Request, 1)
	started := len(e.events(standin.RequestStarted))
	go func() {
		record <- load.Send(context.WithoutCancel(t.Context()), httpClient, options, int(length.Seconds()*rate))
	}()
	require.Eventually(t, func() bool { return len(e.events(standin.RequestStarted)) > started },
		10*time.Second, 20*time.Millisecond, "the request reaches the engine")
	return func() load.Request {
		select {
		case r := <-record:
			return r
		case <-time.After(length + time.Minute):
			t.Fatal("the request neither completed nor broke off")
			return load.Request{}
		}
	}
}

// events returns the engine's own log so far.
func (e *engine) events(name string) []standin.Event {
	var found []standin.Event
	for _, line := range e.log.Lines() {
		var event standin.Event
		if json.Unmarshal([]byte(line.Text), &event) == nil && event.Event == name {
			found = append(found, event)
		}
	}
	return found
}

// departure is how an engine's Pod went away. Times are from the delete.
type departure struct {
	deleted time.Time
	// hookStarted is when the drain hook wrote its first line; negative when it
	// wrote none. A kubelet with much to do starts hooks late.
	hookStarted time.Duration
	// sigterm is when the engine got SIGTERM; negative when it never said so.
	sigterm time.Duration
	// gone is when the Pod was removed from the API server.
	gone time.Duration
	// exitCode is the engine's; 137 is a kill.
	exitCode int32
	// hook is what the drain hook wrote to the container's log.
	hook []string
	// failedHook is whether the kubelet reported FailedPreStopHook.
	failedHook bool
}

// leave deletes the Pod and waits until it is gone.
func (e *engine) leave(t *testing.T, options ...client.DeleteOption) departure {
	t.Helper()
	deleted, ending, err := e.cluster.Delete(t.Context(), e.pod, options...)
	require.NoError(t, err)
	return e.departed(t, deleted, ending)
}

func (e *engine) departed(t *testing.T, deleted time.Time, ending kube.Ending) departure {
	t.Helper()
	d := departure{deleted: deleted, hookStarted: -1, sigterm: -1, gone: ending.Gone.Sub(deleted), exitCode: exitCode(ending.Pod, "engine")}
	if _, err := e.log.All(t.Context()); err != nil {
		t.Logf("the engine's log ended early: %v", err)
	}
	if terminated := e.events(standin.Terminated); len(terminated) > 0 {
		d.sigterm = terminated[0].Time.Sub(deleted)
	}
	for _, line := range e.log.Lines() {
		if strings.HasPrefix(line.Text, "lastcall: ") {
			d.hook = append(d.hook, line.Text)
			if d.hookStarted < 0 {
				d.hookStarted = line.Time.Sub(deleted)
			}
		}
	}
	events, err := e.cluster.Events(t.Context(), e.pod)
	require.NoError(t, err)
	for _, event := range events {
		d.failedHook = d.failedHook || event.Reason == "FailedPreStopHook"
	}
	t.Logf("hook started %.2f s after the delete, SIGTERM after %.2f s, gone after %.2f s, exit code %d, failed hook %t; the hook wrote:\n  %s",
		d.hookStarted.Seconds(), d.sigterm.Seconds(), d.gone.Seconds(), d.exitCode, d.failedHook, strings.Join(d.hook, "\n  "))
	return d
}

// exitCode is how the container ended; -1 where its status does not say.
func exitCode(pod *corev1.Pod, container string) int32 {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container && status.State.Terminated != nil {
			return status.State.Terminated.ExitCode
		}
	}
	return -1
}

// lateSIGTERM is how much later than on a quiet machine a signal may come.
const lateSIGTERM = 3

// requireSIGTERM checks when the engine got SIGTERM, in seconds from the delete.
func (d departure) requireSIGTERM(t *testing.T, from, to float64) {
	t.Helper()
	require.GreaterOrEqual(t, d.sigterm.Seconds(), from, "SIGTERM came too early after the delete")
	require.LessOrEqual(t, d.sigterm.Seconds(), to+lateSIGTERM, "SIGTERM came too late after the delete")
}

// lateHook bounds how long after the delete the hook starts. A kubelet on a quiet
// machine takes 0.1 s, one that shares two busy processors with everything the
// suite runs takes seconds. That is the machine's time, not the hook's.
const lateHook = 6 * time.Second

// requireWindow checks when the engine got SIGTERM, in seconds from the start of
// the hook, which is where the window counts from.
func (d departure) requireWindow(t *testing.T, from, to float64) {
	t.Helper()
	require.GreaterOrEqual(t, d.hookStarted, time.Duration(0), "the hook wrote nothing to the container's log")
	require.Less(t, d.hookStarted, lateHook, "the kubelet started the hook late")
	window := (d.sigterm - d.hookStarted).Seconds()
	require.GreaterOrEqual(t, window, from, "SIGTERM came too early after the hook's start")
	require.LessOrEqual(t, window, to, "SIGTERM came too late after the hook's start")
}

// requireEnd checks the hook's last word: one of names.End*.
func (d departure) requireEnd(t *testing.T, end string) {
	t.Helper()
	require.NotEmpty(t, d.hook, "the hook wrote nothing to the container's log")
	require.Contains(t, d.hook[len(d.hook)-1], end)
	require.False(t, d.failedHook, "a normal drain leaves no FailedPreStopHook event")
}
