package names

// Annotations that people set on a ModelDeployment.
const (
	// AnnotationRetryRetirement restarts what was given up, once for each value.
	AnnotationRetryRetirement = Group + "/retry-retirement"
	// AnnotationDeletion with the value DeletionWaitForIdle makes a deletion wait for
	// idle replicas without bound.
	AnnotationDeletion = Group + "/deletion"
	// DeletionWaitForIdle is the value of AnnotationDeletion.
	DeletionWaitForIdle = "WaitForIdle"
)

// Why a replica is held: what the last look at it said. A held replica is read on
// until its budget ends.
const (
	// HeldEndpointsRemain: an EndpointSlice still has one of its Pods.
	HeldEndpointsRemain = "EndpointsRemain"
	// HeldConnectionsOpen: clients are connected to its engine's port.
	HeldConnectionsOpen = "ConnectionsOpen"
	// HeldConnectionsUnread: the connections to its engine's port have not been read
	// for long enough.
	HeldConnectionsUnread = "ConnectionsUnread"
	// HeldRouterNotFound: no Pod of its router can be found.
	HeldRouterNotFound = "RouterNotFound"
	// HeldRouterNotAsked: its router was not asked yet.
	HeldRouterNotAsked = "RouterNotAsked"
	// HeldRouterUnread: a process of its router could not be asked, or does not say
	// enough.
	HeldRouterUnread = "RouterUnread"
	// HeldRouterSelects: a process of its router can still choose it.
	HeldRouterSelects = "RouterSelects"
	// HeldRouterReturns: a process of its router cannot choose it, and would again by
	// itself.
	HeldRouterReturns = "RouterReturns"
	// HeldRouterHolds: a process of its router may hold a request for it.
	HeldRouterHolds = "RouterHolds"
	// HeldRecentDispatches: a process of its router has sent it a request a moment ago.
	HeldRecentDispatches = "RecentDispatches"
	// HeldRouterBypassed: something may choose it without asking its router.
	HeldRouterBypassed = "RouterBypassed"
	// HeldServingRequests: its engine has requests in flight.
	HeldServingRequests = "ServingRequests"
	// HeldProvingIdle: its engine is idle, and not for long enough yet to outlast the
	// lag of its gauges.
	HeldProvingIdle = "ProvingIdle"
	// HeldNotReadYet: its engine was not read yet.
	HeldNotReadYet = "NotReadYet"
	// HeldReadFailed: a read could not be made.
	HeldReadFailed = "ReadFailed"
	// HeldExecForbidden: the retirer is not allowed to read.
	HeldExecForbidden = "ExecForbidden"
	// HeldReadTimedOut: a read did not end in time.
	HeldReadTimedOut = "ReadTimedOut"
	// HeldReadIncomplete: a read was cut short.
	HeldReadIncomplete = "ReadIncomplete"
	// HeldContainerRestarted: its engine is not the one that was bound any more.
	HeldContainerRestarted = "ContainerRestarted"
	// HeldCommandTakenOver: its command line is the user's own, so nothing is known of
	// how to read it.
	HeldCommandTakenOver = "CommandTakenOver"
	// HeldAnsweringMemberUnknown: which of its Pods answers cannot be said.
	HeldAnsweringMemberUnknown = "AnsweringMemberUnknown"
	// HeldNodeUnreachable: its node does not answer.
	HeldNodeUnreachable = "NodeUnreachable"
	// HeldPrefillDecode: it prefills or decodes for others, and an idle moment of its
	// own proves nothing. Refused at once.
	HeldPrefillDecode = "PrefillDecode"
	// HeldNoGaugeList: lastcall does not know its engine's gauges. Refused at once.
	HeldNoGaugeList = "NoGaugeList"
)

// Reasons of a retirement beside those.
const (
	// RetireIdle: proven idle.
	RetireIdle = "Idle"
	// RetireNeverStarted: its engine was never started, so there is nothing to drain.
	RetireNeverStarted = "NeverStarted"
	// RetireNotRunning: its engine does not run: it has ended for good, is between two
	// starts, or still loads its model.
	RetireNotRunning = "NotRunning"
	// RetireOrphaned: the ModelDeployment was deleted, and its Pods were asked to be
	// left behind.
	RetireOrphaned = "Orphaned"
	// RetireNamespaceTerminating: everything in the namespace goes.
	RetireNamespaceTerminating = "NamespaceTerminating"
	// RetireMemberReplaced: its Pods are gone or replaced by somebody else.
	RetireMemberReplaced = "MemberReplaced"
	// RetireWithdrawalUnobservable: nothing can prove that clients reach it no more.
	RetireWithdrawalUnobservable = "WithdrawalUnobservable"
	// RetireNotMarked: its Pods could not be marked in time.
	RetireNotMarked = "NotMarked"
	// RetireMarkLost: somebody took a mark away; it is set again.
	RetireMarkLost = "MarkLost"
	// RetireNotProvenAgain: a delete was refused and the replica has not been proven
	// idle again in time. In a deletion it goes through its drain window.
	RetireNotProvenAgain = "NotProvenAgain"
	// RetireSettlingOverran: its Pods are still there although their time is over.
	RetireSettlingOverran = "SettlingOverran"
	// RetireCancelled: the spec wants it again.
	RetireCancelled = "Cancelled"
	// RetireStateUnknown: another version of lastcall wrote its state.
	RetireStateUnknown = "StateUnknown"
)

// Reasons of events of the retirer on a ModelDeployment, beside the Held reasons:
// an event that a replica is held has the reason that holds it.
const (
	// EventRetirementStarted: replicas are to be taken away; the note names them.
	EventRetirementStarted = "RetirementStarted"
	// EventRetirementDeleting: a replica was proven idle, or may go without a proof,
	// and its Pods are being deleted.
	EventRetirementDeleting = "RetirementDeleting"
	// EventRetirementUnproven: a ModelDeployment is being deleted, and a replica was
	// not proven idle in time: it goes through its drain window.
	EventRetirementUnproven = "RetirementUnproven"
	// EventRetirementAborted: a replica was given up and serves again.
	EventRetirementAborted = "RetirementAborted"
	// EventRetirementCancelled: the spec wants a replica again before it was deleted.
	EventRetirementCancelled = "RetirementCancelled"
	// EventRetirementCompleted: a replica's Pods are gone.
	EventRetirementCompleted = "RetirementCompleted"
)

// Reasons of the condition Retiring, beside the states of the operation, which are
// its reasons while one is under way or given up.
const (
	// ReasonRetirementCompleted: the last operation ended with its replicas gone.
	ReasonRetirementCompleted = "Completed"
	// ReasonRetirementCancelled: the last operation ended because the spec wanted its
	// replicas again.
	ReasonRetirementCancelled = "Cancelled"
)
