package names

// Metrics of the binaries, on :8080/metrics.
const (
	// MetricAdmissions counts Pods the webhook was asked about, by the labels
	// outcome and reason.
	MetricAdmissions = "lastcall_admissions_total"
	// MetricCertificateExpiry is the end of the webhook's serving certificate in
	// seconds since the epoch, 0 while it has none.
	MetricCertificateExpiry = "lastcall_certificate_expiry_timestamp_seconds"
)
