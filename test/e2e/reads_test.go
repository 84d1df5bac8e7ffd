package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/api/names"
)

// TestWhatAReadTellsTheHook plays the table of docs/drain-window.md on a kubelet,
// at a grace period of 15: reads start 5 s after the hook does and end at 10 s.
func TestWhatAReadTellsTheHook(t *testing.T) {
	t.Parallel()
	const grace = 15
	type row struct {
		fault    string
		end      string
		from, to float64
	}
	drained := func(fault string) row { return row{fault, names.EndDrained, idleFrom, idleTo} }
	nothing := func(fault string) row { return row{fault, names.EndNothingToMeasure, idleFrom, idleTo} }
	deadline := func(fault string) row {
		return row{fault, names.EndDeadline, deadlineFrom(grace), deadlineTo(grace)}
	}
	for name, row := range map[string]row{
		"a refused connection is nothing to measure":        nothing("refuse"),
		"404 is nothing to measure":                         nothing("404"),
		"503 is nothing to measure":                         nothing("503"),
		"a connection closed at once is nothing to measure": nothing("close"),
		"a redirect elsewhere is nothing to measure":        nothing("redirect-elsewhere"),
		"a redirect to the same origin is followed":         drained("redirect-same-origin"),
		"one 503 among idle reads starts the count again":   {"503-once", names.EndDrained, idleFrom + 1, idleTo + 1},
		"an answer that never comes is busy":                deadline("hang"),
		"an answer that drips for ever is busy":             deadline("drip"),
		"text that is not metrics is busy":                  deadline("garbage"),
		"a body without the gauges is busy":                 deadline("missing-gauges"),
		"a body cut short of its length is busy":            deadline("short-body"),
		"a body of 2 MiB is busy":                           deadline("huge"),
		"one running request is busy":                       deadline("busy"),
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			e := start(t, c, optedIn(t, c), vllm(grace))
			e.fault(t, `{"metrics": "`+row.fault+`"}`)
			d := e.leave(t)
			d.requireWindow(t, row.from, row.to)
			d.requireEnd(t, row.end)
		})
	}
}

func TestWhatAReadOverTLSTellsTheHook(t *testing.T) {
	t.Parallel()
	withTLS := func(flags ...string) *corev1.Pod {
		pod := vllm(15, append([]string{"--ssl-keyfile", "auto"}, flags...)...)
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(vllmPort)}}
		return pod
	}
	t.Run("a self-signed certificate is not in the way", func(t *testing.T) {
		c := cluster(t)
		d := start(t, c, optedIn(t, c), withTLS()).leave(t)
		d.requireWindow(t, idleFrom, idleTo)
		d.requireEnd(t, names.EndDrained)
	})
	t.Run("a demanded client certificate leaves nothing to measure", func(t *testing.T) {
		c := cluster(t)
		d := start(t, c, optedIn(t, c), withTLS("--ssl-cert-reqs", "2")).leave(t)
		d.requireWindow(t, idleFrom, idleTo)
		d.requireEnd(t, names.EndNothingToMeasure)
	})
}
