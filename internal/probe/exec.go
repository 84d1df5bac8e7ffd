package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	spdytransport "k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/lastcall-dev/lastcall/api/names"
)

// mostComplaint is how much of standard error is kept, in bytes.
const mostComplaint = 1024

// pingPeriod keeps a connection through load balancers alive, as kubectl does.
const pingPeriod = 5 * time.Second

// execClient makes the URLs of pods/exec.
func execClient(config *rest.Config) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &corev1.SchemeGroupVersion, "/api"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.RESTClientFor(c)
}

// errTooMuch calls off a stream that says more than an answer can be.
var errTooMuch = failed(names.ReadTooLarge, "the program in the container says more than %d bytes", mostOutput)

// run runs a command in the target's container and returns what it says, which may
// have been cut.
func (r *Reader) run(ctx context.Context, t Target, command []string) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	u := r.exec.Post().Resource("pods").Namespace(t.Namespace).Name(t.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: t.Container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).
		URL()
	a, err := newAttempt(ctx, r.config, u)
	if err != nil {
		return nil, fmt.Errorf("preparing an exec: %w", err)
	}
	out := &capped{most: mostOutput, full: func() { cancel(errTooMuch) }}
	complaint := &capped{most: mostComplaint, full: func() {}}
	done := make(chan error, 1)
	// What client-go logs of a stream that ends badly is in the error too.
	quiet := klog.NewContext(ctx, logr.Discard())
	go func() {
		done <- a.executor.StreamWithContext(quiet, remotecommand.StreamOptions{Stdout: out, Stderr: complaint})
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
	}
	// A stream that ctx ended still writes to its buffers.
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	said := out.kept.Bytes()
	if err == nil || bytes.HasSuffix(said, []byte(endMark)) {
		return said, nil
	}
	return nil, a.explain(t, err, len(said), complaint.kept.String())
}

// attempt is one exec, and how the API server took it.
type attempt struct {
	executor remotecommand.Executor
	// refused is how the WebSocket's upgrade failed, where it did.
	refused error
	// status is that of the answer to SPDY's upgrade.
	status int
}

func newAttempt(ctx context.Context, config *rest.Config, u *url.URL) (*attempt, error) {
	a := &attempt{}
	websocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	if err != nil {
		return nil, err
	}
	fallback, err := a.spdy(ctx, config, u)
	if err != nil {
		return nil, err
	}
	a.executor, err = remotecommand.NewFallbackExecutor(websocket, fallback, func(err error) bool {
		a.refused = err
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	return a, err
}

// spdy is what remotecommand.NewSPDYExecutor makes, with a connection that ends
// with ctx: that one waits for the answer to its upgrade without any bound.
func (a *attempt) spdy(ctx context.Context, config *rest.Config, u *url.URL) (remotecommand.Executor, error) {
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	upgrader, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{TLS: tlsConfig, Proxier: config.Proxy, PingPeriod: pingPeriod})
	if err != nil {
		return nil, err
	}
	upgrader.Dialer = &net.Dialer{ControlContext: func(_ context.Context, _, _ string, c syscall.RawConn) error {
		context.AfterFunc(ctx, func() {
			// Fails where the connection is closed already.
			_ = c.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
		})
		return nil
	}}
	transport, err := rest.HTTPWrappersForConfig(config, upgrader)
	if err != nil {
		return nil, err
	}
	noting := roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := transport.RoundTrip(request)
		if err == nil {
			a.status = response.StatusCode
		}
		return response, err
	})
	return remotecommand.NewSPDYExecutorForTransports(noting, spdytransport.NewUpgraderForStreaming(upgrader), http.MethodPost, u)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// explain says why a command failed that said so many bytes and complained.
func (a *attempt) explain(t Target, err error, said int, complaint string) error {
	var exit utilexec.CodeExitError
	complaint = strings.TrimSpace(complaint)
	switch {
	case errors.As(err, &exit) && exit.Code == noPython:
		return failed(names.HeldReadFailed, "the image of container %s has no python3, by which its engine is asked", t.Container)
	case errors.As(err, &exit) && exit.Code == 128+int(syscall.SIGALRM):
		return failed(names.HeldReadTimedOut, "the program in the container did not end in %s", programLimit)
	case errors.As(err, &exit):
		return failed(names.HeldReadFailed, "the program in the container fails with exit code %d: %s", exit.Code, complaint)
	case said > 0:
		return failed(names.HeldReadIncomplete, "the answer was cut after %d bytes: %v", said, err)
	case a.forbidden():
		return failed(names.HeldExecForbidden, "the retirer needs the verbs get and create on pods/exec in namespace %s: %v", t.Namespace, a.both(err))
	}
	return a.both(err)
}

// both is the error, with that of the WebSocket where SPDY was refused too and says
// something else.
func (a *attempt) both(err error) error {
	if a.status == 0 || a.status == http.StatusSwitchingProtocols {
		return err
	}
	var upgrade *httpstream.UpgradeFailureError
	if errors.As(a.refused, &upgrade) && strings.Contains(err.Error(), upgrade.Cause.Error()) {
		return err
	}
	return fmt.Errorf("by WebSocket: %w; by SPDY: %w", a.refused, err)
}

// forbidden is whether the API server said so to one of the two, and the other was
// refused too.
func (a *attempt) forbidden() bool {
	var upgrade *httpstream.UpgradeFailureError
	return a.status == http.StatusForbidden ||
		a.status != http.StatusSwitchingProtocols && errors.As(a.refused, &upgrade) && apierrors.IsForbidden(upgrade.Cause)
}

// capped keeps what is written to it up to a number of bytes. The buffer is not
// embedded: its ReadFrom would be used instead of Write.
type capped struct {
	kept bytes.Buffer
	most int
	full func() // called when there is more
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.most - c.kept.Len(); room < len(p) {
		c.kept.Write(p[:room])
		c.full()
		return len(p), nil
	}
	return c.kept.Write(p)
}
