package standin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// listener is a port that can be closed and opened again while the connections
// it accepted live on.
type listener struct {
	server *http.Server
	tls    *tls.Config

	mu      sync.Mutex
	addr    string // with the port that was taken, once open
	current net.Listener
}

func newListener(addr string, h http.Handler, tlsConfig *tls.Config) *listener {
	// A client that fails a handshake or is cut is what the tests are about,
	// not something to log between the journal's lines.
	quiet := log.New(io.Discard, "", 0)
	return &listener{
		addr: addr, tls: tlsConfig,
		// Both engines serve with uvicorn, and leave it at 5 s after which it closes a
		// connection without requests.
		server: &http.Server{Handler: h, ErrorLog: quiet, ReadHeaderTimeout: time.Minute, IdleTimeout: 5 * time.Second},
	}
}

func (l *listener) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		return nil
	}
	ln, err := net.Listen("tcp", l.addr)
	if err != nil {
		return err
	}
	l.current, l.addr = ln, ln.Addr().String()
	if l.tls != nil {
		ln = tls.NewListener(ln, l.tls)
	}
	go func() { _ = l.server.Serve(ln) }()
	return nil
}

// close refuses new connections.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		_ = l.current.Close()
		l.current = nil
	}
}

// shut ends everything. An answer that is complete still gets to its client:
// its handler may be done while its last bytes are not sent.
func (l *listener) shut() {
	l.close()
	ctx, cancel := context.WithTimeout(context.Background(), unwind)
	defer cancel()
	if l.server.Shutdown(ctx) != nil {
		_ = l.server.Close()
	}
}

// address is where a client on this machine reaches the port.
func (l *listener) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	host, port, err := net.SplitHostPort(l.addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return l.addr
}

// tlsConfig returns nil for a server that speaks plain HTTP.
func (e *Engine) tlsConfig() (*tls.Config, error) {
	o := e.options
	if o.KeyFile == "" {
		return nil, nil
	}
	var (
		pair tls.Certificate
		err  error
	)
	if o.KeyFile == "auto" {
		pair, err = selfSigned()
	} else {
		pair, err = tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("--ssl-keyfile %s, --ssl-certfile %s: %w", o.KeyFile, o.CertFile, err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	demand := tls.RequireAnyClientCert
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--ssl-ca-certs: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ssl-ca-certs %s: no certificate in it", o.CAFile)
		}
		demand = tls.RequireAndVerifyClientCert
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if !o.DemandClientCert && !e.Faults().ClientCert {
			return config, nil
		}
		strict := config.Clone()
		strict.ClientAuth = demand
		return strict, nil
	}
	return config, nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "stand-in engine"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
