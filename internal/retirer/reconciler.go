package retirer

import (
	"context"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// Reconciler takes replicas of ModelDeployments away.
type Reconciler struct {
	// Client reads from the cache; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.WithDelayedExecution
	// Budgets bound each operation where its ModelDeployment does not say otherwise.
	Budgets retire.Budgets

	*lead
	reads   *reads
	routers *routers
	metrics *metrics
}

// NeedLeaderElection keeps a replica that does not lead from reading.
func (r *Reconciler) NeedLeaderElection() bool { return true }

// conflictDelay is what the operator takes to write what it makes of the same news. What
// is decided then is decided from the API server, so no cache has to catch up.
const conflictDelay = 100 * time.Millisecond

// Reconcile brings the retirement of one ModelDeployment a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.gather(ctx, false, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if seen.released() {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	decided := seen.decide()
	if decided.mattersBeyondReads() {
		// The cache can lag behind what this retirer, or the one before it, wrote: a
		// mark that looks undone may be set, a replica that is to go may be wanted again.
		if seen, err = r.gather(ctx, true, request.NamespacedName); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if seen.released() {
			return ctrl.Result{}, nil
		}
		decided = seen.decide()
	}
	return r.carryOut(ctx, seen, decided)
}

// carryOut persists what was decided before anything is done about it, and tells of
// it after.
func (r *Reconciler) carryOut(ctx context.Context, seen *seen, decided decision) (ctrl.Result, error) {
	if decided.changed {
		err := r.write(ctx, seen.deployment, decided.status)
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			return again(conflictDelay), nil
		case err != nil:
			return ctrl.Result{}, fmt.Errorf("writing the retirement: %w", err)
		}
		r.tell(ctx, seen, decided.status)
	}
	r.reads.keep(seen.key(), boundBy(decided.status.Retirement, underWay))
	r.routers.keep(seen.key(), seen.router, boundBy(decided.status.Retirement, anyTarget))
	wake, err := r.act(ctx, seen, decided)
	if err != nil {
		// An operation has its times, and one thing that fails must not keep the others
		// from them. Without one, the time to the next try grows.
		if wake.IsZero() || !goesOn(decided.status.Retirement) {
			return ctrl.Result{}, err
		}
		log.FromContext(ctx).Error(err, "Not done, and tried again", "at", wake)
	}
	if wake.IsZero() {
		return ctrl.Result{}, nil
	}
	return again(max(wake.Sub(r.Clock.Now()), time.Millisecond)), nil
}

// again asks for another round. One that is due soon goes on with what was decided: where
// it came after all that is only looked at, the time of the operation would be over first.
func again(after time.Duration) ctrl.Result {
	next := priorityNone
	if after <= retire.MarkInterval {
		next = priorityRead
	}
	return ctrl.Result{RequeueAfter: after, Priority: &next}
}

// forget forgets what was read of the members of a ModelDeployment.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.reads.forget(key)
	r.routers.keep(key, routerRef{}, nil)
}

// goesOn reports whether an operation has a target that is not given up.
func goesOn(operation *v1alpha1.RetirementStatus) bool {
	return operation != nil && operation.State != v1alpha1.StateAborted
}

// decision is what a round came to.
type decision struct {
	status  retire.Status
	actions []retire.Action
	// changed is whether the status is another than it was.
	changed bool
	// guard is whether the finalizer is missing, as on an object that is older than it.
	guard bool
}

func (s *seen) decide() decision {
	status, actions := retire.Step(s.now, s.spec, s.status, s.observations)
	status.Retirement = bounded(status.Retirement)
	return decision{status, actions, !reflect.DeepEqual(status, s.status), finalizer.Missing(s.deployment)}
}

func (d *decision) mattersBeyondReads() bool {
	for _, action := range d.actions {
		switch action.(type) {
		case retire.Probe, retire.AskRouter, retire.WakeAt:
		default:
			return true
		}
	}
	return d.changed || d.guard
}

// key is the name of the ModelDeployment.
func (s *seen) key() types.NamespacedName { return client.ObjectKeyFromObject(s.deployment) }
