package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RetirementCause is why replicas are being taken away.
// +kubebuilder:validation:Enum=ScaleDown;Surplus;RoleDropped;Deletion
type RetirementCause string

const (
	// CauseScaleDown: a role's replicas fell.
	CauseScaleDown RetirementCause = "ScaleDown"
	// CauseSurplus: a replica is beyond the role's replicas without such an edit.
	CauseSurplus RetirementCause = "Surplus"
	// CauseRoleDropped: the spec no longer has the role.
	CauseRoleDropped RetirementCause = "RoleDropped"
	// CauseDeletion: the ModelDeployment was deleted.
	CauseDeletion RetirementCause = "Deletion"
)

// RetirementState is how far a retirement, or one target of it, has come. The
// states are in their order; Aborted can follow any before Deleting.
// +kubebuilder:validation:Enum=Admitted;Disqualified;Withdrawing;Draining;Deleting;Settling;Completed;Aborted
type RetirementState string

const (
	// StateAdmitted: the members, their containers and the deadlines are bound.
	StateAdmitted RetirementState = "Admitted"
	// StateDisqualified: the members are marked so that nothing new chooses them.
	StateDisqualified RetirementState = "Disqualified"
	// StateWithdrawing: evidence is collected that nothing can choose them.
	StateWithdrawing RetirementState = "Withdrawing"
	// StateDraining: the engine is read until it is proven idle.
	StateDraining RetirementState = "Draining"
	// StateDeleting: the decision to delete stands; the members are being deleted.
	StateDeleting RetirementState = "Deleting"
	// StateSettling: every delete was accepted; the Pods are leaving.
	StateSettling RetirementState = "Settling"
	// StateCompleted: the Pods are gone.
	StateCompleted RetirementState = "Completed"
	// StateAborted: the replica was kept and serves again; the reason says what ran
	// out.
	StateAborted RetirementState = "Aborted"
)

// RetirementStatus is the running operation that takes replicas away.
type RetirementStatus struct {
	// cause is why: ScaleDown, Surplus, RoleDropped or Deletion.
	// +required
	Cause RetirementCause `json:"cause"`

	// state is that of the least advanced target that is under way; without one,
	// Aborted: targets were given up.
	// +required
	State RetirementState `json:"state"`

	// reason is why it is in that state, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message is the reason for people, with the replica it is about.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// generation is the spec's generation that the operation carries out.
	// +required
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation"`

	// startedAt is when the operation was admitted.
	// +required
	StartedAt metav1.MicroTime `json:"startedAt"`

	// phaseStartedAt is when it came into its state.
	// +required
	PhaseStartedAt metav1.MicroTime `json:"phaseStartedAt"`

	// deadline is when targets that are not proven idle are given up. It is written
	// once.
	// +required
	Deadline metav1.MicroTime `json:"deadline"`

	// lastConsumedRetryToken is the last value of the annotation
	// lastcall.dev/retry-retirement that was acted on.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	LastConsumedRetryToken string `json:"lastConsumedRetryToken,omitempty"`

	// targets are the replicas being taken away, at most 64 at a time, the rest
	// follow; and those that were given up.
	// +optional
	// +listType=map
	// +listMapKey=role
	// +listMapKey=ordinal
	// +kubebuilder:validation:MaxItems=128
	Targets []RetirementTarget `json:"targets,omitempty"`
}

// RetirementTarget is one replica that is being taken away.
type RetirementTarget struct {
	// role is the replica's role.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Role string `json:"role"`

	// ordinal is the replica's number in its role, from 0.
	// +required
	// +kubebuilder:validation:Minimum=0
	Ordinal int32 `json:"ordinal"`

	// state is how far this replica has come. Targets advance alone.
	// +required
	State RetirementState `json:"state"`

	// reason is why it is in that state, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// message is what was last seen that the reason stands for, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`

	// phaseStartedAt is when it came into its state.
	// +required
	PhaseStartedAt metav1.MicroTime `json:"phaseStartedAt"`

	// members are the Pods that were bound when the operation was admitted. No
	// other Pod is touched.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Members []RetirementMember `json:"members,omitempty"`

	// droppedAt is when no EndpointSlice was first seen to have the replica. Absent:
	// one still does, or nobody has looked yet.
	// +optional
	DroppedAt *metav1.MicroTime `json:"droppedAt,omitempty"`

	// markedAt is when all its Pods were seen to be marked.
	// +optional
	MarkedAt *metav1.MicroTime `json:"markedAt,omitempty"`

	// withdrawnAt is when it was proven that no new request can reach it. Absent: that
	// is not proven, or not any more.
	// +optional
	WithdrawnAt *metav1.MicroTime `json:"withdrawnAt,omitempty"`

	// readAt is when the read was made that inFlight and idleSince are of.
	// +optional
	ReadAt *metav1.MicroTime `json:"readAt,omitempty"`

	// idleSince is when the present run of idle reads began. Absent: the last read
	// was not idle.
	// +optional
	IdleSince *metav1.MicroTime `json:"idleSince,omitempty"`

	// inFlight is how many requests the engine held at the last read. Absent: not
	// read yet, or the read could not tell.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InFlight *int64 `json:"inFlight,omitempty"`

	// recentDispatches is how many requests the router reports as lately sent to
	// this replica. It is never part of inFlight. Absent: no router reports it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RecentDispatches *int64 `json:"recentDispatches,omitempty"`

	// routers are the processes of the router, and what each of them contributes to the
	// proof that no request can be sent to this replica any more; the first 64.
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=64
	Routers []RetirementRouter `json:"routers,omitempty"`

	// workload is the Kueue Workload that is deleted after the members.
	// +optional
	Workload *RetirementWorkload `json:"workload,omitempty"`
}

// RetirementRouter is one process of the router in front of a replica.
type RetirementRouter struct {
	// pod is the name of the process's Pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// uid is that of the Pod.
	// +required
	UID types.UID `json:"uid"`

	// toldAt is when it was told last to leave the replica alone. Absent: it was not.
	// +optional
	ToldAt *metav1.MicroTime `json:"toldAt,omitempty"`

	// askedAt is when it was asked for what is written here.
	// +optional
	AskedAt *metav1.MicroTime `json:"askedAt,omitempty"`

	// missing is what its part of the proof lacks. Absent: nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Missing string `json:"missing,omitempty"`

	// message is what was seen of it, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

// RetirementMember is one Pod of a replica that is being taken away.
type RetirementMember struct {
	// name is the Pod's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the Pod's UID; a new Pod of the same name is not this member.
	// +required
	UID types.UID `json:"uid"`

	// containerID is the engine's container, as the Pod's status names it; a
	// restarted engine is not the one that was bound.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ContainerID string `json:"containerID,omitempty"`

	// answering is true for the member whose engine is read.
	// +optional
	Answering bool `json:"answering,omitempty"`
}

// RetirementWorkload is the Kueue Workload of a replica.
type RetirementWorkload struct {
	// name is the Workload's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// uid is the Workload's UID.
	// +required
	UID types.UID `json:"uid"`
}

// RetirementEnd is how a retirement ended.
// +kubebuilder:validation:Enum=Completed;Aborted;Cancelled
type RetirementEnd string

const (
	// EndCompleted: every target is gone.
	EndCompleted RetirementEnd = "Completed"
	// EndAborted: at least one target was kept because a budget ran out or it was
	// refused.
	EndAborted RetirementEnd = "Aborted"
	// EndCancelled: the spec wanted the targets again before they were deleted.
	EndCancelled RetirementEnd = "Cancelled"
)

// LastRetirement is how the last retirement ended.
type LastRetirement struct {
	// cause is why replicas were taken away.
	// +required
	Cause RetirementCause `json:"cause"`

	// end is Completed, Aborted or Cancelled.
	// +required
	End RetirementEnd `json:"end"`

	// reason is why it ended so, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`

	// generation is the spec's generation that the operation carried out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation,omitempty"`

	// startedAt is when the operation was admitted.
	// +required
	StartedAt metav1.MicroTime `json:"startedAt"`

	// endedAt is when it ended.
	// +required
	EndedAt metav1.MicroTime `json:"endedAt"`
}
