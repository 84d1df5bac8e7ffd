package render

import (
	"cmp"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/api/names"
)

const (
	proxyContainer = "proxy"
	// PortHTTP is the port that the Services send requests to. They name it, so
	// that during a rollout each Pod is reached on its own.
	PortHTTP = "http"
	// portEngine is the engine's port behind a proxy.
	portEngine = "engine"
)

// probeGraceSeconds is how long the kubelet waits for an engine that it restarts
// for a failed probe. It would run the hook and wait for the Pod's whole grace
// period, up to an hour, for an engine that hangs.
const probeGraceSeconds = 15

func (m member) engine() corev1.Container {
	role := m.role
	c := corev1.Container{
		Name:            names.MainContainer,
		Image:           cmp.Or(role.Image, m.md.Spec.Engine.Image),
		ImagePullPolicy: role.ImagePullPolicy,
		Command:         CommandLine(&m.md.Spec, role, m.index),
		Env:             m.env(),
		Resources:       role.Resources,
		VolumeMounts:    role.VolumeMounts,
	}
	if !m.leads() { // a worker answers nobody
		return c
	}
	c.Ports = m.ports()
	if !TakenOver(role) {
		m.probe(&c)
	}
	return c
}

// ports are those of the Pod, the proxy's too: before Kubernetes 1.32 a Service
// does not find the port it names in a native sidecar, and all containers of a
// Pod listen at the same address. Declared twice, it makes the API server warn.
func (m member) ports() []corev1.ContainerPort {
	engine := corev1.ContainerPort{Name: PortHTTP, ContainerPort: EnginePort(&m.md.Spec, m.role), Protocol: corev1.ProtocolTCP}
	if m.role.Proxy == nil {
		return []corev1.ContainerPort{engine}
	}
	engine.Name = portEngine
	return []corev1.ContainerPort{
		{Name: PortHTTP, ContainerPort: m.role.Proxy.Port, Protocol: corev1.ProtocolTCP},
		engine,
	}
}

// probe lets the engine take 30 minutes to load its model. After that it is taken
// out of the Services soon, and restarted only when it has been silent for long:
// under load /health is slow, and SGLang's generates a token.
func (m member) probe(c *corev1.Container) {
	port := PortHTTP
	if m.role.Proxy != nil {
		port = portEngine
	}
	get := corev1.HTTPGetAction{Path: "/health", Port: intstr.FromString(port), Scheme: corev1.URISchemeHTTP}
	if servesTLS(&m.md.Spec, m.role) {
		get.Scheme = corev1.URISchemeHTTPS
	}
	probe := func(period, timeout, failures int32, grace *int64) *corev1.Probe {
		action := get
		return &corev1.Probe{
			ProbeHandler:                  corev1.ProbeHandler{HTTPGet: &action},
			PeriodSeconds:                 period,
			TimeoutSeconds:                timeout,
			FailureThreshold:              failures,
			TerminationGracePeriodSeconds: grace,
		}
	}
	c.StartupProbe = probe(2, 5, 900, new(int64(probeGraceSeconds)))
	c.ReadinessProbe = probe(5, 5, 3, nil)
	c.LivenessProbe = probe(10, 10, 6, new(int64(probeGraceSeconds)))
}

// proxy is a native sidecar: it is there before the engine and goes after it, so
// that requests in flight keep their way out while the engine drains. The engine
// starts when the proxy listens; five minutes are for what that may wait for.
func (m member) proxy() corev1.Container {
	p := m.role.Proxy
	probe := func(period, failures int32) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(p.Port)}},
			PeriodSeconds:    period,
			TimeoutSeconds:   5,
			FailureThreshold: failures,
		}
	}
	return corev1.Container{
		Name:            proxyContainer,
		Image:           p.Image,
		ImagePullPolicy: m.role.ImagePullPolicy,
		Args:            p.Args,
		RestartPolicy:   new(corev1.ContainerRestartPolicyAlways),
		StartupProbe:    probe(2, 150),
		ReadinessProbe:  probe(5, 3),
	}
}

// env puts lastcall's variables before the role's own, which can refer only to
// those before them.
func (m member) env() []corev1.EnvVar {
	size := Size(m.role)
	if size <= 1 {
		return m.role.Env
	}
	return append([]corev1.EnvVar{
		{Name: names.EnvLeaderAddress, Value: m.leaderAddress()},
		{Name: names.EnvReplicaSize, Value: strconv.Itoa(int(size))},
		{Name: names.EnvMemberIndex, Value: strconv.Itoa(int(m.index))},
	}, m.role.Env...)
}

// leaderAddress is the leader's name in DNS: its IP address is not known before it
// runs, and the name outlives a container's restart. It ends at svc because
// nothing here knows the cluster's domain; the search list of every Pod adds it.
func (m member) leaderAddress() string {
	return fmt.Sprintf("%s.%s.%s.svc", PodName(m.md, m.role, m.ordinal, 0), groupName(m.md, m.role), m.md.Namespace)
}
