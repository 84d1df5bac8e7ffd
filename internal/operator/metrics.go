package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/api/names"
)

type metrics struct {
	created  prometheus.Counter
	replaced *prometheus.CounterVec
	failures *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		created: prometheus.NewCounter(prometheus.CounterOpts{
			Name: names.MetricReplicasCreated, Help: "Replicas whose Pods were created.",
		}),
		replaced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricReplicasReplaced, Help: "Replicas whose Pods were deleted to be made again, by reason.",
		}, []string{"reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricCreateFailures, Help: "Objects that the API server did not take, by reason.",
		}, []string{"reason"}),
	}
	registry.MustRegister(m.created, m.replaced, m.failures)
	return m
}
