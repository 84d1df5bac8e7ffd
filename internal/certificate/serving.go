package certificate

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Serving is the certificate a server answers with, none at first. All methods
// may be called at any time.
type Serving struct {
	// Clock says when the certificate has expired.
	Clock clock.PassiveClock

	current       atomic.Pointer[tls.Certificate]
	secretMissing atomic.Bool
}

var (
	errNoCertificate = errors.New("there is no serving certificate yet")
	errSecretMissing = errors.New("the Secret of the serving certificate is missing; " + remedy)
)

// GetCertificate is for tls.Config. It fails a handshake while there is no
// certificate.
func (s *Serving) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current := s.current.Load()
	if current == nil {
		return nil, errNoCertificate
	}
	return current, nil
}

// Check is the readiness check: an error says that the API server would not
// trust what this replica serves.
func (s *Serving) Check(*http.Request) error {
	current := s.current.Load()
	switch {
	case current == nil && s.secretMissing.Load():
		return errSecretMissing
	case current == nil:
		return errNoCertificate
	}
	now := s.Clock.Now()
	switch leaf := current.Leaf; {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the serving certificate expired at %s", leaf.NotAfter.Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the serving certificate is not valid before %s", leaf.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// Expiry is the end of the certificate's validity in seconds since the epoch, 0
// while there is none.
func (s *Serving) Expiry() float64 {
	current := s.current.Load()
	if current == nil {
		return 0
	}
	return float64(current.Leaf.NotAfter.Unix())
}

// load serves p from now on and reports whether that is a change. A pair that
// cannot be served is an error, and what was served before stays.
func (s *Serving) load(p pair) (changed bool, err error) {
	next, err := p.parse()
	if err != nil {
		return false, err
	}
	previous := s.current.Swap(next)
	return previous == nil || !previous.Leaf.Equal(next.Leaf), nil
}
