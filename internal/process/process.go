package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// gracefulStop is how long what runs may take to end after the signal. The chart's
// terminationGracePeriodSeconds is longer by as much as the election and the
// events take after it.
const gracefulStop = 10 * time.Second

// Flags are those that every binary has.
type Flags struct {
	MetricsAddress string
	HealthAddress  string
	LogLevel       slog.Level
}

// Add adds the flags to a set.
func (f *Flags) Add(flags *flag.FlagSet) {
	flags.StringVar(&f.MetricsAddress, "metrics-address", ":8080", "address of /metrics")
	flags.StringVar(&f.HealthAddress, "health-address", ":8081", "address of /livez and /readyz")
	flags.TextVar(&f.LogLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
}

// Manager is the part of a manager's options that the flags decide.
func (f *Flags) Manager(scheme *runtime.Scheme) ctrl.Options {
	return ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: f.MetricsAddress},
		HealthProbeBindAddress:  f.HealthAddress,
		LivenessEndpointName:    "/livez",
		GracefulShutdownTimeout: new(gracefulStop),
	}
}

// Run parses the command line and runs a binary until it ends or is signalled. It
// returns the exit code.
func Run(version string, f *Flags, run func(signalled context.Context) error) (code int) {
	f.Add(flag.CommandLine)
	flag.Parse()
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: f.LogLevel})))
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	klog.SetSlogLogger(slog.Default())

	slog.Info("Starting", "version", version)
	var err error
	if flag.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: there are only flags, see --help", flag.Arg(0))
	} else {
		err = run(ctrl.SetupSignalHandler())
	}
	if err != nil {
		slog.Error("Stopped", "error", err)
		return 1
	}
	slog.Info("Stopped")
	return 0
}

// syncedWithin is less than the second that a kubelet waits for a probe.
const syncedWithin = 500 * time.Millisecond

var errNotSynced = errors.New("the cache is not filled: the log says what cannot be listed")

// Synced is a readiness check: the process sees all that it is to act on. A replica
// that is not elected watches nothing and has nothing to fill.
func Synced(cache interface {
	WaitForCacheSync(ctx context.Context) bool
}) healthz.Checker {
	return func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), syncedWithin)
		defer cancel()
		if !cache.WaitForCacheSync(ctx) {
			return errNotSynced
		}
		return nil
	}
}
