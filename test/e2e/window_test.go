package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/engine/standin"
	"github.com/lastcall-dev/lastcall/test/load"
)

// Bounds of the moment of SIGTERM, in seconds from the start of the hook, which on a
// quiet machine is 0.1 s after the delete. An idle engine's hook returns on the second
// read after the settle, whatever the grace period; a busy one's returns as the reads
// end, 5 s before the grace period does.
const (
	idleFrom, idleTo = 5.5, 7.5
)

func deadlineFrom(grace int64) float64 { return float64(grace) - 5 }
func deadlineTo(grace int64) float64   { return float64(grace) - 2.5 }

func TestIdleEngineLeavesAtOnceWhateverItsGracePeriod(t *testing.T) {
	t.Parallel()
	for _, grace := range []int64{15, 30, 3600} {
		t.Run(fmt.Sprintf("of %d", grace), func(t *testing.T) {
			for name, pod := range map[string]*corev1.Pod{"vLLM": vllm(grace), "SGLang": sglang(grace)} {
				t.Run(name, func(t *testing.T) {
					c := cluster(t)
					d := start(t, c, optedIn(t, c), pod).leave(t)
					d.requireWindow(t, idleFrom, idleTo)
					d.requireEnd(t, names.EndDrained)
					require.EqualValues(t, 0, d.exitCode)
				})
			}
		})
	}
}

func TestStreamThatEndsInsideTheWindowCompletes(t *testing.T) {
	c := cluster(t)
	e := start(t, c, optedIn(t, c), vllm(30))
	answer := e.generate(t, 12*time.Second)
	d := e.leave(t)
	r := answer()
	require.Equal(t, load.Completed, r.Outcome, r.Error)
	require.Greater(t, r.End.Sub(d.deleted), 10*time.Second, "the request was to end inside the window")
	ended := e.events(standin.RequestEnded)
	require.NotEmpty(t, ended)
	require.LessOrEqual(t, d.sigterm-ended[len(ended)-1].Time.Sub(d.deleted), 2500*time.Millisecond, "SIGTERM follows the last token")
	d.requireEnd(t, names.EndDrained)
}

func TestRequestThatArrivesAfterTheDeleteCompletes(t *testing.T) {
	c := cluster(t)
	e := start(t, c, optedIn(t, c), vllm(30))
	gone := e.beginLeaving(t)
	<-time.After(3 * time.Second)
	answer := e.generate(t, 6*time.Second)
	d := gone()
	r := answer()
	require.Equal(t, load.Completed, r.Outcome, r.Error)
	require.Greater(t, r.Start.Sub(d.deleted), 2500*time.Millisecond)
	require.Greater(t, d.sigterm, r.End.Sub(d.deleted), "SIGTERM comes after the request's end")
	d.requireEnd(t, names.EndDrained)
}

func TestRequestLongerThanTheWindowMeetsSIGTERMInTheReserve(t *testing.T) {
	t.Parallel()
	t.Run("vLLM cuts it", func(t *testing.T) {
		c := cluster(t)
		e := start(t, c, optedIn(t, c), vllm(15))
		answer := e.generate(t, 40*time.Second)
		d := e.leave(t)
		d.requireWindow(t, deadlineFrom(15), deadlineTo(15))
		d.requireEnd(t, names.EndDeadline)
		require.Equal(t, load.Cut, answer().Outcome)
	})
	t.Run("SGLang drains on and is killed when the grace period ends", func(t *testing.T) {
		c := cluster(t)
		e := start(t, c, optedIn(t, c), sglang(15))
		e.generate(t, 40*time.Second)
		d := e.leave(t)
		d.requireWindow(t, deadlineFrom(15), deadlineTo(15))
		d.requireEnd(t, names.EndDeadline)
		require.EqualValues(t, 137, d.exitCode)
		require.GreaterOrEqual(t, d.gone.Seconds(), 14.5)
	})
}

// A decode engine takes some 20 s to leave after SIGTERM. Its request ends 18 s
// after the delete: 30 s are too short for both, 45 are not.
func TestSplitRoleOfSGLangNeedsAGracePeriodOf45(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		grace    int64
		exitCode int32
	}{
		"killed at 30":       {30, 137},
		"a clean exit at 45": {45, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			pod := sglang(row.grace, "--disaggregation-mode", "decode")
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "STANDIN_SGLANG_IDLE_REPORT", Value: "now"}}
			e := start(t, c, optedIn(t, c), pod)
			answer := e.generate(t, 18*time.Second)
			d := e.leave(t)
			require.Equal(t, load.Completed, answer().Outcome)
			d.requireEnd(t, names.EndDrained)
			require.Equal(t, row.exitCode, d.exitCode)
		})
	}
}

func TestImagesThatLackWhatTheHookUses(t *testing.T) {
	t.Parallel()
	t.Run("without python3 the engine still gets its settle", func(t *testing.T) {
		c := cluster(t)
		pod := vllm(15)
		pod.Spec.Containers[0].Image = bundle.NoPython.Ref
		d := start(t, c, optedIn(t, c), pod).leave(t)
		d.requireSIGTERM(t, 4.9, 9)
		require.False(t, d.failedHook)
	})
	t.Run("without a shell it gets none, and an event says so", func(t *testing.T) {
		c := cluster(t)
		pod := vllm(15)
		pod.Spec.Containers[0].Image = bundle.NoShell.Ref
		d := start(t, c, optedIn(t, c), pod).leave(t)
		d.requireSIGTERM(t, 0, 4)
		require.True(t, d.failedHook)
	})
}
