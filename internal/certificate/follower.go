package certificate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Follower serves what the Secret holds. It runs on every replica.
type Follower struct {
	Serving *Serving
}

// Register adds the follower to mgr, whose cache must hold only the one Secret.
func (f *Follower) Register(mgr ctrl.Manager) error {
	everyReplica := false
	return ctrl.NewControllerManagedBy(mgr).
		Named("serving-certificate").
		For(&corev1.Secret{}).
		WithOptions(controller.Options{NeedLeaderElection: &everyReplica}).
		Complete(reconcile.AsReconciler(mgr.GetClient(), f))
}

// Reconcile serves what secret holds. A Secret that cannot be served, as it is
// before the first rotation, leaves what was served before.
func (f *Follower) Reconcile(ctx context.Context, secret *corev1.Secret) (ctrl.Result, error) {
	changed, err := f.Serving.load(pairOf(secret.Data))
	if err != nil {
		log.FromContext(ctx).Info("The Secret holds no certificate to serve", "reason", err.Error())
		return ctrl.Result{}, nil
	}
	if changed {
		log.FromContext(ctx).Info("Serving a new certificate")
	}
	return ctrl.Result{}, nil
}
