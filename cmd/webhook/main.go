// Command webhook serves lastcall's admission webhooks.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/admission"
	"github.com/lastcall-dev/lastcall/internal/certificate"
	"github.com/lastcall-dev/lastcall/internal/process"
	"github.com/lastcall-dev/lastcall/internal/shutdown"
)

// version is set by the linker.
var version = "dev"

type options struct {
	process.Flags
	name, namespace string
	certificateDir  string
	port            int
	shutdownDelay   time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.name, "name", "lastcall-webhook", "name of the Service, and of the Secret, Lease and webhook configurations that self-signed certificates are kept in")
	flag.StringVar(&o.namespace, "namespace", "", "namespace of the Service")
	flag.StringVar(&o.certificateDir, "certificate-dir", "", "directory with tls.crt, tls.key and ca.crt; without it the webhook makes its own certificate")
	flag.IntVar(&o.port, "port", 9443, "port of the admission server")
	flag.DurationVar(&o.shutdownDelay, "shutdown-delay", 10*time.Second, "how long to go on answering after a SIGTERM")
	os.Exit(process.Run(version, &o.Flags, func(signalled context.Context) error { return run(signalled, o) }))
}

func run(signalled context.Context, o options) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(
		corev1.AddToScheme(scheme),
		admissionregistrationv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme),
	); err != nil {
		return err
	}

	serving := &certificate.Serving{Clock: clock.RealClock{}}
	server := newServer(signalled, o.port, serving)
	if err := admission.Register(server, scheme, metrics.Registry); err != nil {
		return err
	}
	managed := o.Manager(scheme)
	managed.WebhookServer = server
	mgr, err := newManager(o, managed, serving)
	if err != nil {
		return err
	}
	if err := errors.Join(
		mgr.Add(server),
		mgr.AddReadyzCheck("certificate", serving.Check),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: names.MetricCertificateExpiry,
			Help: "End of the serving certificate in seconds since the epoch, 0 while there is none.",
		}, serving.Expiry)),
	); err != nil {
		return err
	}
	return mgr.Start(shutdown.Delay(signalled, o.shutdownDelay))
}

func newServer(signalled context.Context, port int, serving *certificate.Serving) webhook.Server {
	return leavingServer{signalled: signalled, Server: webhook.NewServer(webhook.Options{
		Port: port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = serving.GetCertificate
			c.MinVersion = tls.VersionTLS12
			// API servers call webhooks over HTTP/1.1, to spread over the replicas.
			c.NextProtos = []string{"http/1.1"}
		}},
	})}
}

// leavingServer ends its connections after the signal, so that callers move to
// another replica.
type leavingServer struct {
	webhook.Server
	signalled context.Context
}

func (s leavingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, shutdown.Handler(s.signalled, hook))
}

// newManager adds the source of the certificate to a manager. With the files of
// cert-manager the process never talks to the API server.
func newManager(o options, managed ctrl.Options, serving *certificate.Serving) (ctrl.Manager, error) {
	if o.certificateDir != "" {
		mgr, err := ctrl.NewManager(&rest.Config{}, managed)
		if err != nil {
			return nil, err
		}
		return mgr, mgr.Add(&certificate.Files{Directory: o.certificateDir, Serving: serving})
	}

	if o.namespace == "" {
		return nil, errors.New("--namespace is needed to make a certificate; or give one with --certificate-dir")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, err
	}
	own := certificate.SelfSigned{Namespace: o.namespace, Name: o.name}
	managed.Cache = own.CacheOptions()
	managed.LeaderElection = true
	managed.LeaderElectionReleaseOnCancel = true
	// Whoever loses an election exits. Rotation is never urgent, so a replica
	// should not end because the API server was away for some seconds.
	managed.LeaseDuration = new(60 * time.Second)
	managed.RenewDeadline = new(45 * time.Second)
	managed.RetryPeriod = new(5 * time.Second)
	managed.LeaderElectionResourceLockInterface, err = own.Lock(config)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, managed)
	if err != nil {
		return nil, err
	}
	return mgr, own.Register(mgr, serving)
}
