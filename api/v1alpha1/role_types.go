package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// RoleKind is the part a role plays in serving a request.
// +kubebuilder:validation:Enum=Server;Prefill;Decode
type RoleKind string

const (
	// Server serves whole requests.
	Server RoleKind = "Server"
	// Prefill computes the prompt and hands its cache to a Decode replica.
	Prefill RoleKind = "Prefill"
	// Decode generates the answer from a Prefill replica's cache.
	Decode RoleKind = "Decode"
)

// Role is one kind of replica.
//
// +kubebuilder:validation:XValidation:rule="self.kind == oldSelf.kind",fieldPath=".kind",message="is frozen: a replica that is running keeps the part it was created for; add a role of the new kind and drop this one"
// +kubebuilder:validation:XValidation:rule="self.size == oldSelf.size",fieldPath=".size",message="is frozen: the members of a running replica were told its size when they started; add a role of the new size and drop this one"
// +kubebuilder:validation:XValidation:rule="(has(self.command) && size(self.command) > 0) == (has(oldSelf.command) && size(oldSelf.command) > 0) && (!has(self.command) || !has(oldSelf.command) || self.command == oldSelf.command)",fieldPath=".command",message="is frozen: it decides who owns the command line of running replicas; add a role with the new command and drop this one"
// +kubebuilder:validation:XValidation:rule="!has(self.proxy) || !has(self.port) || self.proxy.port != self.port",fieldPath=".proxy.port",message="must differ from the engine's port: both listen in one Pod"
type Role struct {
	// name is part of the names of the role's Pods and Service: a lower-case letter,
	// then lower-case letters and digits, at most 32.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*$`
	Name string `json:"name"`

	// kind is the part the role plays: Server (default) serves whole requests;
	// Prefill and Decode split them between two roles. It cannot be changed.
	// +optional
	// +kubebuilder:default=Server
	Kind RoleKind `json:"kind,omitempty"`

	// replicas is how many replicas should run, 0 to 1024, 1 when unset. A lower
	// number retires those with the highest ordinals, each when no client reaches it
	// any more and its engine is idle; one whose Pods you delete does not come back.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1024
	Replicas *int32 `json:"replicas,omitempty"`

	// size is how many Pods make up one replica, 1 to 64, 1 when unset. Member 0 is
	// the one that answers. It cannot be changed.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Size *int32 `json:"size,omitempty"`

	// terminationGracePeriodSeconds is how long a Pod of the role may take to leave
	// once it is deleted, in seconds, 15 to 3600, 30 when unset. The first 5 s serve
	// requests still on their way, the last 5 s are for the engine to exit, and the
	// work in flight finishes between them: take the longest usual generation plus
	// 10. An idle engine leaves after about 6 s whatever the value. SGLang Prefill
	// and Decode roles need 45 or more. Where command is set and this is not, the
	// Kubernetes default stays.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 15 && self <= 3600",message="must be 15 to 3600 seconds: 5 serve late requests, then work finishes, and the last 5 are for the exit; more than an hour stalls node drains. 30 suits chat; else take the longest generation plus 10"
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`

	// image is the container image of the role. Empty: the engine's image.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// imagePullPolicy says when the role's images are pulled: Always, IfNotPresent
	// or Never. Unset: the Kubernetes default.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`

	// imagePullSecrets are Secrets of this namespace to pull the images with.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// command makes this a take-over role: it is the whole argument vector of the
	// engine's container, extraArgs and the engine's own arguments are not added, no
	// drain hook is injected, and removals are not measured. It cannot be changed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	Command []string `json:"command,omitempty"`

	// extraArgs are added after the arguments that lastcall gives the engine.
	// --host and --port given here are kept, and everything follows them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// env are environment variables of the engine's container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []corev1.EnvVar `json:"env,omitempty"`

	// port is where the engine serves, 1 to 65535. Unset: the engine's own default,
	// 8000 for vLLM and 30000 for SGLang. A --port in extraArgs goes first.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// proxy is a container in front of the engine that the Services send requests
	// to, such as the llm-d routing sidecar. It is a native sidecar: it starts
	// before the engine and stops after it.
	// +optional
	Proxy *Proxy `json:"proxy,omitempty"`

	// resources are what each Pod's engine container asks for and is limited to,
	// accelerators included.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// volumes are volumes of each Pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// volumeMounts are where the engine's container mounts volumes.
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=64
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`

	// serviceAccountName is the ServiceAccount of each Pod. Unset: default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// nodeSelector are labels a node must have to run the role's Pods.
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations are the taints the role's Pods tolerate.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity are the role's scheduling constraints.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// priorityClassName is the PriorityClass of each Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// schedulerName is the scheduler that places the Pods. Unset: the cluster's.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SchedulerName string `json:"schedulerName,omitempty"`

	// runtimeClassName is the RuntimeClass of each Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// labels are added to each Pod. Those that lastcall sets itself, lastcall.dev/*
	// and app.kubernetes.io/{name,instance,component,managed-by}, are refused.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to each Pod. Of lastcall.dev/*, only metrics-port,
	// metrics-scheme and metrics-path may be given.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Proxy is a native sidecar in front of the engine.
type Proxy struct {
	// image is the container image of the proxy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// args are the arguments of the image's entrypoint.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	Args []string `json:"args,omitempty"`

	// port is where the proxy listens, 1 to 65535, and where the Services send
	// requests. It differs from the engine's port.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}
