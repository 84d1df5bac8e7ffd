package retirer

import (
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

func TestTheRetiringConditionWalksThroughTheStates(t *testing.T) {
	md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	status := func(state v1alpha1.RetirementState, reason, message string) retire.Status {
		return retire.Status{Retirement: &v1alpha1.RetirementStatus{State: state, Reason: reason, Message: message}, Last: ended(v1alpha1.EndAborted, "x").Last}
	}
	for what, tc := range map[string]struct {
		status                  retire.Status
		is                      metav1.ConditionStatus
		reason, message, absent string
	}{
		"under way":           {status: status(admitted, "", "chat-server-1"), is: metav1.ConditionTrue, reason: "Admitted", message: "chat-server-1"},
		"held":                {status: status(draining, "ServingRequests", "chat-server-1: 3 in flight"), is: metav1.ConditionTrue, reason: "Draining", message: "ServingRequests: chat-server-1: 3 in flight"},
		"given up":            {status: status(aborted, "ReadFailed", "chat-server-1"), is: metav1.ConditionFalse, reason: "Aborted", message: "ReadFailed: chat-server-1"},
		"ended":               {status: ended(v1alpha1.EndCompleted, names.RetireIdle), is: metav1.ConditionFalse, reason: "Completed", message: "Idle"},
		"wanted again":        {status: ended(v1alpha1.EndCancelled, names.RetireCancelled), is: metav1.ConditionFalse, reason: "Cancelled", message: "Cancelled"},
		"never anything more": {absent: "a condition"},
	} {
		t.Run(what, func(t *testing.T) {
			c := retiring(md, tc.status)
			if tc.absent != "" {
				assert.Nil(t, c)
				return
			}
			assert.Equal(t, &metav1.Condition{Type: names.ConditionRetiring, Status: tc.is, Reason: tc.reason, Message: tc.message, ObservedGeneration: 4}, c)
		})
	}
}

// maxLength is what the schema takes at a place in the status.
func maxLength(t *testing.T, path ...string) int64 {
	t.Helper()
	text, err := os.ReadFile("../../charts/lastcall/files/modeldeployments.yaml")
	require.NoError(t, err)
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &crd))
	at := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	for _, field := range path {
		if at.Items != nil {
			at = *at.Items.Schema
		}
		at = at.Properties[field]
	}
	require.NotNil(t, at.MaxLength, path)
	return *at.MaxLength
}

func TestWhatComesFromElsewhereIsCutToWhatTheSchemaTakes(t *testing.T) {
	assert.EqualValues(t, maxMessage, maxLength(t, "retirement", "message"))
	assert.EqualValues(t, maxTargetMessage, maxLength(t, "retirement", "targets", "message"))
	assert.EqualValues(t, maxToken, maxLength(t, "retirement", "lastConsumedRetryToken"))

	long := of(1, draining, "")
	long.Message = strings.Repeat("é", maxTargetMessage)
	s := operation(long)
	s.Retirement.Message = strings.Repeat("x", maxMessage+1)
	b := bounded(s.Retirement)
	assert.Len(t, b.Message, maxMessage)
	assert.True(t, strings.HasSuffix(b.Message, "x..."))
	assert.LessOrEqual(t, len(b.Targets[0].Message), maxTargetMessage)
	assert.True(t, utf8.ValidString(b.Targets[0].Message), "never in the middle of a character")
	assert.Equal(t, b, bounded(b), "and the same the next time")
	assert.Len(t, s.Retirement.Message, maxMessage+1, "in a copy")
	assert.Nil(t, bounded(nil))
	assert.Len(t, tokenOf(strings.Repeat("x", maxToken)), maxToken)
	assert.Len(t, tokenOf(strings.Repeat("x", maxToken+1)), maxToken)
}

func TestARoundThatIsRepeatedDecidesNothingNew(t *testing.T) {
	refused := of(1, deleting, names.HeldServingRequests)
	s := &seen{deployment: &v1alpha1.ModelDeployment{}, now: clock.RealClock{}.Now(), status: operation(refused)}
	s.spec = retire.Spec{Deleting: true, Budgets: budgets(retire.Budgets{})}
	s.observations.Replicas = []retire.Replica{{Role: "server", Ordinal: 1, Members: []retire.Member{{Name: "chat-server-1", UID: "1", ContainerID: "c1", Running: true}}}}
	s.observations.Refused = map[types.UID]retire.Refusal{"1": {At: s.now, Message: strings.Repeat("no ", 1000)}}
	first := s.decide()
	require.True(t, first.changed)
	s.status = retire.Status{Retirement: bounded(first.status.Retirement)} // as it was written
	again := s.decide()
	assert.False(t, again.changed, "a message that was cut is not another one")
}

func TestMetricsCountWhatAWriteSays(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	was := operation(of(1, draining, names.HeldServingRequests), of(2, aborted, names.HeldReadFailed))
	for i := range was.Retirement.Targets {
		was.Retirement.Targets[i].PhaseStartedAt = metav1.NewMicroTime(at.Add(-7 * time.Second))
	}
	now := operation(of(1, deleting, names.RetireIdle))
	m.observe(was, now, at)
	m.observe(now, now, at)
	end := ended(v1alpha1.EndCompleted, names.RetireIdle)
	m.observe(was, end, at)
	m.observe(end, end, at)
	m.read(readOf(probe.Target{}, probe.Result{Verdict: engine.Idle}))
	m.read(readOf(probe.Target{}, probe.Result{Verdict: engine.Busy, InFlight: 2}))
	m.read(readOf(probe.Target{}, probe.Result{Verdict: engine.Unknown, Reason: names.HeldReadTimedOut}))
	assert.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP `+names.MetricRetirements+` Operations that ended, by cause and end.
# TYPE `+names.MetricRetirements+` counter
`+names.MetricRetirements+`{cause="ScaleDown",end="Completed"} 1
# HELP `+names.MetricMemberReads+` Reads of engines from inside, by verdict.
# TYPE `+names.MetricMemberReads+` counter
`+names.MetricMemberReads+`{verdict="Busy"} 1
`+names.MetricMemberReads+`{verdict="Idle"} 1
`+names.MetricMemberReads+`{verdict="ReadTimedOut"} 1
`), names.MetricRetirements, names.MetricMemberReads))
	states := map[string]uint64{}
	sums := map[string]float64{}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == names.MetricRetirementStateSeconds {
			for _, metric := range f.GetMetric() {
				states[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleCount()
				sums[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleSum()
			}
		}
	}
	assert.Equal(t, map[string]uint64{"Draining": 2}, states, "of what was left, and never of what was given up")
	assert.Equal(t, map[string]float64{"Draining": 14}, sums)
}

func TestHoldsAreCountedByTheLeader(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	md := func(ago time.Duration, targets ...v1alpha1.RetirementTarget) v1alpha1.ModelDeployment {
		s := operation(targets...)
		s.Retirement.StartedAt = metav1.NewMicroTime(clock.Now().Add(-ago))
		return v1alpha1.ModelDeployment{Status: v1alpha1.ModelDeploymentStatus{Retirement: s.Retirement}}
	}
	leading := make(chan struct{})
	h := newHolds(deployments{
		{},
		md(10*time.Second, of(1, withdrawing, names.HeldConnectionsOpen), of(2, draining, names.HeldServingRequests), of(3, deleting, names.RetireIdle)),
		md(20*time.Second, of(1, draining, names.HeldServingRequests)),
		md(time.Hour, of(1, aborted, names.HeldReadFailed)),
	}, clock, leading)
	assert.Zero(t, testutil.CollectAndCount(h), "one that waits for the lease has a cache too")
	close(leading)
	assert.NoError(t, testutil.CollectAndCompare(h, strings.NewReader(`
# HELP `+names.MetricReplicasHeld+` Replicas that wait to be taken away, by reason.
# TYPE `+names.MetricReplicasHeld+` gauge
`+names.MetricReplicasHeld+`{reason="ConnectionsOpen"} 1
`+names.MetricReplicasHeld+`{reason="Idle"} 1
`+names.MetricReplicasHeld+`{reason="ServingRequests"} 2
# HELP `+names.MetricLongestHold+` Since how long the replica is held that has been for longest.
# TYPE `+names.MetricLongestHold+` gauge
`+names.MetricLongestHold+` 20
# HELP `+names.MetricReplicasAborted+` Replicas that were given up and stay, by reason.
# TYPE `+names.MetricReplicasAborted+` gauge
`+names.MetricReplicasAborted+`{reason="ReadFailed"} 1
`)))
}
