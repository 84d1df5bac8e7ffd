package retire

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// Spec is what is asked of a ModelDeployment, with defaults resolved.
type Spec struct {
	Generation int64
	// Wanted is how many replicas each role of the spec asks for.
	Wanted map[string]int32
	// Plan is how replicas are withdrawn.
	Plan Plan
	// Budgets bound each operation.
	Budgets Budgets
	// Deleting is whether the ModelDeployment has a deletion timestamp. WaitForIdle
	// then waits for idle replicas without bound.
	Deleting, WaitForIdle bool
	// RetryToken is the value of names.AnnotationRetryRetirement; empty without it.
	RetryToken string
}

// Unwanted reports whether it asks for a slot to be empty.
func (s *Spec) Unwanted(role string, ordinal int32) bool {
	replicas, there := s.Wanted[role]
	return s.Deleting || !there || ordinal >= replicas
}

// Plan is how a replica is withdrawn from its clients.
type Plan string

const (
	// PlanHold has nothing to prove a withdrawal with, so nothing is marked.
	PlanHold Plan = "Hold"
	// PlanConnections marks the members, which leave their Services, and reads the
	// connections that are left.
	PlanConnections Plan = "Connections"
	// PlanRouter tells the router's processes that have to be told, marks the members,
	// which the others follow, and asks every process what it can still choose.
	PlanRouter Plan = "Router"
)

// Budgets are how long an operation may take.
type Budgets struct {
	// Withdraw bounds Withdrawing, Drain bounds Draining, Total an operation from its
	// start to its last decision to delete.
	Withdraw, Drain, Total time.Duration
}

// The budgets where neither a flag nor the spec says otherwise.
const (
	DefaultWithdraw = 30 * time.Second
	DefaultDrain    = 240 * time.Second
	DefaultTotal    = 300 * time.Second
)

const (
	// MaxTargets is how many replicas one operation takes away; the rest follow in the
	// next.
	MaxTargets = 64
	// maxListed is how many targets a status can list, with those that were given up.
	maxListed = 128
	// MaxMembers is how many Pods one operation takes away, unless one replica has more.
	MaxMembers = 1024
	// MaxRouters is how many processes of its router a target lists.
	MaxRouters = 64
	// SettleSlack is what Pods may need beyond their grace period to be gone.
	SettleSlack = 30 * time.Second
	// ReadInterval is the time between the starts of two reads of a member. Proofs take
	// 6 s, so it divides 6: each read is an exec, and more of them prove nothing sooner.
	ReadInterval = 3 * time.Second
	// MarkInterval is the time between two tries to mark a member.
	MarkInterval = time.Second
	// IdleReads is how many idle reads prove anything at least.
	IdleReads = 2
	// RecordInterval is the longest time for which a status may be older than the
	// last read.
	RecordInterval = 10 * time.Second
	// ProofAge is how old the last read of a proof may be when a delete is sent.
	ProofAge = 5 * time.Second
	// TellInterval is the least time between two tries to tell a process of a router the
	// same.
	TellInterval = 5 * time.Second
	// TellDrainInterval is that of a process whose second removal would end the drain that
	// the first one began: by then the first is lost.
	TellDrainInterval = 20 * time.Second
	// RestoreAfter is from when a replica counts as listed again, after a process of a
	// router was told to leave it alone: some take their time to do so.
	RestoreAfter = 20 * time.Second
	// RestoreInterval is the time between two looks at a router that has not listed a
	// replica again in the time of withdrawal.
	RestoreInterval = 30 * time.Second
	// RefusedDelay is waited before a delete that was refused is sent again.
	RefusedDelay = 5 * time.Second
)

// Observations are what is known of a ModelDeployment's replicas now.
type Observations struct {
	// Since is when this process began to look; zero where it always has. Nothing is
	// given up for want of time before it has looked for itself.
	Since time.Time
	// Replicas are all that have a Pod with this ModelDeployment's controller
	// reference, by role and ordinal.
	Replicas []Replica
	// Reads are those of this process, by the UID of the member that was read, in the
	// order they were started.
	Reads map[types.UID][]Read
	// Direct is what is known of the clients of a member, by its UID; the samples in
	// the order they were started.
	Direct map[types.UID]withdraw.Direct
	// Routed is what is known of the router's processes about a member, by its UID.
	Routed map[types.UID]withdraw.Routed
	// Refused is the last delete of a member that the API server did not accept.
	Refused map[types.UID]Refusal
	// Orphaned is whether a deletion asked to leave the Pods behind; Foreground
	// whether it deletes them itself, whatever any finalizer says; and
	// NamespaceTerminating whether everything around goes.
	Orphaned, Foreground, NamespaceTerminating bool
}

// Replica is the Pods of one slot.
type Replica struct {
	Role    string
	Ordinal int32
	Members []Member
	// Workload is Kueue's for these Pods: one that is not being deleted, and of no Pods
	// but those of the slot. Nil where there is none. It matters where the slot is to be
	// emptied or nothing in it stays, and need not be known elsewhere.
	Workload *Workload
	// WorkloadUnknown is whether there may be one that could not be read.
	WorkloadUnknown bool
}

// Workload is what Kueue admits the Pods of a replica by.
type Workload struct {
	Name            string
	UID             types.UID
	ResourceVersion string
}

// Member is one Pod of a replica: all about it is from the Pod itself, never from
// its role as it is now.
type Member struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Index is the member's number, Size how many the replica was created with; -1
	// and 0 where its labels do not say.
	Index, Size int32
	// ContainerID is the engine's container; empty where none was ever started.
	ContainerID string
	Running     bool
	// Starting is whether its startup probe has not succeeded yet.
	Starting bool
	// LeavingBy is when a Pod that is being deleted reaches the end of its grace
	// period; zero while it stays.
	LeavingBy time.Time
	// Ended is whether the Pod has failed or succeeded, and runs nothing any more.
	Ended bool
	// Withdrawn is whether the Pod carries the mark.
	Withdrawn bool
	// Grace is the Pod's termination grace period.
	Grace time.Duration
	// Engine and Endpoint are from the record of its admission; empty without one.
	Engine, Endpoint string
	// Refresh is how long the engine's gauges can lag; zero where lastcall has no list
	// of its gauges.
	Refresh time.Duration
	// TakenOver is a Pod whose command line is the user's; Split one that prefills or
	// decodes for others.
	TakenOver, Split bool
	// NodeUnreachable is whether the Pod's node does not answer.
	NodeUnreachable bool
}

func (m *Member) leaving() bool { return !m.LeavingBy.IsZero() }

// Read is one read of a member's engine, from inside its container.
type Read struct {
	SentAt, ReceivedAt time.Time
	// ContainerID is the container it was made in, as the API server had it before and
	// after; and Started when the container's first process was started, as the
	// read itself saw it. The API server can be a second late with a restart, and
	// then the two disagree.
	ContainerID, Started string
	// Verdict is what the engine said.
	Verdict ReadVerdict
	// InFlight is how many requests it has; of a busy one, at least 1.
	InFlight int64
	// Reason is why a failed read proves nothing: one of names.Read* and names.Held*.
	Reason, Message string
}

// ReadVerdict is what a read came to.
type ReadVerdict string

// What a read comes to. The zero value is a failed one.
const (
	ReadFailed ReadVerdict = ""
	ReadIdle   ReadVerdict = "Idle"
	ReadBusy   ReadVerdict = "Busy"
)

// Refusal is a delete that was not accepted.
type Refusal struct {
	At      time.Time
	Message string
}

// Action is what the host is to do. All of them are idempotent.
type Action interface{ action() }

// The actions.
type (
	// Disqualify marks a member, so that nothing new chooses it.
	Disqualify struct{ Pod PodRef }
	// Requalify takes the mark back.
	Requalify struct{ Pod PodRef }
	// Probe reads a member's engine, in this container and no other. With Clients it
	// looks first which EndpointSlices have the member, and then reads the connections to
	// its port too; until withdraw.Direct.Counts, an exec would be for nothing. DroppedAt
	// is when the member was seen to have left them, zero where that is not known.
	Probe struct {
		Pod       PodRef
		Clients   bool
		DroppedAt time.Time
	}
	// AskRouter asks every process of the router about a member.
	AskRouter struct{ Pod PodRef }
	// WithdrawFromRouter tells one run of one process of the router to leave a member
	// alone.
	WithdrawFromRouter struct {
		Process withdraw.Process
		Pod     PodRef
	}
	// RestoreToRouter tells it that it need not any more.
	RestoreToRouter struct {
		Process withdraw.Process
		Pod     PodRef
	}
	// DeleteMember deletes a Pod. With ResourceVersion it must not have changed since.
	DeleteMember struct {
		Pod             PodRef
		ResourceVersion string
	}
	// DeleteWorkload deletes a Kueue Workload that has not changed since it was seen: it
	// has not got another Pod.
	DeleteWorkload struct{ Workload Workload }
	// ClearRetry removes the annotation with this token.
	ClearRetry struct{ Token string }
	// ReleaseFinalizer lets the ModelDeployment go.
	ReleaseFinalizer struct{}
	// WakeAt asks for another round at this time although nothing may change.
	WakeAt struct{ Time time.Time }
)

// PodRef is one Pod, and where it matters one run of its engine.
type PodRef struct {
	Name        string
	UID         types.UID
	ContainerID string
}

func (Disqualify) action()         {}
func (Requalify) action()          {}
func (Probe) action()              {}
func (AskRouter) action()          {}
func (WithdrawFromRouter) action() {}
func (RestoreToRouter) action()    {}
func (DeleteMember) action()       {}
func (DeleteWorkload) action()     {}
func (ClearRetry) action()         {}
func (ReleaseFinalizer) action()   {}
func (WakeAt) action()             {}

// Status is the retirer's part of a ModelDeployment's status.
type Status struct {
	Retirement *v1alpha1.RetirementStatus
	Last       *v1alpha1.LastRetirement
}
