package names

// Metrics of the binaries, on :8080/metrics.
const (
	// MetricAdmissions counts Pods the webhook was asked about, by the labels
	// outcome and reason.
	MetricAdmissions = "lastcall_admissions_total"
)
