package mutate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// target is a container that runs an engine.
type target struct {
	index     int // in spec.containers
	container *corev1.Container
	match     engine.Match
}

// hook is the argv of the container's hook.
func (t target) hook(graceSeconds int64) []string {
	at := t.match.Endpoint
	switch t.match.Unmeasurable {
	case engine.SeveralPorts:
		// One idle server says nothing of the others. With no port the hook holds to
		// its deadline.
		at.Port = 0
	case engine.ServesNoMetrics:
		// Members of an SGLang replica answer with a page without gauges, for which
		// the hook would wait to its deadline. With no address it ends at the settle.
		at.Hosts = nil
	}
	return drain.Command(t.match.Engine, at, graceSeconds)
}

// findEngine returns the container that is to get the hook; nil and a reason
// where that cannot be said.
func (p pod) findEngine() (*target, string) {
	source := engine.Source{Annotations: p.meta.Annotations, OperatorBuilt: p.operatorBuilt()}
	found := p.recognize(source)
	if name, ok := p.meta.Annotations[names.AnnotationContainer]; ok {
		found = slices.DeleteFunc(found, func(t target) bool { return t.container.Name != name })
	} else if _, ok := p.meta.Annotations[names.AnnotationEngine]; ok && len(found) > 1 {
		// The annotation says which engine, not where: it makes every container one.
		source.Annotations = maps.Clone(source.Annotations)
		delete(source.Annotations, names.AnnotationEngine)
		if own := p.recognize(source); len(own) > 0 {
			found = slices.DeleteFunc(found, func(t target) bool {
				return !slices.ContainsFunc(own, func(o target) bool { return o.index == t.index })
			})
		}
	}
	if len(found) == 0 {
		return nil, names.ReasonNoEngine
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(t target) bool { return t.container.Name != names.MainContainer })
	}
	if len(found) != 1 {
		return nil, names.ReasonSeveralEngines
	}
	return &found[0], ""
}

// recognize returns the containers that run an engine. Init containers are not
// looked at, native sidecars included: they serve the engine and end after it.
func (p pod) recognize(s engine.Source) []target {
	var found []target
	for i := range p.spec.Containers {
		c := &p.spec.Containers[i]
		if match, ok := engine.Recognize(Describe(c), s); ok {
			found = append(found, target{i, c, match})
		}
	}
	return found
}

// checkContainer refuses an annotation that names no container an engine can be.
func (p pod) checkContainer(path *field.Path) *field.Error {
	name, ok := p.meta.Annotations[names.AnnotationContainer]
	if !ok {
		return nil
	}
	var valid []string
	for _, c := range p.spec.Containers {
		if c.Name == name {
			return nil
		}
		valid = append(valid, c.Name)
	}
	return field.NotSupported(path.Key(names.AnnotationContainer), name, valid)
}

// Describe is what recognition looks at in a container.
func Describe(c *corev1.Container) engine.Container {
	d := engine.Container{Name: c.Name, Image: c.Image, Command: c.Command, Args: c.Args}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			if d.Env == nil {
				d.Env = make(map[string]string, len(c.Env))
			}
			d.Env[v.Name] = v.Value
		}
	}
	for _, port := range c.Ports {
		d.Ports = append(d.Ports, engine.Port{Name: port.Name, Number: port.ContainerPort})
	}
	return d
}

func hasPreStop(c *corev1.Container) bool {
	return c.Lifecycle != nil && c.Lifecycle.PreStop != nil
}

// hasOurHook reports whether the preStop hook is lastcall's and nothing else: a
// second handler beside it is the user's, and the API server's to refuse.
func hasOurHook(c *corev1.Container) bool {
	if !hasPreStop(c) {
		return false
	}
	h := c.Lifecycle.PreStop
	return h.Exec != nil && h.HTTPGet == nil && h.TCPSocket == nil && h.Sleep == nil && drain.IsHook(h.Exec.Command)
}
