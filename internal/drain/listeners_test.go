package drain

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

const (
	idleBody = "# TYPE vllm:num_requests_running gauge\n" +
		"vllm:num_requests_running{engine=\"0\"} 0.0\n" +
		"# TYPE vllm:num_requests_waiting gauge\n" +
		"vllm:num_requests_waiting{engine=\"0\"} 0.0\n"
	busyBody = "# TYPE vllm:num_requests_running gauge\n" +
		"vllm:num_requests_running{engine=\"0\"} 3.0\n" +
		"# TYPE vllm:num_requests_waiting gauge\n" +
		"vllm:num_requests_waiting{engine=\"0\"} 1.0\n"
	missingBody = "# TYPE vllm:num_requests_running gauge\n" +
		"vllm:num_requests_running{engine=\"0\"} 0.0\n"
)

// listener is something that listens where an engine would.
type listener struct {
	engine.Endpoint

	reads atomic.Int32 // connections taken, or requests where it speaks HTTP
}

func at(scheme string, address net.Addr, hosts ...string) engine.Endpoint {
	if len(hosts) == 0 {
		hosts = []string{"127.0.0.1", "::1"}
	}
	return engine.Endpoint{Scheme: scheme, Hosts: hosts, Port: int32(address.(*net.TCPAddr).Port), Path: "/metrics"}
}

// closedPort is a port that refuses connections: it was just free.
func closedPort(t *testing.T) *listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return &listener{Endpoint: at("http", l.Addr())}
}

// serving answers every request over HTTP.
func serving(t *testing.T, handler http.HandlerFunc) *listener {
	l := &listener{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.reads.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	l.Endpoint = at("http", server.Listener.Addr())
	return l
}

// servingTLS answers over HTTPS with a certificate that nobody trusts.
func servingTLS(t *testing.T, config *tls.Config, handler http.HandlerFunc) *listener {
	l := &listener{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.reads.Add(1)
		handler(w, r)
	}))
	server.TLS = config
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // failing handshakes are the point
	server.StartTLS()
	t.Cleanup(server.Close)
	l.Endpoint = at("https", server.Listener.Addr())
	return l
}

// text answers 200 with this body.
func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { say(w, body) }
}

// status answers with this status and no metrics.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// inTurn answers the first request with the first handler, and so on; the last
// one answers all that follow.
func inTurn(handlers ...http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(n.Add(1)), len(handlers))-1](w, r)
	}
}

// redirect sends /metrics to where, and answers anything else as an idle engine.
func redirect(where string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			w.Header().Set("Location", where)
			w.WriteHeader(http.StatusTemporaryRedirect)
			return
		}
		say(w, idleBody)
	}
}

// accepting hands every connection to serve, and closes it after.
func accepting(t *testing.T, scheme string, serve func(net.Conn)) *listener {
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &listener{Endpoint: at(scheme, socket.Addr())}
	done := make(chan struct{})
	t.Cleanup(func() { close(done); _ = socket.Close() })
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			l.reads.Add(1)
			go func() { <-done; _ = conn.Close() }()
			go func() { serve(conn); _ = conn.Close() }()
		}
	}()
	return l
}

// raw reads the request, writes this and closes.
func raw(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		say(conn, answer)
	}
}

// drip writes start, and then this byte for ever.
func drip(start, each string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		say(conn, start)
		for range time.Tick(20 * time.Millisecond) {
			if _, err := io.WriteString(conn, each); err != nil {
				return
			}
		}
	}
}

// reset writes this and resets the connection.
func reset(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		say(conn, answer)
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
}

// hang holds the connection without a word until the other side closes it.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func readRequest(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

// say writes to a hook that may be gone.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// overTLS shakes hands and goes on inside.
func overTLS(config *tls.Config, serve func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		inside := tls.Server(conn, config)
		if inside.Handshake() == nil {
			serve(inside)
			_ = inside.Close()
		}
	}
}

// untrusted is a server's TLS configuration with a certificate of its own.
func untrusted(t *testing.T) *tls.Config {
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	return &tls.Config{Certificates: server.TLS.Certificates}
}

// goneAfter answers as a busy engine this many times, and then its listener is
// gone.
func goneAfter(t *testing.T, answers int32) *listener {
	l := &listener{}
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if l.reads.Add(1) == answers {
			_ = server.Listener.Close()
		}
		say(w, busyBody)
	})
	server.Start()
	t.Cleanup(server.Close)
	l.Endpoint = at("http", server.Listener.Addr())
	return l
}

func withLength(length int, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", length, body)
}

// onlyAt is an idle engine bound to one address.
func onlyAt(t *testing.T, host string) *listener {
	socket, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil && host == "::1" {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(text(idleBody))
	require.NoError(t, server.Listener.Close())
	server.Listener = socket
	server.Start()
	t.Cleanup(server.Close)
	return &listener{Endpoint: at("http", socket.Addr())}
}

// fullQueue is the address of a socket that listens with the shortest queue,
// full of connections nobody accepts: the next connection hangs.
func fullQueue(t *testing.T) net.Addr {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	for range 4 {
		conn, err := net.DialTimeout("tcp", address.String(), 200*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	t.Fatal("the queue never filled up")
	return nil
}

func writeFile(t *testing.T, dir, name, text string) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}
