package engine

// Unmeasurable is why a recognized engine's gauges cannot be read.
type Unmeasurable string

// The reasons.
const (
	// UnixSocket: the engine listens on a Unix socket instead of a port.
	UnixSocket Unmeasurable = "UnixSocket"
	// GRPCOnly: the engine speaks gRPC and serves no HTTP.
	GRPCOnly Unmeasurable = "GRPCOnly"
	// StatsDisabled: vLLM was told not to keep statistics.
	StatsDisabled Unmeasurable = "StatsDisabled"
	// MetricsDisabled: SGLang serves metrics only when told to.
	MetricsDisabled Unmeasurable = "MetricsDisabled"
	// ClientCertificate: the listener demands a certificate of its clients.
	ClientCertificate Unmeasurable = "ClientCertificate"
	// ServesNoMetrics: the process is a member of a replica that another member
	// answers for.
	ServesNoMetrics Unmeasurable = "ServesNoMetrics"
)

// Advice is the sentence that tells the user what to change; empty for "".
func (u Unmeasurable) Advice() string {
	switch u {
	case UnixSocket:
		return "The engine listens on a Unix socket (--uds): remove --uds so that it serves /metrics on a port."
	case GRPCOnly:
		return "The engine serves gRPC only: start it with its HTTP server so that it serves /metrics."
	case StatsDisabled:
		return "vLLM keeps no statistics: remove --disable-log-stats."
	case MetricsDisabled:
		return "SGLang serves metrics only when told to: add --enable-metrics."
	case ClientCertificate:
		return "The engine demands a client certificate (--ssl-cert-reqs): set it to 0 or 1, and authenticate clients in front of the engine."
	case ServesNoMetrics:
		return "This member of the replica serves no metrics; its leader answers for it. The hook returns after the settle."
	}
	return ""
}
