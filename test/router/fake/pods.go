package fake

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Role is what a worker does.
type Role string

// The roles.
const (
	Regular Role = "regular"
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

// EventKind is what happened.
type EventKind string

// What can happen. Listed is what a watch begins with, also after it broke; Relisted is a
// list that was asked for besides; Tick is time that passed.
const (
	Applied  EventKind = "applied"
	Deleted  EventKind = "deleted"
	Listed   EventKind = "listed"
	Relisted EventKind = "relisted"
	Tick     EventKind = "tick"
)

// Event is what a router is told of Pods.
type Event struct {
	Kind EventKind
	Pod  *corev1.Pod   // Applied, Deleted
	Pods []*corev1.Pod // Listed, Relisted
}

// podInfo is what a router keeps of a Pod.
type podInfo struct {
	namespace, name string
	uid             types.UID
	ip              string
	role            Role
	bootstrapPort   int
	labels          map[string]string
	ports           []int
	running, ready  bool
	terminating     bool
}

// infoKey is all of it that vllm-router and the sgl-model-gateway compare: a Pod that
// differs in any of them is another Pod to them.
type infoKey struct {
	name, ip       string
	running, ready bool
	role           Role
	bootstrapPort  int
}

func (p podInfo) key() infoKey {
	return infoKey{p.name, p.ip, p.running, p.ready, p.role, p.bootstrapPort}
}

// url is where the worker is, for the n-th of its ports.
func (p podInfo) url(n int) string {
	return "http://" + net.JoinHostPort(p.ip, strconv.Itoa(p.ports[n]))
}

// selection is whose Pods a router takes, and as what.
type selection struct {
	regular, prefill, decode labels.Selector
	ports                    []int
	activePorts              []string // annotations
}

func newSelection(o Options, t traits) selection {
	parse := func(text string) labels.Selector {
		if text == "" {
			return labels.Nothing()
		}
		s, err := labels.Parse(text)
		if err != nil { // complete has parsed it
			return labels.Nothing()
		}
		return s
	}
	s := selection{regular: parse(o.Selector), prefill: parse(o.PrefillSelector), decode: parse(o.DecodeSelector), ports: o.Ports, activePorts: t.activePorts}
	if o.PD != "" && o.Family != LLMD {
		s.regular = labels.Nothing() // it looks for pairs only
	}
	return s
}

// takes reports whether any selector matches.
func (s selection) takes(set map[string]string) bool {
	l := labels.Set(set)
	return s.prefill.Matches(l) || s.decode.Matches(l) || s.regular.Matches(l)
}

// info is what a router would keep of a Pod; ok is false where no selector takes it.
func (s selection) info(pod *corev1.Pod) (p podInfo, ok bool) {
	set := labels.Set(pod.Labels)
	p = podInfo{
		namespace: pod.Namespace, name: pod.Name, uid: pod.UID, ip: pod.Status.PodIP, role: Regular, labels: pod.Labels,
		running: pod.Status.Phase == corev1.PodRunning, ready: ready(pod), terminating: pod.DeletionTimestamp != nil,
		ports: s.active(pod),
	}
	switch {
	case s.prefill.Matches(set):
		p.role = Prefill
		for _, key := range []string{"vllm.ai/bootstrap-port", "sglang.ai/bootstrap-port"} {
			if n, err := strconv.Atoi(pod.Annotations[key]); err == nil {
				p.bootstrapPort = n
			}
		}
	case s.decode.Matches(set):
		p.role = Decode
	case !s.regular.Matches(set):
		return p, false
	}
	return p, p.ip != ""
}

// active are the ports that a Pod's annotation leaves of the pool's.
func (s selection) active(pod *corev1.Pod) []int {
	for _, key := range s.activePorts {
		value, set := pod.Annotations[key]
		if !set {
			continue
		}
		var left []int
		for one := range strings.SplitSeq(value, ",") {
			if n, err := strconv.Atoi(strings.TrimSpace(one)); err == nil && slices.Contains(s.ports, n) {
				left = append(left, n)
			}
		}
		return left
	}
	return s.ports
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// lens makes a router see Pods as its faults have it.
type lens struct {
	labels map[types.UID]map[string]string // as they were seen first
	ready  map[types.UID]bool
}

func newLens() *lens {
	return &lens{labels: map[types.UID]map[string]string{}, ready: map[types.UID]bool{}}
}

// see returns the event as the router learns of it, and false where it does not. takes is
// the selector of its watch where the API server applies it: there a Pod whose labels no
// longer match comes as a delete.
func (l *lens) see(e Event, f *faults, takes func(map[string]string) bool) (Event, bool) {
	pods := make([]*corev1.Pod, 0, len(e.Pods))
	for _, pod := range e.Pods {
		pods = append(pods, l.pod(pod, f))
	}
	e.Pods = pods
	if e.Pod == nil {
		return e, !f.on(Disagree, "")
	}
	_, seen := l.labels[e.Pod.UID]
	gone := e.Kind == Deleted || seen && takes != nil && !takes(e.Pod.Labels)
	e.Pod = l.pod(e.Pod, f)
	return e, !f.on(Disagree, e.Pod.Name) && (!gone || !f.on(LoseDeletes, e.Pod.Name))
}

func (l *lens) pod(pod *corev1.Pod, f *faults) *corev1.Pod {
	if _, seen := l.labels[pod.UID]; !seen {
		l.labels[pod.UID] = maps.Clone(pod.Labels)
		if l.labels[pod.UID] == nil {
			l.labels[pod.UID] = map[string]string{}
		}
	}
	l.ready[pod.UID] = l.ready[pod.UID] || ready(pod)
	if f.on(IgnoreLabels, pod.Name) {
		pod = pod.DeepCopy()
		pod.Labels = l.labels[pod.UID]
	}
	if f.on(IgnoreReadiness, pod.Name) && l.ready[pod.UID] && !ready(pod) {
		pod = pod.DeepCopy()
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return pod
}
