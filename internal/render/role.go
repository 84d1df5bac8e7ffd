package render

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// Kind is the part the role plays; Server when unset.
func Kind(role *v1alpha1.Role) v1alpha1.RoleKind { return cmp.Or(role.Kind, v1alpha1.Server) }

// Replicas is how many replicas the role should have; 1 when unset.
func Replicas(role *v1alpha1.Role) int32 { return valueOr(role.Replicas, 1) }

// Size is how many Pods make up a replica; 1 when unset.
func Size(role *v1alpha1.Role) int32 { return valueOr(role.Size, 1) }

// TakenOver reports whether the user owns the whole command line.
func TakenOver(role *v1alpha1.Role) bool { return len(role.Command) > 0 }

// GraceSeconds is the termination grace period of the role's Pods in seconds, 30
// when unset, and whether the Pods carry it as an annotation. Those of a take-over
// role do not where it is the Kubernetes default: writing 30 onto a role that set
// none must change nothing, and admission leaves such a Pod's own period alone.
func GraceSeconds(role *v1alpha1.Role) (seconds int64, annotated bool) {
	seconds = valueOr(role.TerminationGracePeriodSeconds, drain.DefaultGraceSeconds)
	return seconds, !TakenOver(role) || seconds != corev1.DefaultTerminationGracePeriodSeconds
}

// Engine is the row of the engine that the deployment names; the zero row where
// that is unknown.
func Engine(spec *v1alpha1.ModelDeploymentSpec) engine.Engine {
	e, _ := engine.Lookup(engine.Name(strings.ToLower(string(spec.Engine.Name))))
	return e
}

// LiteralEnv are the variables of the engine's container whose value the role
// itself says.
func LiteralEnv(role *v1alpha1.Role) map[string]string {
	env := make(map[string]string, len(role.Env))
	for _, v := range role.Env {
		if v.ValueFrom == nil {
			env[v.Name] = v.Value
		}
	}
	return env
}

// EnginePort is where the engine of the role's leaders serves: the last --port of
// the arguments the user gave, else port, else the engine's default.
func EnginePort(spec *v1alpha1.ModelDeploymentSpec, role *v1alpha1.Role) int32 {
	args := role.ExtraArgs
	if TakenOver(role) {
		args = role.Command
	}
	switch port, known := engine.PortFlag(args, LiteralEnv(role)); {
	case known:
		return port
	case role.Port != nil:
		return *role.Port
	case TakenOver(role): // the command may be a shell's text, with a --port in it
		return recognize(spec, role).Endpoint.Port
	}
	return Engine(spec).DefaultPort
}

// servesTLS reports whether the engine of the role's leaders speaks TLS.
func servesTLS(spec *v1alpha1.ModelDeploymentSpec, role *v1alpha1.Role) bool {
	return recognize(spec, role).Endpoint.Scheme == schemeHTTPS
}

// recognize is what admission will see in the command line of a leader.
func recognize(spec *v1alpha1.ModelDeploymentSpec, role *v1alpha1.Role) engine.Match {
	match, _ := engine.Recognize(
		engine.Container{Command: CommandLine(spec, role, 0), Env: LiteralEnv(role)},
		engine.Source{Annotations: map[string]string{names.AnnotationEngine: string(Engine(spec).Name)}},
	)
	return match
}

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
)

func scheme(tls bool) string {
	if tls {
		return schemeHTTPS
	}
	return schemeHTTP
}

// valueOr is what the pointer points to, or the value that nil stands for.
func valueOr[T any](p *T, value T) T {
	if p == nil {
		return value
	}
	return *p
}
