package retirer

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// workloadVersions are those that Kueue has served Workloads in, the newest first.
var workloadVersions = []string{"v1beta2", "v1beta1"}

// gatherWorkloads looks up the Workloads that the protocol may bind or delete in this
// round, on the API server itself. What is bound must be from a round that reads all
// there. Where Kueue has taken over no Pod it is not asked for anything.
func (r *Reconciler) gatherWorkloads(ctx context.Context, live bool, s *seen) {
	for i := range s.observations.Replicas {
		replica := &s.observations.Replicas[i]
		of := s.queuedAs(replica)
		if !of.managed || of.stays && (!live || of.target != nil || !s.spec.Unwanted(replica.Role, replica.Ordinal)) {
			continue
		}
		w, err := r.workload(ctx, s, of)
		if err != nil {
			// Kueue's own failures must not keep a replica for ever.
			log.FromContext(ctx).Error(err, "Reading a Kueue Workload", "pod", replica.Members[0].Name)
		}
		replica.Workload, replica.WorkloadUnknown = w, err != nil
	}
}

// queued is what is known of a replica's Workload before it is looked up.
type queued struct {
	role    string
	ordinal int32
	// managed is whether Kueue has taken over its Pods, group their group's name, only
	// the UID of one Pod that is in no group. The last two are empty where neither is so.
	managed bool
	group   string
	only    types.UID
	// stays is whether a Pod of it does.
	stays bool
	// target is the replica that is being retired; nil where it is not.
	target *v1alpha1.RetirementTarget
}

func (s *seen) queuedAs(replica *retire.Replica) queued {
	of := queued{role: replica.Role, ordinal: replica.Ordinal}
	for i := range replica.Members {
		m := &replica.Members[i]
		pod := s.pods[m.UID]
		if pod.Labels[names.LabelKueueManaged] == names.KueueManaged {
			of.managed, of.group = true, pod.Labels[names.LabelKueueGroup]
		}
		of.stays = of.stays || m.LeavingBy.IsZero()
	}
	if of.group == "" && len(replica.Members) == 1 {
		of.only = replica.Members[0].UID
	}
	if operation := s.deployment.Status.Retirement; operation != nil {
		for i := range operation.Targets {
			t := &operation.Targets[i]
			if t.Role == of.role && t.Ordinal == of.ordinal && t.State != v1alpha1.StateAborted && t.State != v1alpha1.StateCompleted {
				of.target = t
			}
		}
	}
	return of
}

// workload is the one that belongs to a replica, whoever its Pods are being deleted by;
// nil where there is none. A single Pod holds nobody up, and its Workload is of interest
// only to its retirement.
func (r *Reconciler) workload(ctx context.Context, s *seen, of queued) (*retire.Workload, error) {
	var found *metav1.PartialObjectMetadata
	var err error
	switch {
	case of.target != nil && of.target.Workload != nil:
		found, err = r.workloadNamed(ctx, s.deployment.Namespace, of.target.Workload.Name)
	case of.group != "":
		found, err = r.workloadNamed(ctx, s.deployment.Namespace, of.group)
	case of.only != "" && of.stays:
		found, err = r.workloadOf(ctx, s.deployment.Namespace, of.only)
	}
	if err != nil || found == nil || found.DeletionTimestamp != nil || !s.owns(of, found) {
		return nil, err
	}
	return &retire.Workload{Name: found.Name, UID: found.UID, ResourceVersion: found.ResourceVersion}, nil
}

// owns reports whether a Workload is of a replica's Pods and of no other's: Kueue
// deletes all the Pods of a Workload that is deleted. An owner that is gone is told by
// its name.
func (s *seen) owns(of queued, w *metav1.PartialObjectMetadata) bool {
	member := false
	for _, owner := range w.OwnerReferences {
		role, ordinal, _, ok := render.SlotOf(s.deployment, owner.Name)
		if owner.Kind != "Pod" || !ok || role != of.role || ordinal != of.ordinal {
			return false
		}
		member = member || s.pods[owner.UID] != nil
	}
	return member
}

// workloadNamed is nil where there is none of that name, or no Kueue.
func (r *Reconciler) workloadNamed(ctx context.Context, namespace, name string) (*metav1.PartialObjectMetadata, error) {
	for _, version := range workloadVersions {
		w := &metav1.PartialObjectMetadata{}
		w.SetGroupVersionKind(workloadKind(version, "Workload"))
		switch err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, w); {
		case err == nil:
			return w, nil
		case !absent(err):
			return nil, fmt.Errorf("reading Workload %s: %w", name, err)
		}
	}
	return nil, nil
}

// workloadOf is that of a Pod which is in no group.
func (r *Reconciler) workloadOf(ctx context.Context, namespace string, pod types.UID) (*metav1.PartialObjectMetadata, error) {
	for _, version := range workloadVersions {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(workloadKind(version, "WorkloadList"))
		err := r.Live.List(ctx, all, client.InNamespace(namespace), client.MatchingLabels{names.LabelKueueOwner: string(pod)})
		switch {
		case err == nil && len(all.Items) > 0:
			all.Items[0].SetGroupVersionKind(workloadKind(version, "Workload"))
			return &all.Items[0], nil
		case err == nil:
			return nil, nil
		case !absent(err):
			return nil, fmt.Errorf("listing the Workloads of Pod %s: %w", pod, err)
		}
	}
	return nil, nil
}

func workloadKind(version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: names.KueueGroup, Version: version, Kind: kind}
}

// absent reports whether there is no such object, or none of its kind in this version.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// deleteWorkload deletes a Workload that is as it was seen. One that is not accepted is
// seen again in a later round.
func (r *Reconciler) deleteWorkload(ctx context.Context, s *seen, a retire.DeleteWorkload) error {
	only := client.Preconditions{UID: &a.Workload.UID, ResourceVersion: &a.Workload.ResourceVersion}
	for _, version := range workloadVersions {
		w := &unstructured.Unstructured{} // the answer to a delete is the whole object
		w.SetGroupVersionKind(workloadKind(version, "Workload"))
		w.SetNamespace(s.deployment.Namespace)
		w.SetName(a.Workload.Name)
		switch err := r.Client.Delete(ctx, w, only); {
		case err == nil:
			log.FromContext(ctx).Info("Deleted a Workload", "workload", a.Workload.Name, "uid", a.Workload.UID)
			return nil
		case !absent(err):
			return fmt.Errorf("deleting Workload %s: %w", a.Workload.Name, err)
		}
	}
	return nil
}
