package envtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lastcall-dev/lastcall/internal/admission"
)

// webhookServer serves lastcall's handlers where the installed configurations
// look for them, and remembers what it was asked.
type webhookServer struct {
	options webhook.Options
	client  *http.Client
	stop    func() error

	mu    sync.Mutex
	asked []*admissionv1.AdmissionRequest
}

func newWebhookServer(installed envtest.WebhookInstallOptions) *webhookServer {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(installed.LocalServingCAData)
	return &webhookServer{
		options: webhook.Options{
			Host:    installed.LocalServingHost,
			Port:    installed.LocalServingPort,
			CertDir: installed.LocalServingCertDir,
		},
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		}},
	}
}

// recording is a server whose handlers are first written down.
type recording struct {
	webhook.Server
	into *webhookServer
}

func (r recording) Register(path string, handler http.Handler) {
	r.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var review admissionv1.AdmissionReview
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.into.mu.Lock()
		r.into.asked = append(r.into.asked, review.Request)
		r.into.mu.Unlock()
		request.Body = io.NopCloser(bytes.NewReader(body))
		handler.ServeHTTP(w, request)
	}))
}

func (s *webhookServer) address() string {
	return net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))
}

// start returns when the server answers.
func (s *webhookServer) start() error {
	served := recording{Server: webhook.NewServer(s.options), into: s}
	if err := admission.Register(served, scheme.Scheme, prometheus.NewRegistry()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- served.Start(ctx) }()
	s.stop = func() error {
		cancel()
		return <-stopped
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		response, err := s.client.Get("https://" + s.address())
		if err == nil {
			return response.Body.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the webhook server does not answer: %w", err)
		}
	}
}

// down takes the server away for the rest of the test.
func (s *webhookServer) down(t *testing.T) {
	t.Helper()
	require.NoError(t, s.stop())
	t.Cleanup(func() { require.NoError(t, s.start()) })
}

// requests are those about the object of that name since the suite began.
func (s *webhookServer) requests(name string) []*admissionv1.AdmissionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var about []*admissionv1.AdmissionRequest
	for _, request := range s.asked {
		if request.Name == name {
			about = append(about, request)
		}
	}
	return about
}

// ask sends the creation of object straight to a handler.
func (s *webhookServer) ask(t *testing.T, path string, resource metav1.GroupVersionResource, object []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Resource: resource, Namespace: releaseNamespace,
	}}
	review.APIVersion, review.Kind = admissionv1.SchemeGroupVersion.String(), "AdmissionReview"
	review.Request.Object.Raw = object
	body, err := json.Marshal(review)
	require.NoError(t, err)
	response, err := s.client.Post("https://"+s.address()+path, "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // only read
	require.Equal(t, http.StatusOK, response.StatusCode)
	var answer admissionv1.AdmissionReview
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	return answer.Response
}
