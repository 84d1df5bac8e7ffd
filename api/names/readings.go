package names

// Reasons why a /metrics body proves nothing, in readings and their logs.
const (
	// ReadGaugesMissing means that a gauge the engine's table expects is not in
	// the body, or has no sample.
	ReadGaugesMissing = "GaugesMissing"
	// ReadInvalidValue means that a gauge has a value that cannot be a number of
	// requests, such as NaN or -1.
	ReadInvalidValue = "InvalidValue"
	// ReadNotMetrics means that the body is not Prometheus text or OpenMetrics.
	ReadNotMetrics = "NotMetrics"
	// ReadTooLarge means that the body is over the size that is read.
	ReadTooLarge = "TooLarge"
)
