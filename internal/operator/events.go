package operator

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/report"
)

// What the operator did, for the action of its events.
const (
	actionCreate  = "Create"
	actionReplace = "Replace"
	actionReport  = "Report"
)

// created tells of a slot that was filled.
func (r *Reconciler) created(md *v1alpha1.ModelDeployment, c Creation) {
	r.metrics.created.Inc()
	// Events about the same objects with the same reason become one, whatever their
	// notes say.
	r.Events.Eventf(md, c.Pods[0], corev1.EventTypeNormal, names.EventReplicaCreated, actionCreate, "%s", note("created "+podNames(c.Pods)))
}

// replaced tells of a slot that is being emptied to be filled again.
func (r *Reconciler) replaced(md *v1alpha1.ModelDeployment, removal Removal) {
	r.metrics.replaced.WithLabelValues(removal.Reason).Inc()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, Name: removal.Pod, UID: removal.UID}}
	r.Events.Eventf(md, pod, corev1.EventTypeNormal, names.EventReplicaDeleted, actionReplace,
		"deleted Pod %s to replace %s: %s", removal.Pod, removal.Replica, removal.Reason)
}

// fail notes what the API server did not take, and tells of it once.
func (r *Reconciler) fail(md *v1alpha1.ModelDeployment, object, delayed string, f Failure) {
	key := client.ObjectKeyFromObject(md)
	r.metrics.failures.WithLabelValues(f.Reason).Inc()
	r.attempts.delay(key, delayed)
	if r.attempts.fail(key, object, f) {
		r.Events.Eventf(md, nil, corev1.EventTypeWarning, f.Reason, actionCreate, "%s", note(f.Message))
	}
}

// story tells what a new status says that the old one did not. Failures were told
// when they happened.
func (r *Reconciler) story(md *v1alpha1.ModelDeployment, now *v1alpha1.ModelDeploymentStatus) {
	var before string
	if c := meta.FindStatusCondition(md.Status.Conditions, names.ConditionProgressing); c != nil {
		before = c.Reason
	}
	c := meta.FindStatusCondition(now.Conditions, names.ConditionProgressing)
	if c.Reason == before {
		return
	}
	kind, reason := corev1.EventTypeNormal, c.Reason
	switch c.Reason {
	case names.ReasonCreateFailed, names.ReasonNameTaken, names.ReasonDeleting:
		return
	case names.ReasonRenderFailed, names.ReasonReplicaFailing:
		kind = corev1.EventTypeWarning
	case names.ReasonUpToDate:
		if before == names.ReasonRolloutInProgress {
			reason = names.EventRolloutCompleted
		}
	}
	r.Events.Eventf(md, nil, kind, reason, actionReport, "%s", note(c.Message))
}

// note is a message that the API server takes for an event.
func note(message string) string { return report.Cut(message, report.MaxNote) }

func podNames(pods []*corev1.Pod) string {
	all := make([]string, len(pods))
	for i, pod := range pods {
		all[i] = pod.Name
	}
	slices.Sort(all)
	if len(all) == 1 {
		return "Pod " + all[0]
	}
	return "Pods " + strings.Join(all, ", ")
}
