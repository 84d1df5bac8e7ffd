package engine

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
	Role     Role
	// Unmeasurable is empty when the gauges can be read.
	Unmeasurable Unmeasurable
}

// Source is what recognition takes from the Pod around the container.
type Source struct {
	// Annotations are the Pod's.
	Annotations map[string]string
	// OperatorBuilt Pods have prometheus.io annotations that nothing else wrote.
	OperatorBuilt bool
}

// Recognize says which engine a container runs and where it serves its gauges;
// false where it runs none.
func Recognize(c Container, s Source) (Match, bool) {
	return Match{}, false
}
