package names

// Conditions of a ModelDeployment.
const (
	// ConditionReady is True while every replica the spec asks for is Ready.
	ConditionReady = "Ready"
	// ConditionProgressing is True while replicas are being made or replaced.
	ConditionProgressing = "Progressing"
	// ConditionRetiring is True while replicas are being taken away.
	ConditionRetiring = "Retiring"
)

// Reasons of the condition Ready.
const (
	// ReasonAllReplicasReady means that every replica the spec asks for is Ready.
	ReasonAllReplicasReady = "AllReplicasReady"
	// ReasonReplicasNotReady means that a replica is missing, leaving or not Ready;
	// the message counts them by role.
	ReasonReplicasNotReady = "ReplicasNotReady"
	// ReasonDeleting means that the ModelDeployment is being deleted. It is one of
	// Progressing too.
	ReasonDeleting = "Deleting"
)

// Reasons of the condition Progressing. Where several hold, the first here is
// shown.
const (
	// ReasonRenderFailed means that the spec cannot be made into Pods; the message
	// names the field. Running replicas are left alone.
	ReasonRenderFailed = "RenderFailed"
	// ReasonNameTaken means that an object that is not this ModelDeployment's has
	// the name of a Pod, Service or PodDisruptionBudget it needs.
	ReasonNameTaken = "NameTaken"
	// ReasonCreateFailed means that the API server, a quota or an admission webhook
	// refused an object, or that a Pod came back without its drain hook.
	ReasonCreateFailed = "CreateFailed"
	// ReasonReplicaFailing means that a replica cannot start: its image cannot be
	// pulled, its container keeps failing, or it cannot be scheduled. A rollout
	// waits for it.
	ReasonReplicaFailing = "ReplicaFailing"
	// ReasonRolloutInProgress means that replicas of an older spec are being
	// replaced, one at a time.
	ReasonRolloutInProgress = "RolloutInProgress"
	// ReasonReplacementInProgress means that a replica that was lost is being made
	// again.
	ReasonReplacementInProgress = "ReplacementInProgress"
	// ReasonReplicasStarting means that replicas are being made that were not there
	// before, or that the Pods of new ones are not Ready yet.
	ReasonReplicasStarting = "ReplicasStarting"
	// ReasonUpToDate means that there is nothing to do.
	ReasonUpToDate = "UpToDate"
)

// Reasons of events on a ModelDeployment that are no reasons of a condition.
const (
	// EventReplicaCreated: the Pods of a replica were created.
	EventReplicaCreated = "ReplicaCreated"
	// EventReplicaDeleted: the Pods of a replica were deleted to be replaced; the
	// note says why.
	EventReplicaDeleted = "ReplicaDeleted"
	// EventRolloutCompleted: every replica of a role has the present spec and is
	// Ready.
	EventRolloutCompleted = "RolloutCompleted"
)

// Why the operator deletes the Pods of a replica to make it again: in the notes of
// events and as a label of MetricReplicasReplaced.
const (
	// ReplacedOutdated: the spec of its role has changed.
	ReplacedOutdated = "Outdated"
	// ReplacedPodDeleted: somebody or something else deleted a Pod of it.
	ReplacedPodDeleted = "PodDeleted"
	// ReplacedPodEnded: a Pod of it has failed for good, such as by an eviction for
	// the node's sake.
	ReplacedPodEnded = "PodEnded"
	// ReplacedRestarted: a Pod of several restarted its engine, which the others do
	// not take back.
	ReplacedRestarted = "PodRestarted"
	// ReplacedNotInjected: a Pod was created past the admission webhook, and so has
	// no drain hook.
	ReplacedNotInjected = "NotInjected"
)
