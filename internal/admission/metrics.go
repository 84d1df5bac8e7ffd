package admission

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/api/names"
)

// newAdmissions counts what became of Pods. Every pair is there from the start,
// so that a rate over the first one is not lost.
func newAdmissions() *prometheus.CounterVec {
	admissions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: names.MetricAdmissions,
		Help: "Pods the webhook was asked about, by what was done and why. Dry runs are not counted; a reinvocation is.",
	}, []string{"outcome", "reason"})
	for outcome, reasons := range map[string][]string{
		names.OutcomeInjected: {names.ReasonEngineRecognized, names.ReasonNotMeasurable},
		names.OutcomeSkipped: {
			names.ReasonNoEngine, names.ReasonSeveralEngines, names.ReasonUserPreStop,
			names.ReasonGraceOutOfRange, names.ReasonTakenOver,
		},
		names.OutcomeRefused: {names.ReasonInvalidAnnotation, names.ReasonMalformedPod},
	} {
		for _, reason := range reasons {
			admissions.WithLabelValues(outcome, reason)
		}
	}
	return admissions
}
