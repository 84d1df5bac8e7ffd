package probe

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

func closing(t *testing.T, c io.Closer) { t.Cleanup(func() { _ = c.Close() }) }

func TestConnectionsAreThoseOfTheKernel(t *testing.T) {
	engineAt := overHTTP(text(idleBody))(t)
	var ports []uint16
	var opened []netip.AddrPort
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("this machine cannot listen on %s: %v", address, err)
			continue
		}
		closing(t, l)
		for range 2 { // nobody accepts them: to the kernel they are established all the same
			conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
			require.NoError(t, err)
			closing(t, conn)
			ports = append(ports, l.Addr().(*net.TCPAddr).AddrPort().Port())
			at := conn.LocalAddr().(*net.TCPAddr).AddrPort()
			opened = append(opened, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		}
	}
	other := listen(t, "tcp", "127.0.0.1:0")
	closing(t, other)
	conn, err := net.Dial("tcp", other.Addr().String())
	require.NoError(t, err)
	closing(t, conn)

	a := runs(t, engineAt, ports, patient)
	var seen []netip.AddrPort
	for _, r := range a.Connections {
		seen = append(seen, netip.AddrPort(r))
	}
	assert.ElementsMatch(t, opened, seen)
	assert.NotNil(t, a.Connections)
	assert.Empty(t, a.remote(), "all of these are from loopback")

	a = runs(t, engineAt, []uint16{1}, patient)
	assert.NotNil(t, a.Connections, "known, and none")
	assert.Empty(t, a.Connections)
}

// procWith is a procfs with these files of its network namespace.
func procWith(t *testing.T, files map[string]string) []string {
	proc := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "net"), 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(proc, "net", name), []byte(content), 0o600))
	}
	return []string{`PROC = "/proc"`, fmt.Sprintf("PROC = %q", proc)}
}

const tcpHeader = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func TestWhatIsReadOfTheNetworkNamespace(t *testing.T) {
	const route = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t0100F40A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"eth0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n" +
		"eth0\t0000F50A\t0200F40A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	const route6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000001 00000000 00000003 eth0\n" +
		"fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n" +
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n"
	const tcp = tcpHeader +
		"   0: 00000000:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n" +
		"   1: 0700F40A:1F40 0900F40A:8F3C 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n" +
		"   2: 0700F40A:1F40 0900F40A:8F3D 06 00000000:00000000 00:00000000 00000000     0        0 0 3\n" +
		"   3: 0700F40A:9999 0A00F40A:1F40 01 00000000:00000000 00:00000000 00000000     0        0 3 1\n" +
		"   4: 0100007F:1F40 0100007F:A000 01 00000000:00000000 00:00000000 00000000     0        0 4 1\n"
	const tcp6 = "  sl  local_address                         remote_address                        st\n" +
		"   0: 0000000000000000FFFF00000700F40A:1F40 0000000000000000FFFF00000B00F40A:B000 01 00000000:00000000 00:00000000 00000000 0 0 5 1\n" +
		"   1: 000000FD000000000000000007000000:1F40 000000FD000000000000000009000000:C000 01 00000000:00000000 00:00000000 00000000 0 0 6 1\n"
	addrs := func(texts ...string) []netip.AddrPort {
		var all []netip.AddrPort
		for _, text := range texts {
			all = append(all, netip.MustParseAddrPort(text))
		}
		return all
	}
	many := tcpHeader + strings.Repeat("   1: 0700F40A:1F40 0900F40A:8F3C 01 0 0 0 0 0 2 1\n", mostConnections+1)
	for name, c := range map[string]struct {
		files       map[string]string
		known       bool
		connections []netip.AddrPort
		gateways    []string
	}{
		"both families": {
			map[string]string{"tcp": tcp, "tcp6": tcp6, "route": route, "ipv6_route": route6}, true,
			addrs("10.244.0.9:36668", "10.244.0.11:45056", "[fd00::9]:49152"), []string{"10.244.0.1", "fd00::1"},
		},
		"a kernel without IPv6":        {map[string]string{"tcp": tcp, "route": route}, true, addrs("10.244.0.9:36668"), []string{"10.244.0.1"}},
		"no routes that can be read":   {map[string]string{"tcp": tcp}, true, addrs("10.244.0.9:36668"), nil},
		"nobody":                       {map[string]string{"tcp": tcpHeader}, true, nil, nil},
		"no connections of the kernel": {map[string]string{"route": route}, false, nil, nil},
		"a line that is none":          {map[string]string{"tcp": tcp + "what\n"}, false, nil, nil},
		"more than can be told":        {map[string]string{"tcp": many}, false, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := runs(t, overHTTP(text(idleBody))(t), []uint16{8000}, patient, procWith(t, c.files)...)
			a.Started = "1"
			e, _ := engine.Lookup(engine.VLLM)
			result, err := a.result(e)
			require.NoError(t, err)
			assert.Equal(t, c.known, result.ConnectionsKnown)
			assert.Equal(t, c.connections, result.Connections)
			var gateways []string
			for _, g := range result.Gateway {
				gateways = append(gateways, g.String())
			}
			assert.Equal(t, c.gateways, gateways)
		})
	}
}

func TestConnectionsAreKnownAlsoWhereTheEngineDoesNotAnswer(t *testing.T) {
	a := runs(t, closedPort(t), []uint16{1}, patient)
	e, _ := engine.Lookup(engine.VLLM)
	result, err := a.result(e)
	require.Error(t, err)
	assert.True(t, result.ConnectionsKnown)
}
