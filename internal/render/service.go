package render

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Services renders NAME, then for each role NAME-ROLE and, above size 1, the
// headless NAME-ROLE-group.
func Services(md *v1alpha1.ModelDeployment) []*corev1.Service {
	all := []*corev1.Service{frontService(md)}
	for i := range md.Spec.Roles {
		role := &md.Spec.Roles[i]
		all = append(all, roleService(md, role))
		if Size(role) > 1 {
			all = append(all, groupService(md, role))
		}
	}
	for _, s := range all {
		finish(md, s)
	}
	return all
}

// Budget renders the PodDisruptionBudget of a role over all members of its
// replicas: a replica that loses any of them is lost. minAvailable counts Pods.
//
// It is not maxUnavailable. The disruption controller resolves that, and
// percentages, through the scale subresource of the Pods' owner, and a
// ModelDeployment has none, because it has a number for each role. The budget
// would never sync, and refuse every eviction for ever.
func Budget(md *v1alpha1.ModelDeployment, role *v1alpha1.Role, minAvailable int32) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, Name: roleName(md, role), Labels: objectLabels(md, role)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(minAvailable)),
			Selector:     &metav1.LabelSelector{MatchLabels: selector(md, role)},
			// A Pod that never becomes Ready must not hold up a node's drain.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
	finish(md, b)
	return b
}

// frontService is the one for clients. Where roles split the work, it leaves out
// those that do not answer a client with tokens.
func frontService(md *v1alpha1.ModelDeployment) *corev1.Service {
	kinds := map[v1alpha1.RoleKind]bool{}
	for i := range md.Spec.Roles {
		kinds[Kind(&md.Spec.Roles[i])] = true
	}
	// Also where the spec has one kind: replicas of a role that was dropped stay for a
	// while, and those that prefill must not be sent a client's request.
	front := v1alpha1.Prefill
	switch {
	case kinds[v1alpha1.Server]:
		front = v1alpha1.Server
	case kinds[v1alpha1.Decode]:
		front = v1alpha1.Decode
	}
	selected := leaders(selector(md, nil))
	selected[names.LabelRoleKind] = string(front)
	// One Service has one port: it is https only where no replica behind it would
	// be spoken to in the wrong way.
	plain := slices.ContainsFunc(md.Spec.Roles, func(r v1alpha1.Role) bool {
		return Kind(&r) == front && !targetsTLS(md, &r)
	})
	return service(md, nil, md.Name, selected, !plain && len(md.Spec.Roles) > 0)
}

func roleService(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) *corev1.Service {
	return service(md, role, roleName(md, role), leaders(selector(md, role)), targetsTLS(md, role))
}

// groupService gives each member a name. The members look for each other before
// any of them is Ready, and it is asked for names only, so it has no ports.
func groupService(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) *corev1.Service {
	s := service(md, role, groupName(md, role), selector(md, role), false)
	s.Spec.Ports = nil
	s.Spec.ClusterIP = corev1.ClusterIPNone
	s.Spec.PublishNotReadyAddresses = true
	return s
}

func service(md *v1alpha1.ModelDeployment, role *v1alpha1.Role, name string, selected map[string]string, tls bool) *corev1.Service {
	port := corev1.ServicePort{Name: scheme(tls), Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(PortHTTP)}
	if tls {
		port.Port = 443
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, Name: name, Labels: objectLabels(md, role)},
		Spec: corev1.ServiceSpec{
			Selector: selected,
			Ports:    []corev1.ServicePort{port},
		},
	}
}

// targetsTLS reports whether what the role's Service sends requests to speaks TLS.
// Of a proxy nothing is known but its port; it is taken to speak plain HTTP.
func targetsTLS(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) bool {
	return role.Proxy == nil && servesTLS(&md.Spec, role)
}

// selector selects the Pods of the deployment, or those of one role.
func selector(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) map[string]string {
	selected := map[string]string{
		names.LabelInstance:  md.Name,
		names.LabelManagedBy: names.Operator,
	}
	if role != nil {
		selected[names.LabelComponent] = role.Name
	}
	return selected
}

// leaders narrows a selector to the Pods that requests may be sent to.
func leaders(selected map[string]string) map[string]string {
	selected[names.LabelMember] = "0"
	selected[names.LabelServing] = names.Serving
	return selected
}

// objectLabels are on everything that is rendered; the role is nil where it
// belongs to none.
func objectLabels(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) map[string]string {
	labels := selector(md, role)
	labels[names.LabelName] = names.ModelDeploymentName
	return labels
}

// finish leaves the digest of the object on it, so that a change is seen without
// comparing what the API server made of it, and makes the deployment its owner.
func finish(md *v1alpha1.ModelDeployment, object metav1.Object) {
	object.SetAnnotations(map[string]string{names.AnnotationSpecHash: digest(object)})
	own(md, object)
}

func own(md *v1alpha1.ModelDeployment, object metav1.Object) {
	kind := v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)
	object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(md, kind)})
}
