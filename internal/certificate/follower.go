package certificate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Follower serves what the Secret holds. It runs on every replica.
type Follower struct {
	Client  client.Reader
	Secret  client.ObjectKey
	Serving *Serving
}

// Register adds the follower to mgr, whose cache must hold only the one Secret.
func (f *Follower) Register(mgr ctrl.Manager) error {
	everyReplica := false
	// A Secret that was missing before the process started is no event.
	once := source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		queue.Add(ctrl.Request{NamespacedName: f.Secret})
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("serving-certificate").
		For(&corev1.Secret{}).
		WatchesRawSource(once).
		WithOptions(controller.Options{NeedLeaderElection: &everyReplica}).
		Complete(f)
}

// Reconcile serves what the Secret holds. One that cannot be served, as it is
// before the first rotation, or that is missing leaves what was served before.
func (f *Follower) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	logger := log.FromContext(ctx)
	secret := &corev1.Secret{}
	err := f.Client.Get(ctx, request.NamespacedName, secret)
	f.Serving.secretMissing.Store(apierrors.IsNotFound(err))
	if apierrors.IsNotFound(err) {
		logger.Error(errSecretMissing, "Nobody renews the certificate")
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	changed, err := f.Serving.load(pairOf(secret.Data))
	if err != nil {
		logger.Info("The Secret holds no certificate to serve", "reason", err.Error())
		return ctrl.Result{}, nil
	}
	if changed {
		logger.Info("Serving a new certificate")
	}
	return ctrl.Result{}, nil
}
