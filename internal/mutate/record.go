package mutate

import (
	"encoding/json"

	"github.com/lastcall-dev/lastcall/api/names"
)

// Record is what admission did to a Pod and why. It is left on the Pod as JSON in
// the annotation names.AnnotationStatus, and counted by Outcome and Reason.
type Record struct {
	// Outcome is one of names.Outcome*.
	Outcome string `json:"outcome"`
	// Reason is one of names.Reason*.
	Reason string `json:"reason"`
	// Engine and Container are what was recognized; empty where nothing was.
	Engine    string `json:"engine,omitempty"`
	Container string `json:"container,omitempty"`
	// MetricsURL is where the engine's gauges are read, from inside its container;
	// empty where they cannot be.
	MetricsURL string `json:"metricsURL,omitempty"`
	// GraceSeconds is the Pod's grace period as admitted.
	GraceSeconds int64 `json:"graceSeconds"`
	// GraceFrom is where it comes from: FromAnnotation or FromSpec.
	GraceFrom string `json:"graceFrom"`
	// HookVersion is drain.HookVersion of the injected hook.
	HookVersion string `json:"hookVersion,omitempty"`
}

// Where a Pod's grace period comes from.
const (
	// FromAnnotation: names.AnnotationGraceSeconds, which beats the spec.
	FromAnnotation = "annotation"
	// FromSpec: the Pod's own terminationGracePeriodSeconds, or the Kubernetes
	// default where it has none.
	FromSpec = "spec"
)

// RecordOf is the record in a Pod's annotations; false where there is none, or one
// that admission cannot have left.
func RecordOf(annotations map[string]string) (Record, bool) {
	var r Record
	if json.Unmarshal([]byte(annotations[names.AnnotationStatus]), &r) != nil || r.Outcome == "" {
		return Record{}, false
	}
	return r, true
}

func (r Record) json() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and an integer always encode
	}
	return string(text)
}
