package probe

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

func ofMain(change func(*corev1.ContainerStatus)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { change(&p.Status.ContainerStatuses[1]) }
}

// notTheRun are the ways in which a Pod is not in the run that is meant.
var notTheRun = map[string]struct {
	change          func(*corev1.Pod)
	reason, message string
}{
	"another Pod of the name": {func(p *corev1.Pod) { p.UID = "uid-2" }, names.HeldContainerRestarted, "another Pod has its name, with the UID uid-2"},
	"of another record":       {recorded("http://127.0.0.1:9000/metrics"), names.HeldReadFailed, `the Pod's record has another endpoint now: "http://127.0.0.1:9000/metrics"`},
	"without a record":        {func(p *corev1.Pod) { p.Annotations = nil }, names.HeldReadFailed, `the Pod's record has another endpoint now: ""`},
	"being deleted":           {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, names.HeldReadFailed, "the Pod is being deleted"},
	"without the container":   {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, names.HeldReadFailed, `the Pod's status has no container "main"`},
	"restarted": {
		ofMain(func(c *corev1.ContainerStatus) { c.ContainerID = "containerd://run-2" }),
		names.HeldContainerRestarted, "the container main was restarted: it is now containerd://run-2",
	},
	"waiting to be restarted": {
		ofMain(func(c *corev1.ContainerStatus) {
			c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		}),
		names.HeldContainerRestarted, "the container main is not running: CrashLoopBackOff",
	},
	"ended": {
		ofMain(func(c *corev1.ContainerStatus) {
			c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
		}),
		names.HeldContainerRestarted, "the container main is not running: it ended with exit code 137",
	},
}

func TestAPodThatIsNotInTheRunBeforeTheReadIsNotAsked(t *testing.T) {
	for name, c := range notTheRun {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(*session) { t.Error("the engine was asked") })
			result := reader(t, at(server), inTurn(member(c.change))).Read(t.Context(), target(t, somewhere))
			assert.Equal(t, engine.Unknown, result.Verdict)
			assert.Equal(t, c.reason, result.Reason)
			assert.Equal(t, c.message, result.Message)
		})
	}
}

func TestAPodThatLeavesTheRunDuringTheReadProvesNothing(t *testing.T) {
	for name, c := range notTheRun {
		t.Run(name, func(t *testing.T) {
			server := serve(t, saying(whole))
			result := reader(t, at(server), inTurn(member(), member(c.change))).Read(t.Context(), target(t, somewhere))
			assert.Equal(t, engine.Unknown, result.Verdict)
			assert.Equal(t, c.reason, result.Reason)
			assert.Equal(t, c.message, result.Message)
			assert.False(t, result.ConnectionsKnown)
			assert.Empty(t, result.Started)
		})
	}
}

func TestAPodThatCannotBeReadProvesNothing(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err             error
		reason, message string
	}{
		"gone":          {apierrors.NewNotFound(pods, "qwen-server-3-0"), names.HeldReadFailed, "the Pod is gone"},
		"forbidden":     {apierrors.NewForbidden(pods, "qwen-server-3-0", errors.New("no")), names.HeldExecForbidden, "the retirer needs the verb get on pods in namespace team-a"},
		"no API server": {errors.New("connection refused"), names.HeldReadFailed, "reading the Pod: connection refused"},
		"in time":       {context.DeadlineExceeded, names.HeldReadTimedOut, "no answer through the API server and the kubelet"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(*session) { t.Error("the engine was asked") })
			l := live(func(context.Context, *corev1.Pod) error { return c.err })
			result := reader(t, at(server), l).Read(t.Context(), target(t, somewhere))
			assert.Equal(t, engine.Unknown, result.Verdict)
			assert.Equal(t, c.reason, result.Reason)
			assert.Contains(t, result.Message, c.message)
		})
	}
}

func TestAReadIsSentBeforeAllItSaysAndReceivedAfter(t *testing.T) {
	start := time.Unix(1000, 0)
	clock := clocktesting.NewFakePassiveClock(start)
	pass := func() { clock.SetTime(clock.Now().Add(time.Second)) }
	server := serve(t, func(s *session) { pass(); saying(whole)(s) })
	r := reader(t, at(server), live(func(_ context.Context, pod *corev1.Pod) error {
		pass()
		*pod = *member()
		return nil
	}))
	r.clock = clock
	result := r.Read(t.Context(), target(t, somewhere))
	require.Equal(t, engine.Idle, result.Verdict, result.Message)
	assert.Equal(t, start, result.SentAt)
	assert.Equal(t, start.Add(3*time.Second), result.ReceivedAt)
}

func TestAnEngineWhoseGaugesAreNotKnownIsNeverIdle(t *testing.T) {
	server := serve(t, func(*session) { t.Error("the engine was asked") })
	other := target(t, somewhere)
	other.Engine = engine.Engine{Name: "tgi"}
	result := reader(t, at(server), inTurn(member())).Read(t.Context(), other)
	assert.Equal(t, engine.Unknown, result.Verdict)
	assert.Equal(t, names.HeldNoGaugeList, result.Reason)
}

func TestTheEndpointOfARecord(t *testing.T) {
	for record, want := range map[string]engine.Endpoint{
		"http://127.0.0.1:8000/metrics":      {Scheme: "http", Hosts: []string{"127.0.0.1", "::1", "10.0.0.7", "fd00::7"}, Port: 8000, Path: "/metrics"},
		"https://[::1]:30000/a/metrics?x=%1": {Scheme: "https", Hosts: []string{"::1"}, Port: 30000, Path: "/a/metrics?x=%1"},
		"http://127.0.0.9:8000/metrics":      {Scheme: "http", Hosts: []string{"127.0.0.9"}, Port: 8000, Path: "/metrics"},
		"http://10.0.0.7:8000/metrics":       {Scheme: "http", Hosts: []string{"10.0.0.7"}, Port: 8000, Path: "/metrics"},
		"http://[fd00::7]:8000/metrics":      {Scheme: "http", Hosts: []string{"fd00::7"}, Port: 8000, Path: "/metrics"},
	} {
		got, err := endpoint(record, member().Status)
		require.NoError(t, err, record)
		assert.Equal(t, want, got)
	}
	for record, want := range map[string]string{
		"":                                      "does not begin with http:// or https://",
		"127.0.0.1:8000":                        "does not begin with http:// or https://",
		"file://127.0.0.1:8000/metrics":         "does not begin with http:// or https://",
		"http://127.0.0.1:8000":                 "has no path",
		"http://127.0.0.1/metrics":              "does not name an IP address and a port",
		"http://127.0.0.1:0/metrics":            "does not name an IP address and a port",
		"http://localhost:8000/metrics":         "does not name an IP address and a port",
		"http://me@127.0.0.1:8000/metrics":      "does not name an IP address and a port",
		"http://[fe80::1%eth0]:8000/metrics":    "does not name an IP address and a port",
		"http://10.0.0.8:8000/metrics":          "is neither on loopback nor at an address of the Pod",
		"http://169.254.169.254:80/latest":      "is neither on loopback nor at an address of the Pod",
		"http://127.0.0.1:8000/metrics\r\nX: y": "has a path that does not fit into a request line",
	} {
		_, err := endpoint(record, member().Status)
		assert.EqualError(t, err, want, record)
	}
	for _, e := range engine.All() {
		at := engine.Endpoint{Scheme: "http", Hosts: []string{"127.0.0.1", "::1"}, Port: e.DefaultPort, Path: "/metrics"}
		got, err := endpoint(at.URL(), corev1.PodStatus{})
		require.NoError(t, err)
		assert.Equal(t, at, got, "what a record says of %s", e.Name)
	}
}

func TestAPodWhoseRecordPointsElsewhereIsNotAsked(t *testing.T) {
	server := serve(t, func(*session) { t.Error("the engine was asked") })
	result := reader(t, at(server), inTurn(member(recorded("http://10.0.0.8:8000/metrics")))).Read(t.Context(), target(t, "http://10.0.0.8:8000/metrics"))
	assert.Equal(t, engine.Unknown, result.Verdict)
	assert.Equal(t, names.HeldReadFailed, result.Reason)
	assert.Equal(t, `the endpoint of the Pod's record, "http://10.0.0.8:8000/metrics", is neither on loopback nor at an address of the Pod`, result.Message)
}
