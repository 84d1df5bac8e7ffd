package retirer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/router"
)

// The keys of the Secret that spec.router.secretName names; those of a ServiceAccount's
// token are the same.
const (
	keyToken = corev1.ServiceAccountTokenKey
	keyCA    = corev1.ServiceAccountRootCAKey
)

// requestTimeout bounds one request of a process.
const requestTimeout = 3 * time.Second

// access is how a router is asked: by its family, with what its Secret has now.
func (r *routers) access(ctx context.Context, ref routerRef) (router.Family, *http.Client, error) {
	family, known := router.Of(ref.name)
	if !known {
		return nil, nil, fmt.Errorf("spec.router.name: %s is no router that this version can ask", ref.name)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: ref.serverName, InsecureSkipVerify: ref.skipVerify} //nolint:gosec // only where the spec says so
	transport := &http.Transport{
		// Without a proxy: it would have to be the Pod itself that answers. Without kept
		// connections: they would outlive what is asked for.
		DisableKeepAlives: true, TLSClientConfig: config, MaxResponseHeaderBytes: 64 << 10, ResponseHeaderTimeout: requestTimeout,
	}
	c := &http.Client{Timeout: requestTimeout, Transport: transport}
	if ref.secretName == "" {
		return family, c, nil
	}
	secret := &corev1.Secret{}
	switch err := r.live.Get(ctx, types.NamespacedName{Namespace: ref.secretOf, Name: ref.secretName}, secret); {
	case apierrors.IsForbidden(err):
		return nil, nil, fmt.Errorf("spec.router.secretName: the retirer may not get Secret %s; bind a Role to its ServiceAccount that lets it", ref.secretName)
	case err != nil:
		return nil, nil, fmt.Errorf("spec.router.secretName: %w", err)
	}
	if ca := secret.Data[keyCA]; len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, nil, fmt.Errorf("spec.router.secretName: %s of Secret %s has no certificate", keyCA, ref.secretName)
		}
	}
	if token := secret.Data[keyToken]; len(token) > 0 {
		c.Transport = bearer{transport, string(token), strconv.Itoa(int(ref.port))}
	}
	return family, c, nil
}

// bearer sends a token, to one port and no other: metrics are elsewhere, and often in
// the clear.
type bearer struct {
	http.RoundTripper
	token, port string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Port() != b.port {
		return b.RoundTripper.RoundTrip(request)
	}
	if !validHeader(b.token) {
		return nil, errors.New("the token of its Secret is no bearer token")
	}
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(request)
}

// validHeader keeps an error of net/http from quoting a token that is none.
func validHeader(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}
