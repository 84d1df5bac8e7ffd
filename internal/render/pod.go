package render

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Replica renders the Pods of one replica, member 0, the leader, first. They are
// as they are to be created; admission adds the hook and the grace period. The
// ModelDeployment is not changed and shares nothing with them.
func Replica(md *v1alpha1.ModelDeployment, role *v1alpha1.Role, ordinal int32) []*corev1.Pod {
	hash := Hash(md, role)
	var pods []*corev1.Pod
	for index := range Size(role) {
		pod := member{md, role.DeepCopy(), ordinal, index}.pod()
		pod.Annotations[names.AnnotationSpecHash] = hash
		own(md, pod)
		pods = append(pods, pod)
	}
	return pods
}

// PodName is the name of one member: NAME-ROLE-ORDINAL, above size 1
// NAME-ROLE-ORDINAL-MEMBER.
func PodName(md *v1alpha1.ModelDeployment, role *v1alpha1.Role, ordinal, member int32) string {
	name := replicaName(md, role, ordinal)
	if Size(role) > 1 {
		name += fmt.Sprintf("-%d", member)
	}
	return name
}

// replicaName is the name of a replica's Pods without their number in it.
func replicaName(md *v1alpha1.ModelDeployment, role *v1alpha1.Role, ordinal int32) string {
	return fmt.Sprintf("%s-%d", roleName(md, role), ordinal)
}

// roleName is the name of the role's Service and PodDisruptionBudget.
func roleName(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) string {
	return md.Name + "-" + role.Name
}

// groupName is the name of the headless Service that gives the members of a
// replica their addresses. A role's name has no dashes, so no other role of the
// deployment has a Service of this name.
func groupName(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) string {
	return roleName(md, role) + "-group"
}

// member is one Pod to render. The Pod takes over parts of the role, which must be
// a copy.
type member struct {
	md             *v1alpha1.ModelDeployment
	role           *v1alpha1.Role
	ordinal, index int32
}

func (m member) leads() bool { return m.index == 0 }

// pod is the Pod without owner and digest, which are not part of the digest.
func (m member) pod() *corev1.Pod {
	role := m.role
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   m.md.Namespace,
			Name:        PodName(m.md, role, m.ordinal, m.index),
			Labels:      m.labels(),
			Annotations: m.annotations(),
		},
		Spec: corev1.PodSpec{
			Containers:         []corev1.Container{m.engine()},
			RestartPolicy:      corev1.RestartPolicyAlways,
			ImagePullSecrets:   role.ImagePullSecrets,
			ServiceAccountName: role.ServiceAccountName,
			Volumes:            role.Volumes,
			NodeSelector:       role.NodeSelector,
			Tolerations:        role.Tolerations,
			Affinity:           role.Affinity,
			PriorityClassName:  role.PriorityClassName,
			SchedulerName:      role.SchedulerName,
			// A Service named vllm would set VLLM_PORT, which vLLM reads as its own.
			EnableServiceLinks: new(false),
		},
	}
	if role.Affinity != nil && *role.Affinity == (corev1.Affinity{}) { // as templates write none
		pod.Spec.Affinity = nil
	}
	if role.RuntimeClassName != "" {
		pod.Spec.RuntimeClassName = &role.RuntimeClassName
	}
	if role.Proxy != nil && m.leads() {
		pod.Spec.InitContainers = []corev1.Container{m.proxy()}
	}
	if Size(role) > 1 {
		pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, groupName(m.md, role)
	}
	m.group(pod.Labels, pod.Annotations)
	return pod
}

// labels are the role's own under lastcall's, which Services and the retirer
// select by.
func (m member) labels() map[string]string {
	labels := maps.Clone(m.role.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, objectLabels(m.md, m.role))
	maps.Copy(labels, map[string]string{
		names.LabelOrdinal:  strconv.Itoa(int(m.ordinal)),
		names.LabelMember:   strconv.Itoa(int(m.index)),
		names.LabelSize:     strconv.Itoa(int(Size(m.role))),
		names.LabelRoleKind: string(Kind(m.role)),
		names.LabelServing:  names.Serving,
	})
	return labels
}

// annotations are the role's own under lastcall's. Scrapers are sent to the
// leader, and to where the role says its metrics are.
func (m member) annotations() map[string]string {
	spec, role := &m.md.Spec, m.role
	annotations := maps.Clone(role.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[names.AnnotationEngine] = string(Engine(spec).Name)
	if seconds, annotated := GraceSeconds(role); annotated {
		annotations[names.AnnotationGraceSeconds] = strconv.FormatInt(seconds, 10)
	}
	if TakenOver(role) {
		annotations[names.AnnotationTakeOver] = "true"
	}
	if m.leads() {
		port := strconv.Itoa(int(EnginePort(spec, role)))
		annotations[names.AnnotationPrometheusScrape] = "true"
		annotations[names.AnnotationPrometheusPort] = cmp.Or(role.Annotations[names.AnnotationMetricsPort], port)
		annotations[names.AnnotationPrometheusScheme] = cmp.Or(role.Annotations[names.AnnotationMetricsScheme], scheme(servesTLS(spec, role)))
		annotations[names.AnnotationPrometheusPath] = cmp.Or(role.Annotations[names.AnnotationMetricsPath], "/metrics")
	}
	return annotations
}

// SlotOf reads role, ordinal and member from a Pod's name, as PodName makes it.
// Names cannot be edited, as labels can; and roles have no dashes, so they are told
// apart.
func SlotOf(md *v1alpha1.ModelDeployment, pod string) (role string, ordinal, member int32, ok bool) {
	rest, ok := strings.CutPrefix(pod, md.Name+"-")
	parts := strings.Split(rest, "-")
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return "", 0, 0, false
	}
	numbers := make([]int32, 2)
	for i, text := range parts[1:] {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 || text != strconv.FormatInt(n, 10) {
			return "", 0, 0, false
		}
		numbers[i] = int32(n)
	}
	return parts[0], numbers[0], numbers[1], true
}
