package cli

import (
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// The report is what status prints with -o json or yaml; docs/cli.md describes it.
// Its keys are stable.

// report is what lastcall does in one namespace, or in all.
type report struct {
	// ModelDeploymentsInstalled is false where the cluster has no such kind.
	ModelDeploymentsInstalled bool               `json:"modelDeploymentsInstalled"`
	ModelDeployments          []deploymentReport `json:"modelDeployments"`
	// Workloads are the owners of opted-in Pods, and workloads that seem to be meant
	// to opt in and do not.
	Workloads []workloadReport `json:"workloads"`
	// Unread is what could not be read, and why; the rest of the report goes without.
	Unread []string `json:"unread"`
}

type deploymentReport struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Phase is empty until the operator has written a status.
	Phase              v1alpha1.Phase    `json:"phase"`
	Generation         int64             `json:"generation"`
	ObservedGeneration int64             `json:"observedGeneration"`
	Conditions         []conditionReport `json:"conditions"`
	Roles              []roleReport      `json:"roles"`
	// Retirement is null where nothing is being taken away and nothing was given up;
	// LastRetirement where none has ended yet.
	Retirement     *retirementReport `json:"retirement"`
	LastRetirement *lastReport       `json:"lastRetirement"`
}

type conditionReport struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type roleReport struct {
	Name string            `json:"name"`
	Kind v1alpha1.RoleKind `json:"kind"`
	// Ready and Desired count replicas. Desired is 0 for a role the spec has dropped.
	Ready   int32 `json:"ready"`
	Desired int32 `json:"desired"`
	// Unmanaged is true where the role's command is the user's own.
	Unmanaged bool            `json:"unmanaged"`
	Replicas  []replicaReport `json:"replicas"`
	// Missing are the ordinals below Desired that have no Pod.
	Missing []int `json:"missing"`
}

type replicaReport struct {
	Ordinal int `json:"ordinal"`
	// Size is how many Pods the replica was created with.
	Size int `json:"size"`
	// Withdrawn is true while the Services send nothing to it.
	Withdrawn bool `json:"withdrawn"`
	// OlderSpec is true where a Pod was not made from the role's present spec. It is
	// null where the status does not say what that is.
	OlderSpec *bool       `json:"olderSpec"`
	Pods      []podReport `json:"pods"`
}

type podReport struct {
	Name         string `json:"name"`
	Member       int    `json:"member"`
	Ready        bool   `json:"ready"`
	Phase        string `json:"phase"`
	Terminating  bool   `json:"terminating"`
	GraceSeconds int64  `json:"graceSeconds"`
	// Hook is whether the Pod has the drain hook; HookReason is one of the reasons of
	// an admission, or NoRecord.
	Hook       bool   `json:"hook"`
	HookReason string `json:"hookReason"`
}

type workloadReport struct {
	Namespace string `json:"namespace"`
	// Group is the API group of Kind; empty for a Pod.
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// Pods counts the opted-in Pods that run or start, Hooked those of them that have
	// the drain hook.
	Pods     int       `json:"pods"`
	Hooked   int       `json:"hooked"`
	Findings []finding `json:"findings"`
}

// finding is why Pods have no hook, or one that cannot do its work.
type finding struct {
	// Reason is one of the reasons of an admission, NoRecord, LabelNotOnPods or
	// UnknownLabelValue.
	Reason string `json:"reason"`
	// Message is what is wrong and the way out; empty for Pods that have nothing to
	// do with engines.
	Message string `json:"message"`
	// Command is what the user can run about it, where there is such a command.
	Command string `json:"command"`
	// PodNames are sorted.
	PodNames []string `json:"podNames"`
}
