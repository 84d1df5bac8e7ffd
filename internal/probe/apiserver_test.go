package probe

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// session is one exec as the API server sees it.
type session struct {
	request        *http.Request
	stdout, stderr io.Writer
	status         io.Writer
	close          func()
	conn           net.Conn // beneath all of it
}

// exits ends an exec as the kubelet does.
func (s *session) exits(code int) {
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "ExitCode", Message: fmt.Sprint(code)}},
		}}
	}
	s.ends(status)
}

func (s *session) ends(status metav1.Status) {
	text, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	_, _ = s.status.Write(text)
	s.close()
}

// cut resets the connection, when what was said has been read.
func (s *session) cut() {
	_ = s.conn.(*net.TCPConn).CloseWrite()
	_ = s.conn.Close()
}

// serve is an API server whose pods/exec are answered by a function; what that
// returns without ending it stays open until the other side is gone.
func serve(t testing.TB, answer func(*session)) *httptest.Server {
	return startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &session{request: r, conn: r.Context().Value(connKey{}).(net.Conn)}
		var gone <-chan struct{}
		if wsstream.IsWebSocketRequest(r) {
			gone = s.webSocket(w, r)
		} else {
			gone = s.spdy(w, r)
		}
		if gone == nil {
			return
		}
		answer(s)
		<-gone
	}))
}

func (s *session) webSocket(w http.ResponseWriter, r *http.Request) <-chan struct{} {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {
		Binary: true,
		Channels: []wsstream.ChannelType{
			wsstream.ReadChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.IgnoreChannel,
		},
	}})
	_, streams, err := conn.Open(w, r)
	if err != nil {
		return nil
	}
	gone := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, streams[0]); close(gone) }()
	s.stdout, s.stderr, s.status, s.close = streams[1], streams[2], streams[3], func() { _ = conn.Close() }
	return gone
}

func (s *session) spdy(w http.ResponseWriter, r *http.Request) <-chan struct{} {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return nil
	}
	type taken struct {
		httpstream.Stream

		replied <-chan struct{}
	}
	streams := make(chan taken)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replied <-chan struct{}) error {
		streams <- taken{stream, replied}
		return nil
	})
	if conn == nil {
		return nil
	}
	for range 3 {
		stream := <-streams
		<-stream.replied
		switch stream.Headers().Get(corev1.StreamType) {
		case corev1.StreamTypeStdout:
			s.stdout = stream
		case corev1.StreamTypeStderr:
			s.stderr = stream
		case corev1.StreamTypeError:
			s.status = stream
		}
	}
	gone := make(chan struct{})
	go func() { <-conn.CloseChan(); close(gone) }()
	s.close = func() { _ = conn.Close() }
	return gone
}

type connKey struct{}

func startServer(t testing.TB, handler http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	server.Start()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server
}

// saying is what the program says where it says this, byte by byte.
func saying(text string) func(*session) {
	return func(s *session) {
		_, _ = io.WriteString(s.stdout, text)
		s.exits(0)
	}
}

// running runs the command of an exec here.
func running(s *session) {
	argv := s.request.URL.Query()["command"]
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = s.stdout, s.stderr
	_ = cmd.Run()
	s.exits(cmd.ProcessState.ExitCode())
}

// proxy stands in front of an API server and answers requests to upgrade to a
// WebSocket itself, with this status.
func proxy(t *testing.T, server *httptest.Server, status int, body string) *httptest.Server {
	target, err := url.Parse(server.URL)
	require.NoError(t, err)
	next := httputil.NewSingleHostReverseProxy(target)
	return startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wsstream.IsWebSocketRequest(r) {
			refuse(w, status, body)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

func refuse(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// forbidden is the API server's word for it.
func forbidden(verb string) string {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
		Message: `pods "qwen-server-3-0" is forbidden: User "retirer" cannot ` + verb + ` resource "pods/exec"`,
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// at is the client configuration for a server.
func at(server *httptest.Server) *rest.Config { return &rest.Config{Host: server.URL} }

// mute listens, reads, and answers nothing for ever.
func mute(t *testing.T) *counting {
	l := &counting{Listener: listen(t, "tcp", "127.0.0.1:0")}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go hang(conn)
		}
	}()
	return l
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	return l
}

// counting counts the connections whose other side has not closed them.
type counting struct {
	net.Listener

	taken, open atomic.Int32
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.taken.Add(1)
	c.open.Add(1)
	return &counted{Conn: conn, gone: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

type counted struct {
	net.Conn

	gone func()
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var timeout net.Error
	if err != nil && (!errors.As(err, &timeout) || !timeout.Timeout()) {
		c.gone()
	}
	return n, err
}

const soon = 10 * time.Second

// certificate is a TLS server's own, as PEM.
func certificate(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
