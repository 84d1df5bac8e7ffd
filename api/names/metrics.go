package names

// Metrics of the binaries, on :8080/metrics.
const (
	// MetricAdmissions counts Pods the webhook was asked about, by the labels
	// outcome and reason.
	MetricAdmissions = "lastcall_admissions_total"
	// MetricCertificateExpiry is the end of the webhook's serving certificate in
	// seconds since the epoch, 0 while it has none.
	MetricCertificateExpiry = "lastcall_certificate_expiry_timestamp_seconds"

	// MetricReplicasCreated counts replicas whose Pods the operator created.
	MetricReplicasCreated = "lastcall_replicas_created_total"
	// MetricReplicasReplaced counts replicas whose Pods the operator deleted to make
	// them again, by the label reason: one of Replaced*.
	MetricReplicasReplaced = "lastcall_replicas_replaced_total"
	// MetricCreateFailures counts objects that the API server did not take, by the
	// label reason: ReasonCreateFailed or ReasonNameTaken.
	MetricCreateFailures = "lastcall_create_failures_total"
)

// Metrics of the retirer, on :8080/metrics. Gauges are of the replica that leads.
const (
	// MetricRetirements counts operations that ended, by the labels cause and end.
	MetricRetirements = "lastcall_retirements_total"
	// MetricRetirementStateSeconds is how long replicas were in each state, a
	// histogram by the label state.
	MetricRetirementStateSeconds = "lastcall_retirement_state_seconds"
	// MetricMemberReads counts reads of engines from inside, by the label verdict:
	// Idle, Busy, or why the read proves nothing.
	MetricMemberReads = "lastcall_member_reads_total"
	// MetricRouterQuestions counts how often processes of routers were asked about
	// replicas, by the labels router and answered, true or false.
	MetricRouterQuestions = "lastcall_router_questions_total"
	// MetricRouterCommands counts commands to processes of routers, withdraw and
	// restore, by the labels router, command and taken, true or false.
	MetricRouterCommands = "lastcall_router_commands_total"
	// MetricReplicasHeld is how many replicas wait now, by the label reason.
	MetricReplicasHeld = "lastcall_replicas_held"
	// MetricLongestHold is for how many seconds the replica that has waited longest
	// has been held; 0 where none is.
	MetricLongestHold = "lastcall_longest_hold_seconds"
	// MetricReplicasAborted is how many replicas were given up and are kept, by the
	// label reason.
	MetricReplicasAborted = "lastcall_replicas_aborted"
)
