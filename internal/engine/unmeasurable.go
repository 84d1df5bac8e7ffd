package engine

import "github.com/lastcall-dev/lastcall/api/names"

// Unmeasurable is why a recognized engine's gauges cannot be read.
type Unmeasurable string

// The reasons.
const (
	// ServesNoMetrics: the process is a member of a replica that another member
	// answers for.
	ServesNoMetrics Unmeasurable = "ServesNoMetrics"
	// StatsDisabled: vLLM was told not to keep statistics.
	StatsDisabled Unmeasurable = "StatsDisabled"
	// MetricsDisabled: SGLang serves metrics only when told to.
	MetricsDisabled Unmeasurable = "MetricsDisabled"
	// SeveralPorts: more than one server runs in the container, or each
	// data-parallel rank has a listener of its own. One listener that is idle says
	// nothing of the others, so none is read: the hook holds to the deadline, which
	// costs time and cuts no request.
	SeveralPorts Unmeasurable = "SeveralPorts"
	// UnixSocket: the engine listens on a Unix socket instead of a port.
	UnixSocket Unmeasurable = "UnixSocket"
	// GRPCOnly: the engine speaks gRPC and serves no HTTP.
	GRPCOnly Unmeasurable = "GRPCOnly"
	// ClientCertificate: the listener demands a certificate of its clients.
	ClientCertificate Unmeasurable = "ClientCertificate"
	// AddressUnknown: the engine binds an address that is not known at admission
	// and that loopback does not reach.
	AddressUnknown Unmeasurable = "AddressUnknown"
)

// explanations are what warnings and the documentation say of each reason.
var explanations = []struct {
	reason Unmeasurable
	when   string
	// holds: the hook waits to its deadline, and does not end after the settle.
	holds  bool
	advice string
}{
	{
		reason: ServesNoMetrics,
		when:   "a worker: vLLM `--headless`, a node rank above 0",
		advice: "This member of the replica serves no metrics, its leader answers for it: nothing to change here",
	},
	{
		reason: StatsDisabled,
		when:   "vLLM with `--disable-log-stats`: it answers, without its gauges",
		holds:  true,
		advice: "vLLM keeps no statistics, so every deletion takes the whole window: remove --disable-log-stats",
	},
	{
		reason: MetricsDisabled,
		when:   "SGLang without `--enable-metrics`",
		advice: "SGLang serves metrics only when told to: add --enable-metrics",
	},
	{
		reason: SeveralPorts,
		when:   "several servers in one container, or vLLM with `--data-parallel-multi-port-external-lb`",
		holds:  true,
		advice: "Several servers have a port each, so every deletion takes the whole window: run one server in a container",
	},
	{
		reason: UnixSocket,
		when:   "vLLM with `--uds`",
		advice: "It listens on a Unix socket: replace --uds by --port, or set " + names.AnnotationMetricsPort,
	},
	{
		reason: GRPCOnly,
		when:   "`--grpc`, SGLang's gRPC mode",
		advice: "It serves gRPC only: start its HTTP server, or set " + names.AnnotationMetricsPort,
	},
	{
		reason: ClientCertificate,
		when:   "a client certificate is demanded: `--ssl-cert-reqs 2`",
		advice: "It demands a client certificate: set --ssl-cert-reqs to 0 or 1, or set " + names.AnnotationMetricsPort,
	},
	{
		reason: AddressUnknown,
		when:   "`--host` is a name, or not known at admission",
		advice: "It binds an address that is not known at admission: set --host to 0.0.0.0 or ::",
	},
}

// Unmeasurables returns every reason.
func Unmeasurables() []Unmeasurable {
	var all []Unmeasurable
	for _, e := range explanations {
		all = append(all, e.reason)
	}
	return all
}

// When says in Markdown which engines the reason is about; empty for "".
func (u Unmeasurable) When() string {
	for _, e := range explanations {
		if e.reason == u {
			return e.when
		}
	}
	return ""
}

// Holds reports whether the hook waits to its deadline; otherwise nothing answers
// it, and it ends after the settle.
func (u Unmeasurable) Holds() bool {
	for _, e := range explanations {
		if e.reason == u {
			return e.holds
		}
	}
	return false
}

// Advice is the sentence that tells the user what to change; empty for "".
func (u Unmeasurable) Advice() string {
	for _, e := range explanations {
		if e.reason == u {
			return e.advice
		}
	}
	return ""
}

// unmeasurable says why the gauges of this command line cannot be read. An
// explicit metrics-port annotation is believed about the listener: it may name a
// sidecar listener or a proxy in front of the engine. It cannot make gauges that
// the engine does not keep, so the first four stand whatever it says; and of
// flags that are not all known, none is called missing.
func (i invocation) unmeasurable(at Endpoint, portAnnotated bool) Unmeasurable {
	f := i.flags
	switch {
	case i.servesNothing():
		return ServesNoMetrics
	case i.engine == VLLM && f.on("disable-log-stats"):
		return StatsDisabled
	case i.engine == SGLang && !f.partial && !f.on("enable-metrics"):
		return MetricsDisabled
	case i.several, i.engine == VLLM && f.on("data-parallel-multi-port-external-lb"):
		return SeveralPorts
	case portAnnotated:
		return ""
	case f.has("uds"):
		return UnixSocket
	case i.grpcOnly():
		return GRPCOnly
	case at.Scheme == schemeHTTPS && f.demandsCertificate():
		return ClientCertificate
	case bindsUnknown(f):
		return AddressUnknown
	}
	return ""
}
