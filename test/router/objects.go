package router

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// The ports of a fake router in a cluster. Clients, the control API and the faults are at
// Port; a ModelDeployment names Port for the gateways, whose metrics are where their flags
// say, and EPPPort for llm-d.
const (
	Port        = 8000
	MetricsPort = 29000
	EPPPort     = 9090
	AdminPort   = 19000 // llm-d: the gateway's Envoy
)

// Router is a fake router to deploy.
type Router struct {
	Name     string // of the Deployment and all that belongs to it; its Pods have the label app with it
	Release  bundle.Release
	Replicas int32 // processes; 1 when 0

	// Selector chooses the Pods it sends to; PrefillSelector and DecodeSelector do where
	// prefill and decode are apart, except for llm-d, which goes by the role label.
	Selector, PrefillSelector, DecodeSelector string
	EnginePort                                int // 8000 when 0
	Policy                                    string
	// Args are more flags, of the real router or of the fake.
	Args []string
	// Grace is how long a process may finish what is open, in seconds; 30 when 0.
	Grace int64
}

// PodLabels are those of its Pods.
func (r Router) PodLabels() map[string]string { return map[string]string{"app": r.Name} }

// Command is the command line of a process, as a user would write it for the real router.
func (r Router) Command(namespace string) []string {
	engine := strconv.Itoa(cmp.Or(r.EnginePort, 8000))
	argv := []string{r.Release.Program(), "--version", r.Release.Version}
	add := func(flag string, values ...string) { argv = append(append(argv, flag), values...) }
	if r.Release.Family == fake.LLMD {
		add("--listen", fmt.Sprintf(":%d", Port))
		add("--admin", fmt.Sprintf(":%d", AdminPort))
		add("--metrics-port", strconv.Itoa(EPPPort))
		add("--pool-name", r.Name)
		add("--pool-namespace", namespace)
		add("--endpoint-selector", r.Selector)
		add("--endpoint-target-ports", engine)
		return append(argv, r.Args...)
	}
	add("--host", "0.0.0.0")
	add("--port", strconv.Itoa(Port))
	add("--prometheus-host", "0.0.0.0")
	add("--prometheus-port", strconv.Itoa(MetricsPort))
	add("--service-discovery")
	add("--service-discovery-namespace", namespace)
	add("--service-discovery-port", engine)
	if r.Policy != "" {
		add("--policy", r.Policy)
	}
	switch {
	case r.PrefillSelector == "":
		add("--selector", strings.Split(r.Selector, ",")...)
		return append(argv, r.Args...)
	case r.Release.Family == fake.VLLMRouter:
		add("--vllm-pd-disaggregation")
	default:
		add("--pd-disaggregation")
	}
	add("--prefill-selector", strings.Split(r.PrefillSelector, ",")...)
	add("--decode-selector", strings.Split(r.DecodeSelector, ",")...)
	return append(argv, r.Args...)
}

// Objects are what a router is made of: a Deployment, a Service on port 80, and a
// ServiceAccount that may list and watch the namespace's Pods.
func (r Router) Objects(namespace string) []client.Object {
	meta := metav1.ObjectMeta{Name: r.Name, Namespace: namespace, Labels: r.PodLabels()}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: r.Name, Namespace: namespace}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: r.Name},
		},
		r.deployment(meta),
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Selector: r.PodLabels(), Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(Port)}},
		}},
	}
}

func (r Router) deployment(meta metav1.ObjectMeta) *appsv1.Deployment {
	grace, replicas, no, yes := cmp.Or(r.Grace, 30), cmp.Or(r.Replicas, 1), false, true
	metrics := int32(MetricsPort)
	if r.Release.Family == fake.LLMD {
		metrics = EPPPort
	}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: r.PodLabels()},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: r.PodLabels()},
			Spec: corev1.PodSpec{
				ServiceAccountName:            r.Name,
				TerminationGracePeriodSeconds: &grace,
				SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "router", Image: r.Release.Ref(), ImagePullPolicy: corev1.PullIfNotPresent, Command: r.Command(meta.Namespace),
					Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: Port}, {Name: "metrics", ContainerPort: metrics}},
					ReadinessProbe: &corev1.Probe{
						PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intstr.FromInt32(Port)}},
					},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
			},
		},
	}}
}
