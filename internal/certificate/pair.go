package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// authorityKey is the key of the CA certificates that verify the pair, in a
// Secret's data and as a file name. The other two are those of a TLS Secret.
const authorityKey = "ca.crt"

// A pair is a serving certificate with its key, and the CA certificates that
// verify it. All are PEM.
type pair struct {
	certificate, key, authorities []byte
}

func pairOf(data map[string][]byte) pair {
	return pair{
		certificate: data[corev1.TLSCertKey],
		key:         data[corev1.TLSPrivateKeyKey],
		authorities: data[authorityKey],
	}
}

func (p pair) data() map[string][]byte {
	return map[string][]byte{
		corev1.TLSCertKey:       p.certificate,
		corev1.TLSPrivateKeyKey: p.key,
		authorityKey:            p.authorities,
	}
}

// parse returns the pair ready to serve. It fails if a part is missing or
// malformed, if the key is another certificate's, or if no CA in the pair signed
// the certificate for all of names. It does not look at the time: an expired
// pair is a pair.
func (p pair) parse(names ...string) (*tls.Certificate, error) {
	if len(p.certificate) == 0 || len(p.key) == 0 {
		return nil, errors.New("there is no certificate yet")
	}
	parsed, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.authorities) {
		return nil, fmt.Errorf("%s holds no certificate", authorityKey)
	}
	intermediates := x509.NewCertPool()
	for _, der := range parsed.Certificate[1:] {
		intermediate, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		intermediates.AddCert(intermediate)
	}
	_, err = parsed.Leaf.Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   parsed.Leaf.NotBefore,
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := parsed.Leaf.VerifyHostname(name); err != nil {
			return nil, err
		}
	}
	return &parsed, nil
}
