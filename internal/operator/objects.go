package operator

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
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
	kept := map[string]bool{}
	for _, service := range render.Services(d.Deployment) {
		kept[service.Name] = true
		i := slices.IndexFunc(d.Services, func(s corev1.Service) bool { return s.Name == service.Name })
		same := i >= 0 && sameMeta(&service.ObjectMeta, &d.Services[i].ObjectMeta) && sameService(&service.Spec, &d.Services[i].Spec)
		if !same && !d.mustWait(kindService+service.Name) {
			d.plan.Services = append(d.plan.Services, service)
		}
	}
	for _, service := range d.Services {
		role := service.Labels[names.LabelComponent]
		inUse := slices.ContainsFunc(d.all, func(r *replica) bool { return r.role == role && len(r.present()) > 0 })
		if !kept[service.Name] && !inUse && service.DeletionTimestamp == nil {
			d.plan.Drop = append(d.plan.Drop, service)
		}
	}
	for i := range d.Deployment.Spec.Roles {
		role := &d.Deployment.Spec.Roles[i]
		budget := render.Budget(d.Deployment, role, d.minAvailable(role.Name, render.Replicas(role)*render.Size(role)))
		i := slices.IndexFunc(d.Budgets, func(b policyv1.PodDisruptionBudget) bool { return b.Name == budget.Name })
		same := i >= 0 && sameMeta(&budget.ObjectMeta, &d.Budgets[i].ObjectMeta) && equality.Semantic.DeepEqual(budget.Spec, d.Budgets[i].Spec)
		if !same && !d.mustWait(kindBudget+budget.Name) {
			d.plan.Budgets = append(d.plan.Budgets, budget)
		}
	}
}

// minAvailable is how many Pods of a role an eviction must leave: all but one. A
// replica beyond the spec's counts for as long as it stays, or a drain could take
// one of those and one of the others at once.
func (d *decision) minAvailable(role string, wanted int32) int32 {
	staying := int32(0)
	for _, r := range d.all {
		if r.role != role {
			continue
		}
		for _, pod := range r.present() {
			if !leaving(pod) && !ended(pod) {
				staying++
			}
		}
	}
	return max(wanted, staying, 1) - 1
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
