// Command noop is the yardstick of lastcall's webhook: the least that a webhook
// for Pods can be with controller-runtime's typed Defaulter. It is served as
// lastcall's is, takes the same flags, and changes nothing. On another path it
// adds an annotation, because the API server has more to do for any webhook that
// changes something.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	lastcall "github.com/lastcall-dev/lastcall/internal/admission"
)

func main() {
	options := webhook.Options{TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS12
		c.NextProtos = []string{"http/1.1"}
	}}}
	flag.StringVar(&options.CertDir, "certificate-dir", "", "directory with tls.crt and tls.key")
	flag.IntVar(&options.Port, "port", 9443, "port of the admission server")
	metricsAddress := flag.String("metrics-address", ":8080", "address of /metrics")
	healthAddress := flag.String("health-address", ":8081", "address of the health endpoints")
	flag.Parse()

	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	if err := run(options, *metricsAddress, *healthAddress); err != nil {
		slog.Error("Stopped", "error", err)
		os.Exit(1)
	}
}

func run(options webhook.Options, metricsAddress, healthAddress string) error {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Scheme:                 scheme,
		WebhookServer:          webhook.NewServer(options),
		Metrics:                metricsserver.Options{BindAddress: metricsAddress},
		HealthProbeBindAddress: healthAddress,
	})
	if err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(lastcall.PathPods, admission.WithDefaulter(scheme, nothing{}))
	mgr.GetWebhookServer().Register("/annotate-pods", admission.WithDefaulter(scheme, annotation{}))
	return mgr.Start(ctrl.SetupSignalHandler())
}

type nothing struct{}

func (nothing) Default(context.Context, *corev1.Pod) error { return nil }

type annotation struct{}

func (annotation) Default(_ context.Context, pod *corev1.Pod) error {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "bench.lastcall.dev/annotated", "true")
	return nil
}
