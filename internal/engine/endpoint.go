package engine

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/api/names"
)

// Endpoint is where an engine serves its metrics, seen from its own container.
type Endpoint struct {
	// Scheme is http or https.
	Scheme string
	// Hosts are the addresses to try, in order: 127.0.0.1, ::1, then the address
	// the engine was told to bind if that is another one. Never a host that
	// anything but the engine's own --host names.
	Hosts []string
	// Port is 1 to 65535.
	Port int32
	// Path is absolute.
	Path string
}

// URL is the endpoint at its first address, as the record on a Pod shows it.
func (e Endpoint) URL() string {
	return e.Scheme + "://" + net.JoinHostPort(e.Hosts[0], strconv.Itoa(int(e.Port))) + e.Path
}

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	metricsPath = "/metrics"
)

// endpoint finds where the engine serves its metrics. The port is, in this
// order:
//
//  1. the annotation lastcall.dev/metrics-port;
//  2. on a Pod the operator built, prometheus.io/port;
//  3. --port, the last one;
//  4. prometheus.io/port, where the container declares that port: service meshes
//     rewrite it to one of their own;
//  5. where the flags are not all known, the port the container declares: its
//     only one, or the one named metrics or http; then prometheus.io/port;
//  6. the engine's default, which is a guess where the flags are not all known.
//
// Scheme and path follow the same order, with https where there is a key or a
// certificate. prometheus.io/scheme and path belong to prometheus.io/port: where
// that names another port they say nothing about this one.
func (e Engine) endpoint(c Container, s Source, f flags) (at Endpoint, portGuessed bool) {
	written, hasFlag := f.value("port")
	flagPort := parsePort(written)
	annotated := parsePort(s.Annotations[names.AnnotationMetricsPort])
	scraped := parsePort(s.Annotations[names.AnnotationPrometheusPort])
	var operatorPort, declared int32
	if s.OperatorBuilt {
		operatorPort = scraped
	}
	if slices.ContainsFunc(c.Ports, func(p Port) bool { return p.Number == scraped }) {
		declared = scraped
	}
	unknown := f.partial || hasFlag && flagPort == 0
	if unknown {
		declared = cmp.Or(declared, declaredPort(c.Ports), scraped)
	}
	port := cmp.Or(annotated, operatorPort, flagPort, declared)
	portGuessed = unknown && port == 0
	port = cmp.Or(port, e.DefaultPort)

	var scrapedScheme, scrapedPath, flagScheme string
	if scraped == 0 || scraped == port {
		scrapedScheme = parseScheme(s.Annotations[names.AnnotationPrometheusScheme])
		scrapedPath = parsePath(s.Annotations[names.AnnotationPrometheusPath])
	}
	if f.tls() {
		flagScheme = schemeHTTPS
	}
	if s.OperatorBuilt {
		flagScheme = cmp.Or(scrapedScheme, flagScheme)
	}
	return Endpoint{
		Scheme: cmp.Or(parseScheme(s.Annotations[names.AnnotationMetricsScheme]), flagScheme, scrapedScheme, schemeHTTP),
		Hosts:  hosts(f),
		Port:   port,
		Path:   cmp.Or(parsePath(s.Annotations[names.AnnotationMetricsPath]), scrapedPath, metricsPath),
	}, portGuessed
}

// declaredPort is the container's only port, or the one named metrics or http;
// 0 where that does not say which.
func declaredPort(ports []Port) int32 {
	if len(ports) == 1 {
		return ports[0].Number
	}
	for _, name := range []string{"metrics", "http"} {
		if i := slices.IndexFunc(ports, func(p Port) bool { return p.Name == name }); i >= 0 {
			return ports[i].Number
		}
	}
	return 0
}

// hosts are the loopback addresses and the one the engine binds, if that is
// written as an IP address.
func hosts(f flags) []string {
	all := []string{"127.0.0.1", "::1"}
	written, _ := f.value("host")
	addr, err := netip.ParseAddr(strings.Trim(written, "[]"))
	if addr = addr.Unmap(); err != nil || addr.Zone() != "" || addr.IsLoopback() || addr.IsUnspecified() {
		return all
	}
	return append(all, addr.String())
}

// bindsUnknown reports whether the engine binds an address that loopback does
// not reach and admission does not know, such as $(POD_IP).
func bindsUnknown(f flags) bool {
	written, _ := f.value("host")
	if written == "" || written == "localhost" {
		return false
	}
	addr, err := netip.ParseAddr(strings.Trim(written, "[]"))
	return err != nil || addr.Zone() != ""
}

func parseScheme(text string) string {
	if scheme := strings.ToLower(text); scheme == schemeHTTP || scheme == schemeHTTPS {
		return scheme
	}
	return ""
}

// parsePath is text if it is an absolute path that fits into a request line.
func parsePath(text string) string {
	unsafe := func(c rune) bool { return c <= ' ' || c >= 0x7f }
	if !strings.HasPrefix(text, "/") || strings.ContainsFunc(text, unsafe) {
		return ""
	}
	return text
}
