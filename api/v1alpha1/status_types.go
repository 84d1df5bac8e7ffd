package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase sums up a ModelDeployment in one word.
// +kubebuilder:validation:Enum=Starting;Ready;Degraded;Deleting
type Phase string

const (
	// PhaseStarting: not every replica has been Ready yet.
	PhaseStarting Phase = "Starting"
	// PhaseReady: every replica the spec asks for is Ready.
	PhaseReady Phase = "Ready"
	// PhaseDegraded: a replica that was Ready is not, or an object cannot be made.
	PhaseDegraded Phase = "Degraded"
	// PhaseDeleting: the ModelDeployment is being deleted.
	PhaseDeleting Phase = "Deleting"
)

// ModelDeploymentStatus is what runs, and what is being retired.
type ModelDeploymentStatus struct {
	// conditions are Ready, Progressing and Retiring.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// phase sums the conditions up: Starting, Ready, Degraded or Deleting.
	// +optional
	Phase Phase `json:"phase,omitempty"`

	// roleSummary is the number of ready replicas by kind, such as 2S or 1P1D: S
	// server, P prefill, D decode. A replica that is being retired counts until its
	// Pods are gone.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	RoleSummary string `json:"roleSummary,omitempty"`

	// roles are the roles of the spec and those dropped from it that still have
	// replicas.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Roles []RoleStatus `json:"roles,omitempty"`

	// retirement is the running operation that takes replicas away. Absent: none
	// is running.
	// +optional
	Retirement *RetirementStatus `json:"retirement,omitempty"`

	// lastRetirement is how the last operation ended.
	// +optional
	LastRetirement *LastRetirement `json:"lastRetirement,omitempty"`
}

// RoleStatus counts a role's replicas.
type RoleStatus struct {
	// name is the role's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`

	// kind is the part the role plays.
	// +required
	Kind RoleKind `json:"kind"`

	// desired is how many replicas the spec asks for; 0 for a dropped role.
	// +required
	// +kubebuilder:validation:Minimum=0
	Desired int32 `json:"desired"`

	// ready is how many replicas have all their Pods Ready, those being retired
	// included.
	// +required
	// +kubebuilder:validation:Minimum=0
	Ready int32 `json:"ready"`

	// retiring is how many replicas the running operation wants to take away.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retiring int32 `json:"retiring,omitempty"`

	// unmanaged is true where the role's command is the user's own: no drain hook,
	// no measured removal.
	// +optional
	Unmanaged bool `json:"unmanaged,omitempty"`

	// specHash is the digest of the role's present spec, as of observedGeneration.
	// Pods carry the digest of theirs in the annotation lastcall.dev/spec-hash. Absent:
	// the role was dropped.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	SpecHash string `json:"specHash,omitempty"`
}
