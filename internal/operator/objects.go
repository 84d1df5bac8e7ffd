package operator

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// How failures and delays name objects: KIND/NAME.
const (
	kindPod     = "Pod/"
	kindService = "Service/"
	kindBudget  = "PodDisruptionBudget/"
)

// objects plans the Services and budgets: those that are missing or not as they
// were rendered are applied, and the Services of a role go once it is dropped and
// the last of its Pods is gone.
func (d *decision) objects() {
	for _, service := range d.staleServices() {
		if !d.mustWait(kindService + service.Name) {
			d.plan.Services = append(d.plan.Services, service)
		}
	}
	for _, budget := range d.staleBudgets() {
		if !d.mustWait(kindBudget + budget.Name) {
			d.plan.Budgets = append(d.plan.Budgets, budget)
		}
	}
	kept := render.Services(d.Deployment)
	for _, service := range d.Services {
		role := service.Labels[names.LabelComponent]
		inUse := slices.ContainsFunc(d.all, func(r *replica) bool { return r.role == role && len(r.present()) > 0 })
		wanted := slices.ContainsFunc(kept, func(s *corev1.Service) bool { return s.Name == service.Name })
		if !wanted && !inUse && service.DeletionTimestamp == nil {
			d.plan.Drop = append(d.plan.Drop, service)
		}
	}
}

// staleServices are those that are missing or not as they were rendered.
func (s *survey) staleServices() (stale []*corev1.Service) {
	for _, service := range render.Services(s.Deployment) {
		i := slices.IndexFunc(s.Services, func(seen corev1.Service) bool { return seen.Name == service.Name })
		if i < 0 || !sameMeta(&service.ObjectMeta, &s.Services[i].ObjectMeta) || !sameService(&service.Spec, &s.Services[i].Spec) {
			stale = append(stale, service)
		}
	}
	return stale
}

// staleBudgets are those that are missing or not as they were rendered. The one of
// a role that was dropped stays, as the operator may not delete it, and lets the
// role's last Pods go one after the other.
func (s *survey) staleBudgets() (stale []*policyv1.PodDisruptionBudget) {
	roles := slices.Clone(s.Deployment.Spec.Roles)
	for _, budget := range s.Budgets {
		name := budget.Labels[names.LabelComponent]
		if !slices.ContainsFunc(roles, func(r v1alpha1.Role) bool { return r.Name == name }) {
			roles = append(roles, v1alpha1.Role{Name: name, Replicas: new(int32(0))})
		}
	}
	for i := range roles {
		budget := render.Budget(s.Deployment, &roles[i], s.minAvailable(&roles[i]))
		i := slices.IndexFunc(s.Budgets, func(b policyv1.PodDisruptionBudget) bool { return b.Name == budget.Name })
		if i < 0 || !sameMeta(&budget.ObjectMeta, &s.Budgets[i].ObjectMeta) || !equality.Semantic.DeepEqual(budget.Spec, s.Budgets[i].Spec) {
			stale = append(stale, budget)
		}
	}
	return stale
}

// minAvailable is how many Pods of a role an eviction must leave: all but one of
// those that the spec asks for and those of replicas beyond it, for as long as they
// stay. A wanted Pod that leaves does not lower it: it is what was to go.
func (s *survey) minAvailable(role *v1alpha1.Role) int32 {
	count := render.Replicas(role) * render.Size(role)
	for _, r := range s.all {
		if r.role != role.Name || r.ordinal < render.Replicas(role) {
			continue
		}
		for _, pod := range r.present() {
			if !leaving(pod) && !ended(pod) {
				count++
			}
		}
	}
	return max(count, 1) - 1
}

// sameMeta reports whether an object has all the labels and annotations that it
// was rendered with. Others may be added by whoever uses the cluster.
func sameMeta(rendered, seen *metav1.ObjectMeta) bool {
	return contains(seen.Labels, rendered.Labels) && contains(seen.Annotations, rendered.Annotations)
}

func contains(all, some map[string]string) bool {
	for key, value := range some {
		if found, ok := all[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// sameService compares what traffic depends on. The API server fills in the rest.
func sameService(rendered, seen *corev1.ServiceSpec) bool {
	port := func(p corev1.ServicePort) corev1.ServicePort {
		return corev1.ServicePort{Name: p.Name, Port: p.Port, TargetPort: p.TargetPort, AppProtocol: p.AppProtocol}
	}
	return maps.Equal(rendered.Selector, seen.Selector) &&
		slices.EqualFunc(rendered.Ports, seen.Ports, func(a, b corev1.ServicePort) bool { return equality.Semantic.DeepEqual(port(a), port(b)) }) &&
		rendered.PublishNotReadyAddresses == seen.PublishNotReadyAddresses
}
