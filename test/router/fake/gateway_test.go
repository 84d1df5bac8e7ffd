package fake

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	smgMain = Options{Family: SMG, Version: "main", Policy: "round_robin"}
	smg19   = Options{Family: SMG, Version: "1.9.0", Policy: "round_robin"}
)

func TestSMGDrainsAWorkerBeforeItIsRemoved(t *testing.T) {
	for _, o := range []Options{smg19, smgMain} {
		t.Run(o.Version, func(t *testing.T) {
			o := policy(o, "cache_aware")
			r := stopped(t, o, 2)
			e := r.engines[0]
			e.stay()
			s := r.open()
			require.Equal(t, "pod-0", s.by)
			path := r.path(e)
			status, body := r.do(http.MethodDelete, path, "")
			assert.Equal(t, http.StatusAccepted, status)
			assert.JSONEq(t, fmt.Sprintf(`{"status":"accepted","worker_id":%q,"message":"Worker removal queued for background processing"}`,
				strings.TrimPrefix(path, "/workers/")), body)
			assert.Equal(t, "draining", r.has(e).Status)
			assert.EqualValues(t, 1, r.has(e).Load, "its count goes on")
			for range 3 {
				assert.Equal(t, "pod-1", r.served())
			}
			r.step(5*time.Second - 1)
			assert.NotNil(t, r.has(e))
			r.step(1)
			r.eventually("it is removed", func() bool { status, _ := r.do(http.MethodGet, path, ""); return status == http.StatusNotFound })
			e.release()
			assert.True(t, s.whole(), "its stream went on")
		})
	}
}

func TestASecondDeleteEndsTheDrainWindow(t *testing.T) {
	r := stopped(t, smgMain, 2)
	path := r.path(r.engines[0])
	r.do(http.MethodDelete, path, "")
	assert.Equal(t, "draining", r.has(r.engines[0]).Status)
	status, _ := r.do(http.MethodDelete, path, "")
	assert.Equal(t, http.StatusAccepted, status)
	assert.Nil(t, r.has(r.engines[0]))
}

func TestALabelThatGoesWhileAWorkerDrainsChangesNothing(t *testing.T) {
	r := stopped(t, smgMain, 2)
	e := r.engines[0]
	r.do(http.MethodDelete, r.path(e), "")
	r.script.Apply(with(e.pod, unlabelled))
	r.step(time.Second)
	r.eventually("it looked around", func() bool { return !r.current().looks() })
	assert.Equal(t, "draining", r.has(e).Status)
}

func (p *process) looks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.looking
}

func TestSMGRemovesAWorkerThatIsNotReadyAtOnce(t *testing.T) {
	r := stopped(t, smgMain, 2)
	e := r.engines[0]
	e.set(func(e *engine) { e.sick = true })
	for n := range healthFailures {
		r.step(time.Minute)
		r.eventually("a health check", func() bool { return r.current().cyclesDone() == n+1 })
	}
	assert.Equal(t, "not_ready", r.has(e).Status)
	r.do(http.MethodDelete, r.path(e), "")
	assert.Nil(t, r.has(e))
}

func TestADrainingWorkerIsNotChecked(t *testing.T) {
	r := stopped(t, policy(Options{Family: SMG, DrainSettle: time.Hour}, "round_robin"), 2)
	r.do(http.MethodDelete, r.path(r.engines[0]), "")
	r.step(time.Minute)
	r.eventually("a health check", func() bool { return r.current().cyclesDone() == 1 })
	r.engines[0].set(func(e *engine) { assert.Zero(t, e.checks) })
	r.engines[1].set(func(e *engine) { assert.Equal(t, 1, e.checks) })
	assert.Equal(t, "draining", r.has(r.engines[0]).Status)
}

func TestWhenSMGFollowsALabel(t *testing.T) {
	t.Run("1.9.0 at its next list", func(t *testing.T) {
		r := stopped(t, smg19, 2)
		r.script.Apply(with(r.engines[0].pod, unlabelled))
		r.step(time.Minute - 1)
		assert.Equal(t, "ready", r.has(r.engines[0]).Status)
		r.step(1)
		r.eventually("it drains", func() bool { return r.has(r.engines[0]).Status == "draining" })
	})
	t.Run("main a second later", func(t *testing.T) {
		r := stopped(t, smgMain, 2)
		r.step(time.Second) // it looked at the first list
		r.eventually("it looked around", func() bool { return !r.current().looks() })
		r.script.Apply(with(r.engines[0].pod, unlabelled))
		r.step(time.Second - 1)
		assert.Equal(t, "ready", r.has(r.engines[0]).Status)
		r.step(1)
		r.eventually("it drains", func() bool { return r.has(r.engines[0]).Status == "draining" })
	})
}

func TestWhatSMGAddsAgain(t *testing.T) {
	remove := func(r *rig) {
		r.t.Helper()
		r.do(http.MethodDelete, r.path(r.engines[0]), "")
		r.step(5 * time.Second)
		r.eventually("it is removed", func() bool { return r.has(r.engines[0]) == nil })
	}
	t.Run("main, what matches still", func(t *testing.T) {
		r := stopped(t, smgMain, 2)
		remove(r)
		r.step(time.Minute)
		r.eventually("it is back", func() bool { return r.has(r.engines[0]) != nil })
	})
	t.Run("1.9.0, nothing", func(t *testing.T) {
		r := stopped(t, smg19, 2)
		remove(r)
		r.current().lookAround()
		assert.Nil(t, r.has(r.engines[0]))
		r.fault(Fault{Name: Restart})
		assert.NotNil(t, r.has(r.engines[0]), "but a restart does")
	})
	t.Run("main, not what a caller had added", func(t *testing.T) {
		r := stopped(t, smgMain, 2, unlabelled)
		status, _ := r.do(http.MethodPost, "/workers", fmt.Sprintf(`{"url":%q}`, r.engines[0].url()))
		assert.Equal(t, http.StatusAccepted, status)
		assert.Empty(t, r.has(r.engines[0]).Labels)
		r.current().lookAround()
		assert.NotNil(t, r.has(r.engines[0]), "and leaves it, whatever the label says")
		status, _ = r.do(http.MethodPost, "/workers", fmt.Sprintf(`{"url":%q}`, r.engines[0].url()))
		assert.Equal(t, http.StatusConflict, status)
	})
}

func TestSMGStampsTheUIDOfThePod(t *testing.T) {
	r := play(t, smgMain, 1)
	assert.Equal(t, map[string]string{podUIDLabel: "uid-of-pod-0"}, r.has(r.engines[0]).Labels)
	status, _ := r.do(http.MethodGet, "/workers/no-uuid", "")
	assert.Equal(t, http.StatusBadRequest, status)
}

func TestWhichLoadSMGCounts(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		load    int64
	}{
		"1.9.0 round_robin": {smg19, 0},
		"1.9.0 random":      {policy(smg19, "random"), 0},
		"1.9.0 cache_aware": {policy(smg19, "cache_aware"), 1},
		"1.9.0 manual":      {policy(smg19, "manual"), 1},
		"main round_robin":  {smgMain, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := play(t, c.options, 1)
			e := r.engines[0]
			e.stay()
			s := r.open()
			assert.Equal(t, c.load, r.has(e).Load)
			e.release()
			s.whole()
			r.eventually("nothing is left", func() bool { return r.has(e).Load == 0 })
			_, totals := r.metric(fmt.Sprintf(`smg_worker_requests_total{worker=%q,model="unknown"}`, e.url()))
			assert.Equal(t, c.options.Version == "main", totals)
		})
	}
}

func TestSMGForgetsNoClientThatLeft(t *testing.T) {
	r := play(t, smgMain, 1)
	r.engines[0].stay()
	s := r.open()
	assert.EqualValues(t, 1, r.has(r.engines[0]).Load)
	s.leave()
	r.eventually("it is not counted any more", func() bool { return r.has(r.engines[0]).Load == 0 })
}

func TestTheGaugeOfARemovedWorkerIsZeroWithAStreamOpen(t *testing.T) {
	r := stopped(t, smgMain, 1)
	e := r.engines[0]
	e.stay()
	s := r.open()
	require.Equal(t, 1.0, r.sample(byWorker("smg_worker_requests_active", e)))
	r.do(http.MethodDelete, r.path(e), "")
	require.Equal(t, 1.0, r.sample(byWorker("smg_worker_requests_active", e)), "while it drains")
	r.step(5 * time.Second)
	r.eventually("the worker is removed", func() bool { return r.has(e) == nil })
	assert.Zero(t, r.sample(byWorker("smg_worker_requests_active", e)))
	e.release()
	assert.True(t, s.whole())
}

func TestSMGRelaysTheGaugesOfEngines(t *testing.T) {
	r := stopped(t, smgMain, 1)
	sample := fmt.Sprintf(`smg_engine_%%s_requests{worker=%q,model="unknown",dp_rank="0"}`, r.engines[0].url())
	r.step(relayEvery)
	r.eventually("it was read", func() bool { _, ok := r.metric(fmt.Sprintf(sample, "running")); return ok })
	assert.Equal(t, 3.0, r.sample(fmt.Sprintf(sample, "running")))
	assert.Equal(t, 2.0, r.sample(fmt.Sprintf(sample, "waiting")))
	r.do(http.MethodDelete, r.path(r.engines[0]), "")
	r.do(http.MethodDelete, r.path(r.engines[0]), "")
	assert.Equal(t, -1.0, r.sample(fmt.Sprintf(sample, "running")))
}

func TestSMGSendsOnceMoreToTheSameWorker(t *testing.T) {
	for _, o := range []Options{smg19, smgMain} {
		t.Run(o.Version, func(t *testing.T) {
			r := play(t, o, 2)
			r.engines[0].set(func(e *engine) { e.resets = 1 })
			by := "pod-1"
			if o.Version == "main" {
				by = "pod-0"
			}
			assert.Equal(t, by, r.served())
		})
	}
}

func TestBothOfAPairAreCountedFromTheChoiceOn(t *testing.T) {
	t.Run("sequential", func(t *testing.T) {
		o := smgMain
		o.PD = Sequential
		r := pairOf(t, o, 2)
		r.fault(Fault{Name: PrefillHold})
		served := r.begin()
		r.eventually("the prefill", func() bool { return len(r.engines[0].got()) == 1 })
		assert.EqualValues(t, 1, r.has(r.engines[1]).Load, "while it is held")
		assert.Empty(t, r.engines[1].got())
		r.fault(Fault{Name: PrefillHold, Off: true})
		assert.Equal(t, "pod-1", <-served)
		r.eventually("it is over", func() bool { return r.has(r.engines[1]).Load == 0 && r.has(r.engines[0]).Load == 0 })
	})
	t.Run("at once", func(t *testing.T) {
		o := smg19
		o.PD = Dual
		r := pairOf(t, o, 2)
		r.engines[1].stay()
		s := r.open()
		r.eventually("both are sent it", func() bool { return len(r.engines[0].got()) == 1 && len(r.engines[1].got()) == 1 })
		assert.EqualValues(t, 1, r.has(r.engines[1]).Load)
		assert.EqualValues(t, 1, r.has(r.engines[0]).Load)
		r.engines[1].release()
		assert.True(t, s.whole())
	})
}

func TestSGLModelGateway(t *testing.T) {
	o := Options{Family: SGLModelGateway, Version: "0.3.0", Policy: "cache_aware"}
	t.Run("removes later, without a window", func(t *testing.T) {
		r := stopped(t, o, 2)
		path := r.path(r.engines[0])
		status, _ := r.do(http.MethodDelete, path, "")
		assert.Equal(t, http.StatusAccepted, status)
		assert.NotNil(t, r.has(r.engines[0]))
		assert.Empty(t, r.has(r.engines[0]).Status, "it has no word for it")
		r.step(time.Second)
		r.eventually("it is removed", func() bool { return r.has(r.engines[0]) == nil })
	})
	t.Run("keeps a Pod that left its selector", func(t *testing.T) {
		r := play(t, o, 1)
		r.script.Apply(with(r.engines[0].pod, unlabelled))
		assert.Equal(t, "pod-0", r.served())
	})
	t.Run("sets its loads back", func(t *testing.T) {
		r := stopped(t, o, 1)
		r.engines[0].stay()
		r.open()
		require.EqualValues(t, 1, r.has(r.engines[0]).Load)
		for n := range loadCycles {
			r.step(time.Minute)
			r.eventually("a health check", func() bool { return r.current().cyclesDone() == n+1 })
		}
		assert.Zero(t, r.has(r.engines[0]).Load)
	})
	t.Run("counts under its own names", func(t *testing.T) {
		r := play(t, o, 1)
		r.served()
		assert.Equal(t, 1.0, r.sample(byWorker("sgl_router_processed_requests_total", r.engines[0])))
	})
}
