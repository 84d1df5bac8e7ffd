package operator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// AddToScheme adds the kinds that the operator works with.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, corev1.AddToScheme, policyv1.AddToScheme)
	return builder.AddToScheme(scheme)
}

// CacheOptions keeps what the operator built and no other Pod of the cluster, and
// of each Pod no more than decisions need.
func CacheOptions() cache.Options {
	built := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{names.LabelManagedBy: names.Operator})}
	pods := built
	pods.Transform = func(object any) (any, error) {
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields = nil
			pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName}
		}
		return object, nil
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: pods, &corev1.Service{}: built, &policyv1.PodDisruptionBudget{}: built,
		},
	}
}

// New is the Reconciler of an operator that has just started, and remembers
// nothing yet. For cached and live see Reconciler's Client and Live.
func New(cached client.Client, live client.Reader, recorder events.EventRecorder, c clock.Clock, registry prometheus.Registerer) *Reconciler {
	return &Reconciler{
		Client: cached, Live: live, Events: recorder, Clock: c,
		metrics: newMetrics(registry), attempts: newAttempts(c),
	}
}

// Options tell how to run the operator.
type Options struct {
	// Workers is how many ModelDeployments are worked on at a time; 8 when zero.
	Workers int
	// Registry takes the metrics.
	Registry prometheus.Registerer
}

// Register adds the operator to a manager whose scheme and cache are those of
// this package.
func Register(mgr ctrl.Manager, o Options) error {
	r := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(names.Operator), clock.RealClock{}, o.Registry)
	workers := o.Workers
	if workers == 0 {
		workers = 8
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("modeldeployment").
		For(&v1alpha1.ModelDeployment{}).
		Owns(&corev1.Pod{}).
		Owns(&corev1.Service{}).
		Owns(&policyv1.PodDisruptionBudget{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			// The replica that waits for the lease has its cache filled already.
			EnableWarmup: new(true),
			// Errors of the connection; what the API server refuses has its own delays.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}
