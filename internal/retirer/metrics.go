package retirer

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

type metrics struct {
	retirements *prometheus.CounterVec
	states      *prometheus.HistogramVec
	reads       *prometheus.CounterVec
	questions   *prometheus.CounterVec
	commands    *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		retirements: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricRetirements, Help: "Operations that ended, by cause and end.",
		}, []string{"cause", "end"}),
		states: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: names.MetricRetirementStateSeconds, Help: "How long replicas were in each state of their retirement.",
			Buckets: []float64{0.1, 1, 5, 10, 20, 30, 60, 120, 240, 600, 1800, 3600},
		}, []string{"state"}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricMemberReads, Help: "Reads of engines from inside, by verdict.",
		}, []string{"verdict"}),
		questions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricRouterQuestions, Help: "How often processes of routers were asked about replicas, by router and whether they answered.",
		}, []string{"router", "answered"}),
		commands: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: names.MetricRouterCommands, Help: "How often processes of routers were told to leave a replica alone or to choose it again, by router, command and whether they took it.",
		}, []string{"router", "command", "taken"}),
	}
	registry.MustRegister(m.retirements, m.states, m.reads, m.questions, m.commands)
	return m
}

func (m *metrics) read(read retire.Read) {
	verdict := string(read.Verdict)
	if read.Verdict == retire.ReadFailed {
		verdict = read.Reason
	}
	m.reads.WithLabelValues(verdict).Inc()
}

func (m *metrics) question(router string, answered bool) {
	m.questions.WithLabelValues(router, strconv.FormatBool(answered)).Inc()
}

func (m *metrics) command(router string, leave bool, err error) {
	command := "restore"
	if leave {
		command = "withdraw"
	}
	m.commands.WithLabelValues(router, command, strconv.FormatBool(err == nil)).Inc()
}

// observe counts what a status that was just written says that the one before did
// not.
func (m *metrics) observe(before, now retire.Status, at time.Time) {
	stateTimes(before, now, at, func(state string, seconds float64) { m.states.WithLabelValues(state).Observe(seconds) })
	if now.Last != nil && (before.Last == nil || *before.Last != *now.Last) {
		m.retirements.WithLabelValues(string(now.Last.Cause), string(now.Last.End)).Inc()
	}
}

// holds tells of the replicas that are held now, from the cache of the leader.
type holds struct {
	cached client.Reader
	clock  clock.PassiveClock
	// leading is closed once this process leads: the caches of the others are filled
	// too, and each replica must be counted once.
	leading <-chan struct{}

	held, longest, aborted *prometheus.Desc
}

func newHolds(cached client.Reader, c clock.PassiveClock, leading <-chan struct{}) *holds {
	return &holds{
		cached: cached, clock: c, leading: leading,
		held:    prometheus.NewDesc(names.MetricReplicasHeld, "Replicas that wait to be taken away, by reason.", []string{"reason"}, nil),
		longest: prometheus.NewDesc(names.MetricLongestHold, "Since how long the replica is held that has been for longest.", nil, nil),
		aborted: prometheus.NewDesc(names.MetricReplicasAborted, "Replicas that were given up and stay, by reason.", []string{"reason"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (h *holds) Describe(to chan<- *prometheus.Desc) {
	to <- h.held
	to <- h.longest
	to <- h.aborted
}

// scrapeTimeout bounds the look into the cache, which answers at once when it is
// filled.
const scrapeTimeout = time.Second

// Collect implements prometheus.Collector.
func (h *holds) Collect(to chan<- prometheus.Metric) {
	select {
	case <-h.leading:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	var all v1alpha1.ModelDeploymentList
	if h.cached.List(ctx, &all) != nil {
		return
	}
	held, aborted, longest := h.count(all.Items)
	for reason, n := range held {
		to <- prometheus.MustNewConstMetric(h.held, prometheus.GaugeValue, n, reason)
	}
	for reason, n := range aborted {
		to <- prometheus.MustNewConstMetric(h.aborted, prometheus.GaugeValue, n, reason)
	}
	to <- prometheus.MustNewConstMetric(h.longest, prometheus.GaugeValue, longest.Seconds())
}

func (h *holds) count(all []v1alpha1.ModelDeployment) (held, aborted map[string]float64, longest time.Duration) {
	held, aborted = map[string]float64{}, map[string]float64{}
	for i := range all {
		operation := all[i].Status.Retirement
		if operation == nil {
			continue
		}
		for _, t := range operation.Targets {
			switch t.State {
			case v1alpha1.StateAborted:
				aborted[t.Reason]++
			case v1alpha1.StateWithdrawing, v1alpha1.StateDraining, v1alpha1.StateDeleting:
				held[t.Reason]++
				longest = max(longest, h.clock.Since(operation.StartedAt.Time))
			}
		}
	}
	return held, aborted, longest
}
