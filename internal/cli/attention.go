package cli

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/finalizer"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// attention is how long the retirer may take for something before it is doubted that
// it works: its slowest read takes 5 s, and another replica of it takes over from a
// lost one within 20 s.
const attention = 30 * time.Second

// stalled says what the retirer should have done by now and has not; empty where there
// is nothing.
func (e *explainer) stalled() string {
	operation, deleted := e.md.Status.Retirement, e.md.DeletionTimestamp
	switch {
	case deleted != nil && !finalizer.On(e.md):
		return ""
	case deleted != nil && (operation == nil || operation.Cause != v1alpha1.CauseDeletion):
		if late := e.now.Sub(deleted.Time); late > attention {
			return fmt.Sprintf("It was deleted %s ago, and the retirer has not taken that up.", seconds(late))
		}
		return ""
	case operation != nil:
		for i := range operation.Targets {
			if late := e.neglected(&operation.Targets[i]); late != "" {
				return late
			}
			if isUnderWay(&operation.Targets[i]) {
				return ""
			}
		}
		if e.retryPending() && e.now.Sub(e.lastEdit()) > attention {
			return "A retry was asked for, and the retirer has not acted on it."
		}
	}
	if later := e.later(); len(later) > 0 && e.now.Sub(e.lastEdit()) > attention {
		return fmt.Sprintf("%s should be taken away since %s ago, and the retirer has not taken that up.", enumerate(later), seconds(e.now.Sub(e.lastEdit())))
	}
	return ""
}

func (e *explainer) retryPending() bool {
	token := e.md.Annotations[names.AnnotationRetryRetirement]
	return token != "" && token != e.md.Status.Retirement.LastConsumedRetryToken
}

// neglected says what should have been done about a target by now; empty where there
// is nothing.
func (e *explainer) neglected(t *v1alpha1.RetirementTarget) string {
	if isDecided(t) || !isUnderWay(t) {
		return ""
	}
	name, since := replicaName(e.md, t.Role, t.Ordinal), e.now.Sub(t.PhaseStartedAt.Time)
	until, _ := e.timeLeft(t)
	switch {
	case !until.IsZero() && e.now.Sub(until) > attention:
		return fmt.Sprintf("The time of %s was over %s ago, and the retirer has not acted on that.", name, seconds(e.now.Sub(until)))
	case t.State == v1alpha1.StateAdmitted && since > attention:
		return fmt.Sprintf("%s was taken up %s ago, and nothing was done about it.", name, seconds(since))
	case t.State == v1alpha1.StateDraining && isRead(t.Reason) && since > attention:
		if t.ReadAt == nil {
			return fmt.Sprintf("%s is to be read every %s, and no read was recorded in %s.", name, seconds(retire.ReadInterval), seconds(since))
		}
		if age := e.now.Sub(t.ReadAt.Time); age > attention {
			return fmt.Sprintf("The last recorded read of %s is %s old, and one is due every %s.", name, seconds(age), seconds(retire.RecordInterval))
		}
	}
	return ""
}

// isRead reports whether a reason comes of reads that are made on and on.
func isRead(reason string) bool {
	switch reason {
	case names.HeldServingRequests, names.HeldProvingIdle, names.HeldNotReadYet:
		return true
	}
	return false
}

// lastEdit is when the spec was changed last, or its annotations: nothing dates the
// two apart.
func (e *explainer) lastEdit() time.Time {
	last := e.md.CreationTimestamp.Time
	for _, f := range e.md.ManagedFields {
		if f.Subresource == "" && f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}
