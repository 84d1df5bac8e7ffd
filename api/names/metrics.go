package names

// Metrics of the binaries, on :8080/metrics.
const (
	// MetricAdmissions counts Pods the webhook was asked about, by the labels
	// outcome and reason.
	MetricAdmissions = "lastcall_admissions_total"
	// MetricCertificateExpiry is the end of the webhook's serving certificate in
	// seconds since the epoch, 0 while it has none.
	MetricCertificateExpiry = "lastcall_certificate_expiry_timestamp_seconds"

	// MetricReplicasCreated counts replicas whose Pods the operator created.
	MetricReplicasCreated = "lastcall_replicas_created_total"
	// MetricReplicasReplaced counts replicas whose Pods the operator deleted to make
	// them again, by the label reason: one of Replaced*.
	MetricReplicasReplaced = "lastcall_replicas_replaced_total"
	// MetricCreateFailures counts objects that the API server did not take, by the
	// label reason: ReasonCreateFailed or ReasonNameTaken.
	MetricCreateFailures = "lastcall_create_failures_total"
)
