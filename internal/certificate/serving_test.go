package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// server answers over TLS with what serving holds.
func server(t *testing.T, serving *Serving) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{GetCertificate: serving.GetCertificate}
	// httptest would put a certificate of its own first.
	s.Listener = tls.NewListener(s.Listener, s.TLS)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// trusting returns a client that trusts only authorities, as an API server does with a caBundle.
func trusting(t *testing.T, authorities []byte) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authorities))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

func get(c *http.Client, s *httptest.Server) error {
	response, err := c.Get("https://" + s.Listener.Addr().String())
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func TestRotationWhileServing(t *testing.T) {
	serving := Serving{Clock: realTime}
	s := server(t, &serving)
	ca := newAuthority(t, "ca")
	first, second := ca.issue(t, time.Hour), ca.issue(t, 2*time.Hour)

	_, err := serving.load(first)
	require.NoError(t, err)
	old := trusting(t, first.authorities)
	require.NoError(t, get(old, s))

	changed, err := serving.load(second)
	require.NoError(t, err)
	assert.True(t, changed)
	assert.NoError(t, get(old, s), "a connection from before goes on")

	connection, err := tls.Dial("tcp", s.Listener.Addr().String(), old.Transport.(*http.Transport).TLSClientConfig.Clone())
	require.NoError(t, err)
	defer connection.Close() //nolint:errcheck // nothing was written
	parsed, err := second.parse()
	require.NoError(t, err)
	assert.True(t, connection.ConnectionState().PeerCertificates[0].Equal(parsed.Leaf), "a new connection sees the new certificate")

	changed, err = serving.load(second)
	require.NoError(t, err)
	assert.False(t, changed, "the same certificate again is no change")
}

func TestCertificateFromAnotherAuthority(t *testing.T) {
	serving := Serving{Clock: realTime}
	s := server(t, &serving)
	before, after := newAuthority(t, "before").issue(t, time.Hour), newAuthority(t, "after").issue(t, time.Hour)

	_, err := serving.load(before)
	require.NoError(t, err)
	require.NoError(t, get(trusting(t, before.authorities), s))
	require.Error(t, get(trusting(t, after.authorities), s))

	_, err = serving.load(after)
	require.NoError(t, err)
	assert.NoError(t, get(trusting(t, after.authorities), s))
	assert.Error(t, get(trusting(t, before.authorities), s))
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		serving := Serving{Clock: realTime}
		require.EqualError(t, serving.Check(nil), "there is no serving certificate yet")
		_, err := serving.GetCertificate(nil)
		require.Error(t, err, "a handshake without a certificate")
		require.Zero(t, serving.Expiry())

		ca := newAuthority(t, "ca")
		_, err = serving.load(ca.issue(t, time.Hour))
		require.NoError(t, err)
		require.NoError(t, serving.Check(nil))
		require.InDelta(t, realTime.Now().Add(time.Hour).Unix(), serving.Expiry(), 1)

		pass(time.Hour + time.Second)
		require.EqualError(t, serving.Check(nil), "the serving certificate expired at 2000-01-01T01:00:00Z")

		_, err = serving.load(ca.issue(t, time.Hour))
		require.NoError(t, err)
		require.NoError(t, serving.Check(nil), "it recovers without a restart")
	})
}

func TestWhatCannotBeServedIsRefused(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	good, stranger := ca.issue(t, time.Hour), other.issue(t, time.Hour)

	for name, p := range map[string]pair{
		"nothing at all":                {},
		"no key":                        {certificate: good.certificate, authorities: good.authorities},
		"no authority":                  {certificate: good.certificate, key: good.key},
		"no PEM":                        {certificate: []byte("x"), key: []byte("y"), authorities: good.authorities},
		"the key of another":            {certificate: good.certificate, key: stranger.key, authorities: good.authorities},
		"the authority of another":      {certificate: good.certificate, key: good.key, authorities: stranger.authorities},
		"half of a rotation: key first": {certificate: stranger.certificate, key: good.key, authorities: good.authorities},
	} {
		t.Run(name, func(t *testing.T) {
			serving := Serving{Clock: realTime}
			_, err := serving.load(good)
			require.NoError(t, err)

			_, err = serving.load(p)
			require.Error(t, err)

			current, err := serving.GetCertificate(nil)
			require.NoError(t, err)
			parsed, err := good.parse(host)
			require.NoError(t, err)
			assert.True(t, current.Leaf.Equal(parsed.Leaf), "what was served before stays")
		})
	}

	t.Run("a certificate for another name", func(t *testing.T) {
		_, err := good.parse("elsewhere.svc")
		assert.ErrorContains(t, err, "elsewhere.svc")
	})
}
