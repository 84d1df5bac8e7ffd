package engine

import (
	"net"
	"strconv"
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
