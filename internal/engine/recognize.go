package engine

import (
	"slices"

	"github.com/lastcall-dev/lastcall/api/names"
)

// Port is a port that a container declares.
type Port struct {
	Name   string
	Number int32
}

// Container is what recognition looks at in a container.
type Container struct {
	Name, Image   string
	Command, Args []string
	// Env holds the variables with a literal value only; what comes from a field,
	// a ConfigMap or a Secret is not known at admission.
	Env   map[string]string
	Ports []Port
}

// Role is what an engine does in a disaggregated deployment.
type Role string

// The roles.
const (
	RoleServer  Role = "Server"
	RolePrefill Role = "Prefill"
	RoleDecode  Role = "Decode"
)

// What a container was recognized by.
const (
	FromAnnotation = "annotation"
	FromCommand    = "command"
	FromImage      = "image"
)

// Match is a recognized engine.
type Match struct {
	Engine Engine
	// From is FromAnnotation, FromCommand or FromImage.
	From     string
	Endpoint Endpoint
	// PortGuessed: flags that are not known at admission may name another port, and
	// nothing else says which, so the endpoint has the engine's default.
	PortGuessed bool
	Role        Role
	// SplitsWork: the engine prefills or decodes for others, or balances requests with
	// them, so that its own gauges do not tell all that is in flight through it.
	SplitsWork bool
	// Unmeasurable is empty when the gauges can be read.
	Unmeasurable Unmeasurable
	// Unprobeable is why the kubelet's HTTP probes get no answer at the Pod's
	// address, and what to change; empty where no known flag keeps them away.
	Unprobeable string
}

// Source is what recognition takes from the Pod around the container.
type Source struct {
	// Annotations are the Pod's.
	Annotations map[string]string
	// OperatorBuilt Pods have prometheus.io annotations that nothing else wrote.
	OperatorBuilt bool
}

// Recognize says which engine a container runs and where it serves its gauges;
// false where it runs none. The annotation lastcall.dev/engine is believed first,
// then the command line, then the image.
func Recognize(c Container, s Source) (Match, bool) {
	env := newEnvironment(c.Env)
	var argv []string
	for _, word := range slices.Concat(c.Command, c.Args) {
		argv = append(argv, env.expand(word))
	}
	commands := simpleCommands(argv, env, 0)
	started, ok := findInvocation(commands)
	from := FromCommand
	if !ok {
		started, ok = imageInvocation(c, argv, commands)
		from = FromImage
	}
	if named, known := Lookup(Name(s.Annotations[names.AnnotationEngine])); known {
		if !ok {
			started.flags = flags{words: argv, partial: true}
		}
		started.engine = named.Name
		ok, from = true, FromAnnotation
	}
	engine, known := Lookup(started.engine)
	if !ok || !known {
		return Match{}, false
	}
	endpoint, guessed := engine.endpoint(c, s, started.flags)
	return Match{
		Engine:       engine,
		From:         from,
		Endpoint:     endpoint,
		PortGuessed:  guessed,
		Role:         started.flags.role(engine.Name),
		SplitsWork:   started.flags.splitsWork(engine.Name),
		Unmeasurable: started.unmeasurable(endpoint, parsePort(s.Annotations[names.AnnotationMetricsPort]) != 0),
		Unprobeable:  started.unprobeable(),
	}, true
}
