package retirer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// of is a target of the role server whose Pod has the ordinal for its UID.
func of(ordinal int32, state v1alpha1.RetirementState, reason string) v1alpha1.RetirementTarget {
	id := strconv.Itoa(int(ordinal))
	return v1alpha1.RetirementTarget{
		Role: "server", Ordinal: ordinal, State: state, Reason: reason,
		Members: []v1alpha1.RetirementMember{{Name: "chat-server-" + id, UID: types.UID(id), ContainerID: "c" + id, Answering: true}},
	}
}

// operation is a scale-down with these targets.
func operation(targets ...v1alpha1.RetirementTarget) retire.Status {
	return retire.Status{Retirement: &v1alpha1.RetirementStatus{Cause: v1alpha1.CauseScaleDown, Targets: targets}}
}

func ended(end v1alpha1.RetirementEnd, reason string) retire.Status {
	return retire.Status{Last: &v1alpha1.LastRetirement{Cause: v1alpha1.CauseScaleDown, End: end, Reason: reason}}
}

func told(before, now retire.Status, remain ...types.UID) (lines []string) {
	for _, e := range story("chat", before, now, func(uid types.UID) bool { return slices.Contains(remain, uid) }) {
		line := e.reason + ": " + e.note
		if e.warning {
			line = "WARNING " + line
		}
		lines = append(lines, line)
	}
	return lines
}

const (
	admitted     = v1alpha1.StateAdmitted
	disqualified = v1alpha1.StateDisqualified
	withdrawing  = v1alpha1.StateWithdrawing
	draining     = v1alpha1.StateDraining
	deleting     = v1alpha1.StateDeleting
	settling     = v1alpha1.StateSettling
	completed    = v1alpha1.StateCompleted
	aborted      = v1alpha1.StateAborted
)

func TestAStoryIsToldAsItHappens(t *testing.T) {
	busy := of(1, draining, names.HeldServingRequests)
	busy.InFlight = new(int64(3))
	failed := of(1, aborted, names.HeldReadFailed)
	failed.Message = "exit code 7"
	rolled := of(1, aborted, names.RetireMemberReplaced)
	rolled.Members[0].UID = "new"
	emptied := of(1, aborted, names.RetireMemberReplaced)
	emptied.Members = nil
	deletion := operation(of(1, admitted, ""))
	deletion.Retirement.Cause = v1alpha1.CauseDeletion
	const stays = "RetirementCancelled: chat-server-1 is wanted again and stays"
	const gone = "RetirementCompleted: chat-server-1 is gone"
	const overran = "WARNING SettlingOverran: chat-server-1 was deleted, and its Pods are still there although their grace period and 30 s are over: look at their node and their finalizers"

	for what, tc := range map[string]struct {
		before, now retire.Status
		remain      []types.UID
		want        []string
	}{
		"nothing": {},
		"two are admitted": {
			now:  operation(of(2, admitted, ""), of(1, admitted, "")),
			want: []string{"RetirementStarted: taking away chat-server-2, chat-server-1: the role's replicas fell"},
		},
		"a deletion": {now: deletion, want: []string{"RetirementStarted: taking away chat-server-1: the ModelDeployment is being deleted"}},
		"one joins another that is on its way": {
			before: operation(of(2, settling, names.RetireIdle)), now: operation(of(2, settling, names.RetireIdle), of(1, admitted, "")),
			want: []string{"RetirementStarted: taking away chat-server-1: the role's replicas fell"},
		},
		"what was given up is tried again": {
			before: operation(of(1, aborted, names.HeldReadFailed)), now: operation(of(1, admitted, "")),
			want: []string{"RetirementStarted: taking away chat-server-1: the role's replicas fell"},
		},
		"it goes its way": {before: operation(of(1, admitted, "")), now: operation(of(1, disqualified, ""))},
		"busy": {
			before: operation(of(1, draining, "")), now: operation(busy),
			want: []string{"ServingRequests: chat-server-1 is held: 3 in flight"},
		},
		"busy still": {before: operation(busy), now: operation(busy)},
		"busy, and given up": {
			before: operation(busy), now: operation(failed),
			want: []string{"WARNING RetirementAborted: chat-server-1 stays and serves: ReadFailed: exit code 7; kubectl lastcall explain says more, kubectl lastcall retry tries again"},
		},
		"given up once more": {before: operation(failed), now: operation(of(1, aborted, names.HeldExecForbidden))},
		"refused at once": {
			before: operation(of(1, admitted, "")), now: operation(of(1, aborted, names.HeldPrefillDecode)),
			want: []string{"WARNING RetirementAborted: chat-server-1 stays and serves: PrefillDecode; kubectl lastcall explain says more, kubectl lastcall retry tries again"},
		},
		"what was given up was rolled":        {before: operation(failed), now: operation(rolled)},
		"what was given up is gone":           {before: operation(failed), now: operation(emptied)},
		"what was given up is listed no more": {before: operation(emptied), now: retire.Status{}},
		"wanted again with its mark":          {before: operation(busy), now: operation(of(1, aborted, names.RetireCancelled)), want: []string{stays}},
		"its mark is off":                     {before: operation(of(1, aborted, names.RetireCancelled)), now: ended(v1alpha1.EndCancelled, names.RetireCancelled)},
		"wanted again, and never marked":      {before: operation(of(1, admitted, "")), now: ended(v1alpha1.EndCancelled, names.RetireCancelled), remain: []types.UID{"1"}, want: []string{stays}},
		"wanted again, while another is deleted": {
			before: operation(of(2, deleting, names.RetireIdle), of(1, withdrawing, "")), now: operation(of(2, deleting, names.RetireIdle)),
			remain: []types.UID{"1", "2"}, want: []string{stays},
		},
		"wanted again, as another is gone": {
			before: operation(of(2, settling, names.RetireIdle), of(1, withdrawing, "")), now: ended(v1alpha1.EndCompleted, names.RetireIdle),
			remain: []types.UID{"1"}, want: []string{"RetirementCompleted: chat-server-2 is gone", stays},
		},
		"proven idle": {
			before: operation(of(1, draining, names.HeldProvingIdle)), now: operation(of(1, deleting, names.RetireIdle)),
			want: []string{"RetirementDeleting: deleting the Pods of chat-server-1: Idle"},
		},
		"not proven in a deletion": {
			before: operation(busy), now: operation(of(1, deleting, names.HeldServingRequests)),
			want: []string{"WARNING RetirementUnproven: deleting the Pods of chat-server-1 through their drain window, not proven idle in time: ServingRequests"},
		},
		"not proven again in a deletion": {
			before: operation(of(1, deleting, names.RetireIdle)), now: operation(of(1, deleting, names.RetireNotProvenAgain)),
			want: []string{"WARNING RetirementUnproven: deleting the Pods of chat-server-1 through their drain window, not proven idle in time: NotProvenAgain"},
		},
		"what ran nothing has ended since": {before: operation(of(1, deleting, names.RetireNeverStarted)), now: operation(of(1, deleting, names.RetireNotRunning))},
		"it turns out that something ran":  {before: operation(of(1, deleting, names.RetireNeverStarted)), now: operation(of(1, admitted, ""))},
		"deletes are accepted":             {before: operation(of(1, deleting, names.RetireIdle)), now: operation(of(1, settling, names.RetireIdle)), remain: []types.UID{"1"}},
		"gone, others are not": {
			before: operation(of(2, draining, ""), of(1, settling, names.RetireIdle)), now: operation(of(2, draining, ""), of(1, completed, names.RetireIdle)),
			want: []string{gone},
		},
		"told before that it is gone": {before: operation(of(1, completed, names.RetireIdle)), now: ended(v1alpha1.EndCompleted, names.RetireIdle)},
		"gone, and with it all":       {before: operation(of(1, settling, names.RetireIdle)), now: ended(v1alpha1.EndCompleted, names.RetireIdle), want: []string{gone}},
		"gone by somebody else's hand": {
			before: operation(busy), now: ended(v1alpha1.EndCompleted, names.RetireMemberReplaced), want: []string{gone + ": MemberReplaced: somebody else deleted its Pods"},
		},
		"still there, others are not": {
			before: operation(of(2, draining, ""), of(1, settling, names.RetireIdle)), now: operation(of(2, draining, ""), of(1, completed, names.RetireSettlingOverran)),
			remain: []types.UID{"1"}, want: []string{overran},
		},
		"still there, and that was all": {
			before: operation(of(2, settling, names.RetireIdle), of(1, settling, names.RetireIdle)), now: ended(v1alpha1.EndCompleted, names.RetireSettlingOverran),
			remain: []types.UID{"1"}, want: []string{"RetirementCompleted: chat-server-2 is gone", overran},
		},
		"left behind": {
			before: operation(busy), now: ended(v1alpha1.EndCancelled, names.RetireOrphaned), remain: []types.UID{"1"},
			want: []string{"RetirementCancelled: chat-server-1 is let go: Orphaned"},
		},
		"the namespace goes, after the delete": {
			before: operation(of(1, settling, names.RetireIdle)), now: ended(v1alpha1.EndCancelled, names.RetireNamespaceTerminating), remain: []types.UID{"1"},
			want: []string{"RetirementCancelled: chat-server-1 is let go: NamespaceTerminating"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			assert.Equal(t, tc.want, told(tc.before, tc.now, tc.remain...))
			assert.Empty(t, told(tc.now, tc.now, tc.remain...), "nothing is told twice")
		})
	}
}

// Two replicas that do the same at the same time are two events: one that differs in
// its note alone is counted with the first, whose note it loses.
func TestEventsOfTwoReplicasDifferInMoreThanTheirNotes(t *testing.T) {
	all := story("chat", operation(of(2, draining, ""), of(1, draining, "")), operation(of(2, deleting, names.RetireIdle), of(1, deleting, names.RetireIdle)), nil)
	require.Len(t, all, 2)
	assert.Equal(t, types.UID("2"), all[0].about.UID)
	assert.Equal(t, types.UID("1"), all[1].about.UID)
}

// reasons are the constants of api/names that begin with these words.
func reasons(t *testing.T, prefixes ...string) (all []string) {
	t.Helper()
	for _, file := range []string{"retirement.go", "readings.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), "../../api/names/"+file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(spec.Names[0].Name, p) }) {
				value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				all = append(all, value)
			}
			return !ok
		})
	}
	return all
}

// What each reason does where it first appears: in a replica that is held, and in
// one that is given up or is deleted at last.
func TestEveryReasonHasALine(t *testing.T) {
	all := reasons(t, "Held", "Retire", "Read")
	require.Greater(t, len(all), 25)
	for _, reason := range all {
		held := told(operation(of(1, draining, "")), operation(of(1, draining, reason)))
		if slices.Contains(quiet, reason) {
			assert.Empty(t, held, reason)
		} else {
			assert.Len(t, held, 1, reason)
			assert.Equal(t, slices.Contains(failing, reason), strings.HasPrefix(held[0], "WARNING"), reason)
			assert.Contains(t, held[0], reason+": chat-server-1 is held: "+reason)
		}
		given := told(operation(of(1, draining, reason)), operation(of(1, aborted, reason)))
		require.Len(t, given, 1, reason)
		deleted := told(operation(of(1, draining, reason)), operation(of(1, deleting, reason)))
		require.Len(t, deleted, 1, reason)
		if reason != names.RetireCancelled {
			assert.Contains(t, given[0], reason)
		}
		assert.Contains(t, deleted[0], reason)
	}
	// Those that are no failure: work, waiting, and what the member is.
	for _, reason := range all {
		known := slices.Contains(slices.Concat(quiet, failing, []string{
			names.HeldConnectionsOpen, names.HeldServingRequests, names.HeldContainerRestarted, names.HeldCommandTakenOver, names.HeldPrefillDecode,
			names.HeldNoGaugeList, names.RetireNeverStarted, names.RetireNotRunning, names.RetireOrphaned, names.RetireNamespaceTerminating,
			names.RetireWithdrawalUnobservable, names.RetireNotMarked, names.RetireNotProvenAgain, names.RetireSettlingOverran, names.RetireCancelled,
			names.RetireStateUnknown, names.HeldRouterSelects, names.HeldRouterReturns, names.HeldRouterBypassed,
		}), reason)
		assert.True(t, known, "is %s something to warn of?", reason)
	}
}

func TestOnlyTargetsThatAreOnTheirWayAreRemembered(t *testing.T) {
	status := operation(of(3, draining, ""), of(2, aborted, names.HeldReadFailed), of(1, completed, names.RetireIdle))
	assert.Equal(t, map[types.UID]bool{"3": true, "1": true}, boundBy(status.Retirement, underWay))
	assert.Equal(t, map[types.UID]bool{"3": true, "2": true, "1": true}, boundBy(status.Retirement, anyTarget))
	assert.Empty(t, boundBy(nil, underWay))
}
