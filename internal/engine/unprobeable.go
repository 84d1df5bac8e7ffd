package engine

import (
	"fmt"
	"net/netip"
	"strings"
)

// unprobeable says why no HTTP probe of the kubelet gets an answer at the Pod's
// address, and what to change; empty where no known flag keeps probes away.
// Annotations change nothing about that: what they name, lastcall asks and not the
// kubelet.
func (i invocation) unprobeable() string {
	host, _ := i.flags.value("host")
	switch {
	case i.flags.has("uds"):
		return "with --uds the engine listens on a Unix socket, which the kubelet cannot probe; remove --uds"
	case i.grpcOnly():
		return "the engine serves gRPC only, and the kubelet probes it over HTTP; start its HTTP server"
	case i.flags.tls() && i.flags.demandsCertificate():
		return "--ssl-cert-reqs demands a client certificate, and the kubelet's probes have none; set it to 0 or 1"
	case isLoopback(host):
		return fmt.Sprintf("--host %s is loopback, and the kubelet probes the Pod's address, which Services use too; remove --host or set it to 0.0.0.0", host)
	}
	return ""
}

func (i invocation) grpcOnly() bool {
	return i.grpc || i.flags.on("grpc") || i.flags.on("grpc-mode") || i.flags.on("smg-grpc-mode")
}

// tls reports whether the flags make the engine serve https.
func (f flags) tls() bool { return f.has("ssl-keyfile") || f.has("ssl-certfile") }

// demandsCertificate reports whether clients need a certificate where the engine
// serves https. The value is a number of Python's ssl.VerifyMode, or its name.
func (f flags) demandsCertificate() bool {
	value, _ := f.value("ssl-cert-reqs")
	return value == "2" || strings.HasSuffix(value, "CERT_REQUIRED")
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
