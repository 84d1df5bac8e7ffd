package retirer

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// AddToScheme adds the kinds that the retirer works with.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(v1alpha1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme)
	return builder.AddToScheme(scheme)
}

// CacheOptions keeps the Pods that the operator built and no others, of each no more
// than decisions need, and of nodes whether they answer.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Label:     labels.SelectorFromSet(labels.Set{names.LabelManagedBy: names.Operator}),
				Transform: slimPod,
			},
			&corev1.Node{}: {Transform: slimNode},
		},
	}
}

func slimPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		pod.ManagedFields = nil
		spec := corev1.PodSpec{
			NodeName: pod.Spec.NodeName, TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds, Subdomain: pod.Spec.Subdomain,
			HostNetwork: pod.Spec.HostNetwork,
		}
		slim := func(all []corev1.Container) (slimmed []corev1.Container) {
			for _, c := range all {
				slimmed = append(slimmed, corev1.Container{Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args, Env: c.Env, Ports: c.Ports})
			}
			return slimmed
		}
		spec.Containers, spec.InitContainers = slim(pod.Spec.Containers), slim(pod.Spec.InitContainers)
		pod.Spec = spec
	}
	return object, nil
}

func slimNode(object any) (any, error) {
	if node, ok := object.(*corev1.Node); ok {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion},
			Status:     corev1.NodeStatus{Conditions: node.Status.Conditions},
		}, nil
	}
	return object, nil
}

// Options tell how to run the retirer.
type Options struct {
	// Workers is how many ModelDeployments are worked on at a time; 8 when zero.
	Workers int
	// Budgets bound each operation; those that are zero are the protocol's.
	Budgets retire.Budgets
	// Prober reads members; through pods/exec when nil.
	Prober Prober
	// Registry takes the metrics.
	Registry prometheus.Registerer
}

// New is the Reconciler of a retirer that has just started, and remembers nothing
// yet, and reads nothing before Start. For cached and live see Reconciler's Client and
// Live; wake asks for a round, and must not block.
func New(cached client.Client, live client.Reader, recorder events.EventRecorder, c clock.WithDelayedExecution, o Options, wake func(types.NamespacedName)) *Reconciler {
	m, l := newMetrics(o.Registry), &lead{clock: c}
	return &Reconciler{
		Client: cached, Live: live, Events: recorder, Clock: c, Budgets: budgets(o.Budgets), metrics: m, lead: l,
		reads: &reads{
			prober: o.Prober, clients: &clients{live: live, clock: c, listings: map[string]*listing{}}, clock: c, metrics: m, wake: wake,
			slots: make(slots, atOnce), lead: l, members: map[types.NamespacedName]map[types.UID]*history{},
		},
		routers: &routers{
			live: live, clock: c, metrics: m, wake: wake, slots: make(slots, processesAtOnce), patient: make(slots, processesAtOnce), lead: l, all: map[routerRef]*asked{},
		},
	}
}

func budgets(b retire.Budgets) retire.Budgets {
	for _, budget := range []struct {
		is      *time.Duration
		without time.Duration
	}{{&b.Withdraw, retire.DefaultWithdraw}, {&b.Drain, retire.DefaultDrain}, {&b.Total, retire.DefaultTotal}} {
		if *budget.is == 0 {
			*budget.is = budget.without
		}
	}
	return b
}

// Register adds the retirer to a manager whose scheme and cache are those of this
// package.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Prober == nil {
		reader, err := probe.New(mgr.GetConfig(), mgr.GetAPIReader(), clock.RealClock{})
		if err != nil {
			return err
		}
		o.Prober = reader
	}
	rounds := make(chan event.TypedGenericEvent[*v1alpha1.ModelDeployment], 1024)
	wake := func(key types.NamespacedName) {
		md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		select {
		case rounds <- event.TypedGenericEvent[*v1alpha1.ModelDeployment]{Object: md}:
		default: // the round that the protocol asked for comes a little later
		}
	}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(names.Retirer), clock.RealClock{}, o, wake)
	o.Registry.MustRegister(newHolds(mgr.GetClient(), clock.RealClock{}, mgr.Elected()))
	if err := mgr.Add(r); err != nil {
		return err
	}
	workers := o.Workers
	if workers == 0 {
		workers = 8
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("retirement").
		For(&v1alpha1.ModelDeployment{}).
		Owns(&corev1.Pod{}).
		Watches(&v1alpha1.ModelDeployment{}, handler.Funcs{UpdateFunc: edited}).
		WatchesRawSource(source.Channel(rounds, handler.TypedFuncs[*v1alpha1.ModelDeployment, reconcile.Request]{GenericFunc: read})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			// The replica that waits for the lease has its cache filled already.
			EnableWarmup: new(true),
			RateLimiter:  workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second),
		}).
		Complete(r)
}

// The priorities of rounds, where more are due than can be had.
const (
	priorityNone = iota
	// priorityRead is for what was read, or asked of a router: it becomes old.
	priorityRead
	// priorityEdit is for what people ask for, such as that a replica stays.
	priorityEdit
)

func read(_ context.Context, e event.TypedGenericEvent[*v1alpha1.ModelDeployment], queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	enqueue(queue, e.Object, priorityRead)
}

func edited(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	asked := func(o client.Object) string { return o.GetAnnotations()[names.AnnotationRetryRetirement] }
	if e.ObjectNew.GetGeneration() != e.ObjectOld.GetGeneration() || asked(e.ObjectNew) != asked(e.ObjectOld) {
		enqueue(queue, e.ObjectNew, priorityEdit)
	}
}

func enqueue(queue workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object, priority int) {
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
	if queue, has := queue.(priorityqueue.PriorityQueue[reconcile.Request]); has {
		queue.AddWithOpts(priorityqueue.AddOpts{Priority: &priority}, request)
		return
	}
	queue.Add(request)
}
