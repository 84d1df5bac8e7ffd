package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ModelDeployment runs one model on one inference engine, as one or more roles
// of replicas, and takes replicas away only when nothing is in flight on them.
//
// A replica is size Pods named NAME-ROLE-ORDINAL (above size 1
// NAME-ROLE-ORDINAL-MEMBER); the Services are NAME and NAME-ROLE. All of these
// must be DNS labels, so the name starts with a letter, holds no dots, and is
// short enough for the longest of them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=modeldeployments,singular=modeldeployment,shortName=md,scope=Namespaced
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.status.roleSummary`,description="Ready replicas by kind: S server, P prefill, D decode."
// +kubebuilder:printcolumn:name="Retiring",type=string,JSONPath=`.status.retirement.state`,description="State of the running retirement; empty when there is none."
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.retirement.reason`,description="Why the retirement is in that state."
// +kubebuilder:printcolumn:name="Model",type=string,priority=1,JSONPath=`.spec.model.name`
// +kubebuilder:printcolumn:name="Engine",type=string,priority=1,JSONPath=`.spec.engine.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="must start with a letter, end with a letter or digit, and hold only lower-case letters, digits and dashes: it becomes the name of a Service"
// +kubebuilder:validation:XValidation:rule="self.spec.roles.all(r, size(self.metadata.name) + size(r.name) + 6 + (r.size > 10 ? 3 : r.size > 1 ? 2 : 0) <= 63)",fieldPath=".spec.roles",message="a role's name is too long with metadata.name: its Pods are NAME-ROLE-ORDINAL, above size 1 NAME-ROLE-ORDINAL-MEMBER, at most 63 characters with the highest ordinal, 1023; shorten one of the two"
type ModelDeployment struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what should run.
	// +required
	Spec ModelDeploymentSpec `json:"spec"`
	// status is what runs, and what is being retired.
	// +optional
	Status ModelDeploymentStatus `json:"status,omitzero"`
}

// ModelDeploymentList is a list of ModelDeployments.
//
// +kubebuilder:object:root=true
type ModelDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ModelDeployment `json:"items"`
}

// ModelDeploymentSpec is what should run.
//
// +kubebuilder:validation:XValidation:rule="!has(self.router) || !has(self.withdrawal) || self.withdrawal.direct != 'Connections'",fieldPath=".withdrawal",message="direct: Connections is for deployments without a router: with one, the router itself is asked whether it can still choose a replica; remove one of the two"
// +kubebuilder:validation:XValidation:rule="(has(self.engine.image) && size(self.engine.image) > 0) || self.roles.all(r, has(r.image) && size(r.image) > 0)",fieldPath=".engine.image",message="an image is needed here or in every role"
type ModelDeploymentSpec struct {
	// model is what the engine loads.
	// +required
	Model Model `json:"model"`

	// engine is the inference engine all roles run.
	// +required
	Engine Engine `json:"engine"`

	// router is the inference router in front of this deployment, which you run.
	// lastcall asks each of its Pods whether it can still choose a replica before
	// it deletes that replica. Unset: clients connect through the Services.
	// +optional
	Router *Router `json:"router,omitempty"`

	// withdrawal says what proves that no new request can reach a replica where no
	// router can be asked.
	// +optional
	Withdrawal Withdrawal `json:"withdrawal,omitzero"`

	// retirement bounds how long a replica may take to become idle before its
	// removal is given up. Longer generations need more.
	// +optional
	Retirement RetirementBudgets `json:"retirement,omitzero"`

	// roles are the kinds of replicas, 1 to 10, each with a name of its own. Roles
	// may be added; one that is dropped is retired replica by replica.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Roles []Role `json:"roles"`
}

// Model is what the engine loads.
type Model struct {
	// name is the model as the engine takes it on its command line: a name such as
	// Qwen/Qwen2.5-7B-Instruct, a path in the container, or a URL the engine reads.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
}

// EngineName is an inference engine that a ModelDeployment can run.
// +kubebuilder:validation:Enum=vLLM;SGLang
type EngineName string

// The engines.
const (
	VLLM   EngineName = "vLLM"
	SGLang EngineName = "SGLang"
)

// Engine is the inference engine all roles run.
//
// +kubebuilder:validation:XValidation:rule="self.name == oldSelf.name",fieldPath=".name",message="is frozen: running replicas are measured by the gauges of the engine they were created with; make a new ModelDeployment for another engine"
type Engine struct {
	// name is the engine: vLLM or SGLang. It decides the command line and how work
	// in flight is read. It cannot be changed.
	// +required
	Name EngineName `json:"name"`

	// version is the engine's version, such as 0.29.0, for people and tools that
	// read this object. What runs is decided by image.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`

	// image is the container image of the engine. A role's own image goes first.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// RouterName is a family of inference routers that can be asked about a replica.
// +kubebuilder:validation:Enum=llm-d-router;vllm-router;sglang-gateway
type RouterName string

// The router families.
const (
	LLMDRouter    RouterName = "llm-d-router"
	VLLMRouter    RouterName = "vllm-router"
	SGLangGateway RouterName = "sglang-gateway"
)

// Router is the inference router in front of a deployment.
type Router struct {
	// name is the router's family: llm-d-router, vllm-router or sglang-gateway.
	// +required
	Name RouterName `json:"name"`

	// podSelector selects the router's Pods. Every Pod it selects is asked, so it
	// must select those of this router and no others.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && size(self.matchLabels) > 0) || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",reason=FieldValueRequired,message="without labels it would select every Pod of the namespace, and each would have to answer as a router"
	PodSelector metav1.LabelSelector `json:"podSelector"`

	// namespace is where the router's Pods are. Unset: the deployment's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must be the name of a namespace: lower-case letters, digits and dashes, with a letter or digit at each end"
	Namespace string `json:"namespace,omitempty"`

	// port is where each of the router's Pods answers, 1 to 65535: the metrics port
	// of llm-d-router, the API port of the others.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// metricsPort is where each of the router's Pods serves /metrics, 1 to 65535. Unset:
	// at port for llm-d-router, and for the others where their command line says. It is
	// asked over HTTP and without a token, unless it is port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	MetricsPort *int32 `json:"metricsPort,omitempty"`

	// tls has the router's Pods asked over HTTPS. Unset: over HTTP.
	// +optional
	TLS *RouterTLS `json:"tls,omitempty"`

	// secretName is a Secret beside the deployment for asking the router: its token is
	// sent as a bearer token, and its ca.crt is what the router's certificate is checked
	// against. Either may be missing. The retirer may read no Secrets: bind a Role that
	// lets it get this one. Unset: no token, and the system's certificates.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a Secret: lower-case letters, digits, dashes and dots, with a letter or digit at each end of every part"
	SecretName string `json:"secretName,omitempty"`
}

// RouterTLS says how a router's certificate is checked.
type RouterTLS struct {
	// serverName is the name that the certificate must have. Unset: the address of the
	// Pod that is asked.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self) || self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be a DNS name in lower case, such as router.team-a.svc, or an IP address, without scheme and port: the name that the router's certificate has"
	ServerName string `json:"serverName,omitempty"`

	// insecureSkipVerify takes any certificate: whoever can answer in the router's place
	// can then say that a replica is out of reach.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
}

// DirectWithdrawal is what proves that no client reaches a replica through the
// Services alone.
// +kubebuilder:validation:Enum=Hold;Connections
type DirectWithdrawal string

const (
	// DirectHold takes nothing for a proof: a replica that runs is not removed by a
	// lower replicas, because a client could still be about to send to it.
	DirectHold DirectWithdrawal = "Hold"
	// DirectConnections takes it for a proof that the replica has left the Services
	// and no established connection to the engine's port is left.
	DirectConnections DirectWithdrawal = "Connections"
)

// Withdrawal says what proves that no new request can reach a replica.
type Withdrawal struct {
	// direct is for deployments without a router. Hold (default): a running replica
	// stays, since connections made through a Service cannot be ruled out.
	// Connections: the replica leaves the Services, and no established connection to
	// the engine's port for 6 s is the proof.
	// +optional
	// +kubebuilder:default=Hold
	Direct DirectWithdrawal `json:"direct,omitempty"`

	// peers are whose connections to an engine's port carry no requests of clients,
	// such as Prometheus, which keeps a connection to everything it scrapes. Only
	// for Connections; at most 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Peers []WithdrawalPeer `json:"peers,omitempty"`
}

// WithdrawalPeer names addresses, by exactly one of cidr and podSelector.
//
// +kubebuilder:validation:XValidation:rule="has(self.cidr) != has(self.podSelector)",message="needs exactly one of cidr and podSelector"
// +kubebuilder:validation:XValidation:rule="!has(self.__namespace__) || has(self.podSelector)",fieldPath=".namespace",message="goes with podSelector only"
type WithdrawalPeer struct {
	// cidr is an address or a block of them, such as 10.0.3.7/32 or fd00:3::/64.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a block of addresses such as 10.0.3.0/24; a single address ends in /32, or /128 for IPv6"
	CIDR string `json:"cidr,omitempty"`

	// podSelector selects Pods by their labels.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespace is where podSelector looks. Unset: the ModelDeployment's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// RetirementBudgets bound how long a replica may take to become idle.
//
// +kubebuilder:validation:XValidation:rule="!has(self.drainSeconds) || !has(self.totalSeconds) || self.drainSeconds <= self.totalSeconds",fieldPath=".totalSeconds",message="must be at least drainSeconds: it bounds the whole retirement, of which draining is a part; drainSeconds plus 60 leaves room for the rest"
type RetirementBudgets struct {
	// drainSeconds is how long a withdrawn replica may take to finish its requests,
	// in seconds, 15 to 86400. Unset: the retirer's default, 240.
	// +optional
	// +kubebuilder:validation:Minimum=15
	// +kubebuilder:validation:Maximum=86400
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`

	// totalSeconds is how long a retirement may take from its start to the decision
	// to delete, in seconds, 15 to 86400 and at least drainSeconds. Unset: the
	// retirer's default, 300, or drainSeconds plus 60 where that is more.
	// +optional
	// +kubebuilder:validation:Minimum=15
	// +kubebuilder:validation:Maximum=86400
	TotalSeconds *int32 `json:"totalSeconds,omitempty"`
}
