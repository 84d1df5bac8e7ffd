package operator

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/report"
)

// fieldManager owns what the operator applies.
const fieldManager = names.Operator

// Reconciler makes and replaces the replicas of ModelDeployments.
type Reconciler struct {
	// Client reads from the cache; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	Events events.EventRecorder
	Clock  clock.Clock

	metrics  *metrics
	attempts *attempts
}

// Reconcile brings one ModelDeployment a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.gather(ctx, r.Client, request.NamespacedName)
	if apierrors.IsNotFound(err) {
		r.attempts.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := Decide(seen)
	if plan.Acts() {
		// The cache can lag behind what this operator, or the one before it, wrote: a
		// Pod that looks absent may be there, one that looks whole may be leaving.
		if seen, err = r.gather(ctx, r.Live, request.NamespacedName); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		plan = Decide(seen)
	}
	actErr := r.act(ctx, seen, plan)
	r.attempts.annotate(seen)
	if err := r.report(ctx, seen); err != nil && actErr == nil {
		actErr = err
	}
	if apierrors.IsConflict(actErr) || apierrors.IsNotFound(actErr) {
		// Somebody else was first, which the cache will show.
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return r.again(seen, plan), actErr
}

// conflictDelay is about what a cache takes to catch up.
const conflictDelay = time.Second

// again says when to look at the deployment once more although nothing changed.
func (r *Reconciler) again(seen *Seen, plan *Plan) ctrl.Result {
	at := plan.RecheckAt
	for _, retry := range r.attempts.of(seen.Deployment) {
		if at.IsZero() || retry.Before(at) {
			at = retry
		}
	}
	if at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(at.Sub(r.Clock.Now()), 0) + 10*time.Millisecond}
}

// gather reads everything about one ModelDeployment.
func (r *Reconciler) gather(ctx context.Context, from client.Reader, key types.NamespacedName) (*Seen, error) {
	seen := &Seen{Deployment: &v1alpha1.ModelDeployment{}, Now: r.Clock.Now()}
	md := seen.Deployment
	if err := from.Get(ctx, key, md); err != nil {
		return nil, err
	}
	mine := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{
		names.LabelManagedBy: names.Operator, names.LabelInstance: key.Name,
	}}
	var pods corev1.PodList
	if err := from.List(ctx, &pods, mine...); err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	seen.Pods = controlled(md, pods.Items, func(p *corev1.Pod) metav1.Object { return p })
	// A Service or a budget is applied whole, so an old view of it does no harm.
	var services corev1.ServiceList
	if err := r.Client.List(ctx, &services, mine...); err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	seen.Services = controlled(md, services.Items, func(s *corev1.Service) metav1.Object { return s })
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.Client.List(ctx, &budgets, mine...); err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	seen.Budgets = controlled(md, budgets.Items, func(b *policyv1.PodDisruptionBudget) metav1.Object { return b })
	r.attempts.annotate(seen)
	return seen, nil
}

// controlled are the objects whose controller is this very ModelDeployment. One
// that an earlier one of the same name left behind is not.
func controlled[T any](md *v1alpha1.ModelDeployment, items []T, object func(*T) metav1.Object) (mine []T) {
	for i := range items {
		if metav1.IsControlledBy(object(&items[i]), md) {
			mine = append(mine, items[i])
		}
	}
	return mine
}

// report writes the status if it changed, and then tells the story in events.
func (r *Reconciler) report(ctx context.Context, seen *Seen) error {
	md := seen.Deployment
	now := Report(seen)
	if equality.Semantic.DeepEqual(ours(&md.Status), now) {
		return nil
	}
	if err := report.Status(ctx, r.Client, md, &now, fieldManager); err != nil {
		return err
	}
	r.story(md, &now)
	return nil
}

// ours is the part of a status that the operator writes.
func ours(status *v1alpha1.ModelDeploymentStatus) v1alpha1.ModelDeploymentStatus {
	mine := v1alpha1.ModelDeploymentStatus{
		ObservedGeneration: status.ObservedGeneration,
		Phase:              status.Phase,
		RoleSummary:        status.RoleSummary,
		Roles:              status.Roles,
	}
	for _, kind := range []string{names.ConditionReady, names.ConditionProgressing} { // as Report has them
		if c := meta.FindStatusCondition(status.Conditions, kind); c != nil {
			mine.Conditions = append(mine.Conditions, *c)
		}
	}
	return mine
}
