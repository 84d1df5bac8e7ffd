package names

// Group is the API group of lastcall's kinds and the prefix of every label and
// annotation.
const Group = "lastcall.dev"

// Finalizer holds a ModelDeployment until its replicas are retired.
const Finalizer = Group + "/retirement"

// Operator is the value of LabelManagedBy on Pods the operator builds.
const Operator = "lastcall-operator"

// Retirer is the field manager of what the retirer writes, and the reporter of its
// events.
const Retirer = "lastcall-retirer"

// MainContainer is the engine's container in a Pod the operator builds, and the
// one preferred in a user's Pod where several containers run an engine.
const MainContainer = "main"

// Labels.
const (
	// LabelDrain opts a Pod, or all Pods of a namespace, in or out. Values:
	// DrainEnabled, DrainDisabled. The Pod's label wins over its namespace's.
	LabelDrain = Group + "/drain"
	// DrainEnabled asks for the drain window.
	DrainEnabled = "enabled"
	// DrainDisabled keeps a Pod out of an opted-in namespace's drain window.
	DrainDisabled = "disabled"

	// LabelManagedBy is the well-known label that says who built a Pod.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelPartOf with the value PartOf marks lastcall's own Pods, which its
	// webhook must never be asked about.
	LabelPartOf = "app.kubernetes.io/part-of"
	// PartOf is the value of LabelPartOf on lastcall's own Pods.
	PartOf = "lastcall"

	// LabelRoleKind is Server, Prefill or Decode on Pods the operator builds.
	LabelRoleKind = Group + "/role-kind"
)

// Labels of what the operator builds, beside LabelRoleKind.
const (
	// LabelName with the value ModelDeploymentName is on every such object.
	LabelName = "app.kubernetes.io/name"
	// LabelInstance is the ModelDeployment's name.
	LabelInstance = "app.kubernetes.io/instance"
	// LabelComponent is the role's name.
	LabelComponent = "app.kubernetes.io/component"
	// LabelOrdinal is the number of the Pod's replica in its role, from 0.
	LabelOrdinal = Group + "/ordinal"
	// LabelMember is the number of the Pod in its replica; 0 is the leader.
	LabelMember = Group + "/member"
	// LabelSize is how many Pods the replica was created with.
	LabelSize = Group + "/size"
	// LabelServing is Serving on a Pod that its Services may send requests to. The
	// retirer sets Withdrawn.
	LabelServing = Group + "/serving"
)

// Values of the operator's labels.
const (
	ModelDeploymentName = "model-deployment"
	Serving             = "true"
	Withdrawn           = "false"
)

// AnnotationSpecHash is a digest of what the operator rendered. A replica whose
// digest is not that of its role now is replaced.
const AnnotationSpecHash = Group + "/spec-hash"

// Environment variables of the engine's container where a replica has several
// Pods.
const (
	// EnvLeaderAddress is the DNS name of member 0.
	EnvLeaderAddress = "LASTCALL_LEADER_ADDRESS"
	// EnvReplicaSize is how many Pods the replica has.
	EnvReplicaSize = "LASTCALL_REPLICA_SIZE"
	// EnvMemberIndex is the number of this Pod in its replica, from 0.
	EnvMemberIndex = "LASTCALL_MEMBER_INDEX"
)

// Annotations a user may set on a Pod.
const (
	// AnnotationEngine names the engine where it cannot be recognized. Values
	// are the engine names of internal/engine: vllm, sglang.
	AnnotationEngine = Group + "/engine"
	// AnnotationContainer names the engine's container.
	AnnotationContainer = Group + "/container"
	// AnnotationGraceSeconds is the Pod's termination grace period in whole
	// seconds, 15 to 3600.
	AnnotationGraceSeconds = Group + "/grace-seconds"
	// AnnotationMetricsPort is the port of the engine's own /metrics, 1 to 65535.
	AnnotationMetricsPort = Group + "/metrics-port"
	// AnnotationMetricsScheme is http or https.
	AnnotationMetricsScheme = Group + "/metrics-scheme"
	// AnnotationMetricsPath is the absolute path of the engine's metrics.
	AnnotationMetricsPath = Group + "/metrics-path"
	// AnnotationTakeOver, "true", says that the user owns the whole command line:
	// the Pod gets no hook. The operator sets it.
	AnnotationTakeOver = Group + "/take-over"
)

// Annotations returns the ones a user may set on a Pod.
func Annotations() []string {
	return []string{
		AnnotationEngine, AnnotationContainer, AnnotationGraceSeconds, AnnotationMetricsPort,
		AnnotationMetricsScheme, AnnotationMetricsPath, AnnotationTakeOver,
	}
}

// Annotations other tools use to say where metrics are; lastcall reads them
// after its own.
const (
	AnnotationPrometheusScrape = "prometheus.io/scrape"
	AnnotationPrometheusPort   = "prometheus.io/port"
	AnnotationPrometheusScheme = "prometheus.io/scheme"
	AnnotationPrometheusPath   = "prometheus.io/path"
)

// AnnotationStatus is the record that admission leaves on a Pod: what was done
// and why. It is JSON; see mutate.Record. An incoming value is ignored.
const AnnotationStatus = Group + "/status"

// Outcomes of an admission, in the record and in the admissions metric.
const (
	// OutcomeInjected means that the Pod carries the drain hook.
	OutcomeInjected = "injected"
	// OutcomeSkipped means that the Pod was admitted without the hook; the reason
	// says why.
	OutcomeSkipped = "skipped"
	// OutcomeRefused means that the Pod was not admitted.
	OutcomeRefused = "refused"
)

// Reasons of an admission, one for each record.
const (
	// ReasonEngineRecognized means that the engine was found and can be measured.
	ReasonEngineRecognized = "EngineRecognized"
	// ReasonNotMeasurable means that the engine was found but its gauges cannot be
	// read. The hook ends after the settle, or holds to the deadline where the
	// engine answers without them; a warning says what to change.
	ReasonNotMeasurable = "NotMeasurable"
	// ReasonNoEngine means that no container runs an engine lastcall knows.
	ReasonNoEngine = "NoEngine"
	// ReasonSeveralEngines means that more than one container runs an engine and
	// none is named.
	ReasonSeveralEngines = "SeveralEngines"
	// ReasonUserPreStop means that the container has a preStop hook of the user's
	// own, which is kept.
	ReasonUserPreStop = "UserPreStop"
	// ReasonGraceOutOfRange means that the Pod's own grace period is not in the
	// range the drain window needs.
	ReasonGraceOutOfRange = "GraceOutOfRange"
	// ReasonTakenOver means that the role's command is the user's own.
	ReasonTakenOver = "TakenOver"
	// ReasonInvalidAnnotation means that a lastcall.dev annotation was malformed.
	ReasonInvalidAnnotation = "InvalidAnnotation"
	// ReasonMalformedPod means that what was sent could not be read as a Pod.
	ReasonMalformedPod = "MalformedPod"
)

// Ends of the drain window, written by the hook as the last line of its log.
const (
	// EndDrained means that two reads in a row were idle.
	EndDrained = "Drained"
	// EndDeadline means that the window was over while work was in flight or could
	// not be ruled out.
	EndDeadline = "Deadline"
	// EndNothingToMeasure means that nothing answers for the engine: two reads in a
	// row found no listener, or one that serves no metrics.
	EndNothingToMeasure = "NothingToMeasure"
)
