package retirer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/report"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/router"
)

// act carries actions out, each of them whatever became of the others, and returns
// when the next round is due. What fails is asked for again by a later round; where
// somebody else was faster, by one that comes soon.
func (r *Reconciler) act(ctx context.Context, s *seen, decided decision) (wake time.Time, err error) {
	var errs []error
	done := func(err error) {
		switch {
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			log.FromContext(ctx).V(1).Info("Somebody was faster", "error", err)
			wake = sooner(wake, r.Clock.Now().Add(conflictDelay))
		case err != nil:
			errs = append(errs, err)
		}
	}
	for _, action := range decided.actions {
		if w, ok := action.(retire.WakeAt); ok {
			wake = sooner(wake, w.Time)
			continue
		}
		done(r.do(ctx, s, action))
	}
	if decided.guard {
		done(finalizer.Add(ctx, r.Client, s.deployment, names.Retirer))
	}
	return wake, errors.Join(errs...)
}

// sooner is the earlier of two times; a zero one is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func (r *Reconciler) do(ctx context.Context, s *seen, action retire.Action) error {
	switch a := action.(type) {
	case retire.Disqualify:
		return r.mark(ctx, s, a.Pod, names.Withdrawn)
	case retire.Requalify:
		return r.mark(ctx, s, a.Pod, names.Serving)
	case retire.Probe:
		r.ask(s, a)
	case retire.AskRouter:
		r.askRouter(s, a.Pod)
	case retire.WithdrawFromRouter:
		r.routers.tell(ctx, s.router, a.Process, a.Pod, true)
	case retire.RestoreToRouter:
		r.routers.tell(ctx, s.router, a.Process, a.Pod, false)
	case retire.DeleteMember:
		r.delete(ctx, s, a)
	case retire.DeleteWorkload:
		return r.deleteWorkload(ctx, s, a)
	case retire.ClearRetry:
		return r.clearRetry(ctx, s.deployment, a.Token)
	case retire.ReleaseFinalizer:
		return r.release(ctx, s.deployment)
	}
	return nil
}

// mark says on a Pod whether its Services may choose it. A Pod of the same name
// with another UID is not the one meant, and the API server refuses it.
func (r *Reconciler) mark(ctx context.Context, s *seen, pod retire.PodRef, serving string) error {
	patch := merge(map[string]any{"uid": pod.UID, "labels": map[string]string{names.LabelServing: serving}})
	err := r.Client.Patch(ctx, &corev1.Pod{ObjectMeta: s.named(pod)}, patch, client.FieldOwner(names.Retirer))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("labelling Pod %s: %w", pod.Name, err)
	}
	return nil
}

func (s *seen) named(pod retire.PodRef) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.deployment.Namespace, Name: pod.Name, UID: pod.UID}
}

func merge(metadata map[string]any) client.Patch {
	text, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // strings always encode
	}
	return client.RawPatch(types.MergePatchType, text)
}

// delete deletes a member, and no other Pod of its name. What is not accepted is
// remembered: the proof that it stands on is about a moment that has passed.
func (r *Reconciler) delete(ctx context.Context, s *seen, a retire.DeleteMember) {
	only := client.Preconditions{UID: &a.Pod.UID}
	if a.ResourceVersion != "" {
		only.ResourceVersion = &a.ResourceVersion
	}
	logger := log.FromContext(ctx).WithValues("pod", a.Pod.Name, "uid", a.Pod.UID)
	switch err := r.Client.Delete(ctx, &corev1.Pod{ObjectMeta: s.named(a.Pod)}, only); {
	case err == nil:
		logger.Info("Deleted a Pod")
	case !apierrors.IsNotFound(err):
		if r.reads.refuse(s.key(), a.Pod.UID, retire.Refusal{At: r.Clock.Now(), Message: "the delete was not accepted: " + err.Error()}) {
			logger.Info("A delete was not accepted", "error", err)
		}
	}
}

// clearRetry removes the annotation, unless it asks for another retry by now.
func (r *Reconciler) clearRetry(ctx context.Context, md *v1alpha1.ModelDeployment, token string) error {
	value := md.Annotations[names.AnnotationRetryRetirement]
	if tokenOf(value) != token {
		return nil
	}
	key := strings.ReplaceAll(names.AnnotationRetryRetirement, "/", "~1") // as a JSON pointer has it
	return finalizer.Drop(ctx, r.Client, md, "/metadata/annotations/"+key, value, names.Retirer)
}

// tokenOf is the annotation's value as a status can record it: one that could not be
// recorded would ask for a retry for ever.
func tokenOf(value string) string { return report.Cut(value, maxToken) }

// release lets the ModelDeployment go.
func (r *Reconciler) release(ctx context.Context, md *v1alpha1.ModelDeployment) error {
	if err := finalizer.Remove(ctx, r.Client, md, names.Retirer); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Released the ModelDeployment")
	return nil
}

// ask makes a read that the protocol wants.
func (r *Reconciler) ask(s *seen, a retire.Probe) {
	pod := s.pods[a.Pod.UID]
	if pod == nil {
		return
	}
	record, _ := mutate.RecordOf(pod.Annotations)
	known, _ := engine.Lookup(engine.Name(record.Engine))
	q := request{of: s.key(), target: probe.Target{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		Container: engineContainer(pod), ContainerID: a.Pod.ContainerID,
		Engine: known, Endpoint: record.MetricsURL,
	}}
	if a.Clients {
		q.target.Ports = ports(pod)
		q.clients = s.clientsOf(pod)
		q.droppedAt = a.DroppedAt
	}
	r.reads.ask(q)
}

// askRouter asks the processes of the router about a member.
func (r *Reconciler) askRouter(s *seen, ref retire.PodRef) {
	pod := s.pods[ref.UID]
	if pod == nil {
		return
	}
	b := router.Backend{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels,
		Addrs: addresses(pod.Status.PodIPs, func(ip corev1.PodIP) string { return ip.IP }),
		Ready: slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}),
	}
	if served := ports(pod); len(served) > 0 {
		b.Port = served[0]
	}
	r.routers.ask(s.router, wanted{s.key(), b})
}

func (s *seen) clientsOf(pod *corev1.Pod) *clientsOf {
	of := &clientsOf{
		namespace: pod.Namespace, uid: pod.UID, group: pod.Spec.Subdomain, peers: s.deployment.Spec.Withdrawal.Peers,
		own:    addresses(pod.Status.PodIPs, func(ip corev1.PodIP) string { return ip.IP }),
		node:   addresses(pod.Status.HostIPs, func(ip corev1.HostIP) string { return ip.IP }),
		onHost: pod.Spec.HostNetwork,
	}
	for _, r := range s.observations.Replicas {
		if !slices.ContainsFunc(r.Members, func(m retire.Member) bool { return m.UID == pod.UID }) {
			continue
		}
		for _, m := range r.Members {
			if m.UID != pod.UID {
				of.members = append(of.members, addressesOf(s.pods[m.UID])...)
			}
		}
	}
	return of
}
