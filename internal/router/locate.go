package router

import (
	"net/netip"
	"strconv"
	"strings"
)

// locate is where a worker's URL leads: http://10.0.0.1:8000, with @3 after it for a
// rank of a data-parallel engine, which is served by the same process. It is empty
// where that is a host name, which may be anybody's, and two where an IPv6 address
// without brackets can be read in two ways.
func locate(text string) []netip.AddrPort {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "", text
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if _, err := strconv.ParseUint(rest[at+1:], 10, 16); err != nil {
			return nil
		}
		rest = rest[:at]
	}
	var places []netip.AddrPort
	if colon := strings.LastIndexByte(rest, ':'); colon >= 0 {
		port, err := strconv.ParseUint(rest[colon+1:], 10, 16)
		if addr, is := address(rest[:colon]); is && err == nil {
			places = append(places, netip.AddrPortFrom(addr, uint16(port)))
		}
	}
	if addr, is := address(rest); is {
		places = append(places, netip.AddrPortFrom(addr, defaultPort(scheme)))
	}
	return places
}

// address reads an IP address, in brackets or not.
func address(text string) (netip.Addr, bool) {
	if inner, is := strings.CutPrefix(text, "["); is {
		if inner, is = strings.CutSuffix(inner, "]"); !is || !strings.Contains(inner, ":") {
			return netip.Addr{}, false
		}
		text = inner
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// defaultPort is the port of a URL that has none; 0 where the scheme has none either.
func defaultPort(scheme string) uint16 {
	switch scheme {
	case "", "http":
		return 80
	case "https":
		return 443
	}
	return 0
}
