package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

// act carries a plan out. Services come first: members find their leader through
// one. What the API server does not take is remembered for the status and tried
// again later; the errors returned are of the connection.
func (r *Reconciler) act(ctx context.Context, seen *Seen, plan *Plan) error {
	md := seen.Deployment
	if plan.Guard {
		if err := finalizer.Add(ctx, r.Client, md, fieldManager); err != nil {
			return err
		}
	}
	var errs []error
	for _, service := range plan.Services {
		errs = append(errs, r.apply(ctx, md, service, &corev1.Service{}))
	}
	for _, budget := range plan.Budgets {
		errs = append(errs, r.apply(ctx, md, budget, &policyv1.PodDisruptionBudget{}))
	}
	for i := range plan.Drop {
		service := &plan.Drop[i]
		err := r.Client.Delete(ctx, service, client.Preconditions{UID: &service.UID})
		errs = append(errs, client.IgnoreNotFound(err))
	}
	told := map[string]bool{}
	for _, removal := range plan.Remove {
		removed, err := r.remove(ctx, md, removal)
		errs = append(errs, err)
		if removed && !told[removal.Replica] {
			told[removal.Replica] = true
			r.replaced(md, removal)
			if removal.mayRecur() {
				r.attempts.delay(client.ObjectKeyFromObject(md), removal.Replica)
			}
		}
	}
	return errors.Join(append(errs, r.createAll(ctx, md, plan.Create))...)
}

// createAll fills slots side by side. Where the admission webhook does not answer,
// which can take seconds each time, the rest is left for later.
func (r *Reconciler) createAll(ctx context.Context, md *v1alpha1.ModelDeployment, creations []Creation) error {
	var away atomic.Bool
	var group errgroup.Group
	group.SetLimit(createsAtOnce)
	for _, creation := range creations {
		group.Go(func() error {
			if away.Load() {
				return nil
			}
			answered, err := r.create(ctx, md, creation)
			if !answered {
				away.Store(true)
			}
			return err
		})
	}
	return group.Wait()
}

// createsAtOnce bounds how many replicas of one ModelDeployment are being created
// at a time: admission takes most of it, and has two replicas.
const createsAtOnce = 4

// remove deletes one Pod, and reports whether it was this call that did.
func (r *Reconciler) remove(ctx context.Context, md *v1alpha1.ModelDeployment, removal Removal) (bool, error) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, Name: removal.Pod}}
	err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &removal.UID})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return false, nil // it is gone; another Pod of its name is not the one meant
	case err != nil:
		return false, fmt.Errorf("deleting Pod %s: %w", removal.Pod, err)
	}
	return true, nil
}

// mayRecur reports whether the replica that follows may well end the same way, so
// that it is not made at once.
func (r *Removal) mayRecur() bool {
	switch r.Reason {
	case names.ReplacedPodEnded, names.ReplacedRestarted, names.ReplacedNotInjected:
		return true
	}
	return false
}

// create fills a slot. It stops at the first Pod that is not taken: the members
// of a replica are of no use without each other. It reports whether the admission
// webhook answered.
func (r *Reconciler) create(ctx context.Context, md *v1alpha1.ModelDeployment, creation Creation) (answered bool, err error) {
	for _, pod := range creation.Pods {
		object := kindPod + pod.Name
		err := r.Client.Create(ctx, pod, client.FieldOwner(fieldManager))
		switch {
		case err == nil && wrongHook(pod) != "":
			return true, r.expel(ctx, md, pod, creation.Replica)
		case err == nil:
			r.attempts.succeed(client.ObjectKeyFromObject(md), object)
		case apierrors.IsAlreadyExists(err):
			seen := &corev1.Pod{}
			if err := r.Live.Get(ctx, client.ObjectKeyFromObject(pod), seen); err != nil {
				return true, client.IgnoreNotFound(err)
			}
			r.taken(md, object, creation.Replica, seen)
			return true, nil
		case !refused(err):
			return true, fmt.Errorf("creating %s: %w", object, err)
		default:
			r.fail(md, object, creation.Replica, Failure{
				Reason:  names.ReasonCreateFailed,
				Message: fmt.Sprintf("creating Pod %s: %s", pod.Name, message(err)),
			})
			return !apierrors.IsInternalError(err), nil
		}
	}
	r.created(md, creation)
	return true, nil
}

// wrongHook says why a Pod that was just created does not drain as its digest says;
// empty where it does. Where the webhook is upgraded after the operator, it still
// injects the old hook for a moment.
func wrongHook(pod *corev1.Pod) string {
	switch record, ok := mutate.RecordOf(pod.Annotations); {
	case !ok:
		return "without its drain hook: the API server did not ask lastcall's admission webhook; `helm upgrade` restores its configuration"
	case record.Outcome == names.OutcomeInjected && record.HookVersion != drain.HookVersion:
		return fmt.Sprintf("with version %s of the drain hook, not %s: the admission webhook is of another version than the operator; this passes when an upgrade is through", record.HookVersion, drain.HookVersion)
	}
	return ""
}

// expel deletes a Pod at once that came back without the drain hook it should have.
func (r *Reconciler) expel(ctx context.Context, md *v1alpha1.ModelDeployment, pod *corev1.Pod, replica string) error {
	_, err := r.remove(ctx, md, Removal{Pod: pod.Name, UID: pod.UID, Replica: replica, Reason: names.ReplacedNotInjected})
	r.fail(md, kindPod+pod.Name, replica, Failure{
		Reason:  names.ReasonCreateFailed,
		Message: fmt.Sprintf("Pod %s was created and deleted at once: it came %s", pod.Name, wrongHook(pod)),
	})
	return err
}

// taken tells a name that belongs to somebody else from a Pod of our own that was
// created after we looked.
func (r *Reconciler) taken(md *v1alpha1.ModelDeployment, object, delayed string, seen client.Object) {
	if seen.GetDeletionTimestamp() != nil { // such as what an earlier ModelDeployment of this name left
		r.attempts.wait(client.ObjectKeyFromObject(md), delayed, conflictDelay)
		return
	}
	f := Failure{Reason: names.ReasonNameTaken, Message: fmt.Sprintf("%s has a name that this ModelDeployment needs and is not its own: delete or rename one of the two", object)}
	if metav1.IsControlledBy(seen, md) {
		if seen.GetLabels()[names.LabelManagedBy] == names.Operator && seen.GetLabels()[names.LabelInstance] == md.Name {
			r.attempts.delay(client.ObjectKeyFromObject(md), delayed)
			return
		}
		f.Message = fmt.Sprintf("%s is this ModelDeployment's but has lost its labels %s and %s: put them back, or delete it", object, names.LabelManagedBy, names.LabelInstance)
	}
	r.fail(md, object, delayed, f)
}

// apply brings a Service or a budget to what was rendered. One that belongs to
// somebody else is not touched.
func (r *Reconciler) apply(ctx context.Context, md *v1alpha1.ModelDeployment, rendered, found client.Object) error {
	gvk, err := apiutil.GVKForObject(rendered, r.Client.Scheme())
	if err != nil {
		return err
	}
	object := gvk.Kind + "/" + rendered.GetName()
	err = r.Live.Get(ctx, client.ObjectKeyFromObject(rendered), found)
	if err == nil && !metav1.IsControlledBy(found, md) {
		r.taken(md, object, object, found)
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %s: %w", object, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rendered)
	if err != nil {
		return err
	}
	content["apiVersion"], content["kind"] = gvk.GroupVersion().String(), gvk.Kind
	unstructured.RemoveNestedField(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	if uid := found.GetUID(); uid != "" {
		// One that was deleted meanwhile and made anew by somebody else is not ours.
		_ = unstructured.SetNestedField(content, string(uid), "metadata", "uid")
	}
	err = r.Client.Apply(ctx, configuration(content), client.FieldOwner(fieldManager), client.ForceOwnership)
	if err == nil {
		r.attempts.succeed(client.ObjectKeyFromObject(md), object)
		return nil
	}
	if !refused(err) {
		return fmt.Errorf("applying %s: %w", object, err)
	}
	r.fail(md, object, object, Failure{Reason: names.ReasonCreateFailed, Message: fmt.Sprintf("applying %s: %s", object, message(err))})
	return nil
}

func configuration(content map[string]any) runtime.ApplyConfiguration {
	return client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
}

// refused reports whether the API server answered and will not take the object as
// it is: invalid, over a quota, denied by or for want of an admission webhook.
// The rest is of the connection, and passes.
func refused(err error) bool {
	denied := strings.Contains(err.Error(), "admission webhook") // with whatever code it chose
	return denied || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsMethodNotSupported(err)
}

func message(err error) string {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Message != "" {
		return status.Status().Message
	}
	return err.Error()
}
