package retire

import "testing"

// BenchmarkWorlds is BenchmarkSimulation without the protocol: the same worlds with
// the same faults, and what a round would be decided from, put together whenever
// something changed. Nothing is decided, so nothing is marked, read or deleted.
func BenchmarkWorlds(b *testing.B) {
	rounds := 0
	for b.Loop() {
		w := newWorld(uint64(rounds))
		h := newHost(w, "")
		for range 300 {
			w.fault(h)
			w.pass()
			if w.changed {
				w.changed = false
				h.seen.Replicas = h.replicas()
				rounds++
			}
		}
	}
	b.ReportMetric(float64(rounds)/b.Elapsed().Seconds(), "steps/s")
}
