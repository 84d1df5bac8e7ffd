package fake

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// change is what a router does to its workers because of Pods.
type change struct {
	pod    podInfo
	remove bool
}

// discovery turns what is told of Pods into changes. It is a pure function of the events
// and, where it compares, of the Pods whose workers are registered.
type discovery interface {
	see(e Event, registered []podInfo) []change
	// refused is told of a Pod that was to be added and could not be.
	refused(podInfo)
}

func newDiscovery(kind string, s selection) discovery {
	switch kind {
	case followsApplied:
		return &applied{selection: s, tracked: map[infoKey]bool{}}
	case followsListed:
		return &listed{selection: s, tracked: map[nameUID]podInfo{}}
	case followsLevel:
		return &level{selection: s, store: map[types.UID]podInfo{}}
	default:
		return &endpoints{selection: s}
	}
}

// applied is how vllm-router and the sgl-model-gateway follow Pods. A delete is dropped,
// a Pod that no longer matches is skipped, and one that ends is looked for by all that is
// known of it: if it was not Ready before, it is not found.
type applied struct {
	selection
	tracked map[infoKey]bool
}

func (a *applied) see(e Event, _ []podInfo) (changes []change) {
	switch e.Kind {
	case Applied:
		return a.apply(e.Pod)
	case Listed: // each of them is applied again; what is not in it stays
		for _, pod := range e.Pods {
			changes = append(changes, a.apply(pod)...)
		}
	}
	return changes
}

func (a *applied) apply(pod *corev1.Pod) []change {
	p, ok := a.info(pod)
	switch {
	case !ok:
	case p.terminating && a.tracked[p.key()]:
		delete(a.tracked, p.key())
		return []change{{pod: p, remove: true}}
	case !p.terminating && p.running && p.ready && !a.tracked[p.key()]:
		a.tracked[p.key()] = true
		return []change{{pod: p}}
	}
	return nil
}

func (a *applied) refused(p podInfo) { delete(a.tracked, p.key()) }

// nameUID is what SMG compares up to 1.9.0.
type nameUID struct {
	name string
	uid  types.UID
}

// listed is how SMG follows Pods up to 1.9.0: as its ancestor, but a Pod that ends is
// found, and a list once a minute finds what was missed.
type listed struct {
	selection
	tracked map[nameUID]podInfo
}

func (l *listed) see(e Event, _ []podInfo) (changes []change) {
	switch e.Kind {
	case Applied:
		return l.apply(e.Pod)
	case Listed, Relisted:
		there := map[nameUID]bool{}
		for _, pod := range e.Pods {
			changes = append(changes, l.apply(pod)...)
			if p, ok := l.info(pod); ok && !p.terminating {
				there[nameUID{p.name, p.uid}] = true
			}
		}
		if e.Kind == Listed { // the watch's own; only the other one is compared
			return changes
		}
		for key, p := range l.tracked {
			if !there[key] {
				delete(l.tracked, key)
				changes = append(changes, change{pod: p, remove: true})
			}
		}
	}
	return changes
}

func (l *listed) apply(pod *corev1.Pod) []change {
	p, ok := l.info(pod)
	key := nameUID{p.name, p.uid}
	_, tracked := l.tracked[key]
	switch {
	case !ok:
	case p.terminating && tracked:
		delete(l.tracked, key)
		return []change{{pod: p, remove: true}}
	case !p.terminating && p.running && p.ready && !tracked:
		l.tracked[key] = p
		return []change{{pod: p}}
	}
	return nil
}

func (l *listed) refused(p podInfo) { delete(l.tracked, nameUID{p.name, p.uid}) }

// level is how SMG follows Pods since 1.9.0: events fill a store, and when it looks around
// it compares what is there with what is registered. So it also brings back what was
// removed through the API, and does not miss a delete.
type level struct {
	selection
	store map[types.UID]podInfo
}

func (l *level) see(e Event, registered []podInfo) []change {
	switch e.Kind {
	case Deleted:
		delete(l.store, e.Pod.UID)
	case Applied:
		l.keep(e.Pod)
	case Listed:
		clear(l.store)
		for _, pod := range e.Pods {
			l.keep(pod)
		}
		return l.reconcile(registered)
	case Tick:
		return l.reconcile(registered)
	}
	return nil
}

func (l *level) keep(pod *corev1.Pod) {
	if p, ok := l.info(pod); ok {
		l.store[pod.UID] = p
	} else {
		delete(l.store, pod.UID)
	}
}

// reconcile removes before it adds: a new Pod may have the address of an old one.
func (l *level) reconcile(registered []podInfo) (changes []change) {
	has := map[types.UID]bool{}
	for _, p := range registered {
		has[p.uid] = true
		if now, there := l.store[p.uid]; !there || now.terminating {
			changes = append(changes, change{pod: p, remove: true})
		}
	}
	var missing []podInfo
	for uid, p := range l.store {
		if !has[uid] && !p.terminating && p.running && p.ready {
			missing = append(missing, p)
		}
	}
	slices.SortFunc(missing, byName)
	for _, p := range missing {
		changes = append(changes, change{pod: p})
	}
	return changes
}

func (l *level) refused(podInfo) {}

// endpoints is how the llm-d EPP follows Pods: each event of a Pod either makes it an
// endpoint of the pool, as it is now, or takes it away.
type endpoints struct{ selection }

func (x *endpoints) see(e Event, registered []podInfo) (changes []change) {
	switch e.Kind {
	case Deleted:
		p, _ := x.info(e.Pod)
		return []change{{pod: p, remove: true}}
	case Applied:
		return []change{x.endpoint(e.Pod)}
	case Listed:
		there := map[types.NamespacedName]bool{}
		for _, pod := range e.Pods {
			c := x.endpoint(pod)
			there[c.pod.id()] = true
			changes = append(changes, c)
		}
		for _, p := range registered {
			if !there[p.id()] {
				changes = append(changes, change{pod: p, remove: true})
			}
		}
	}
	return changes
}

func (x *endpoints) endpoint(pod *corev1.Pod) change {
	p, ok := x.info(pod)
	return change{pod: p, remove: !ok || p.terminating || !p.ready || len(p.ports) == 0}
}

func (x *endpoints) refused(podInfo) {}

func (p podInfo) id() types.NamespacedName {
	return types.NamespacedName{Namespace: p.namespace, Name: p.name}
}

func byName(a, b podInfo) int {
	switch {
	case a.name < b.name:
		return -1
	case a.name > b.name:
		return 1
	}
	return 0
}
