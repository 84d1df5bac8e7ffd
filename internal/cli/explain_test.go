package cli

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// atNight is when the stories are told, and ago a moment before it.
var atNight = time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(atNight.Add(-d)) }

// told is a ModelDeployment qwen with the role server, three replicas of which the
// last is not wanted any more, and a retirement of it that began 65 s ago.
type told struct {
	facts
}

func (s *told) md() *v1alpha1.ModelDeployment           { return &s.deployments[0] }
func (s *told) operation() *v1alpha1.RetirementStatus   { return s.md().Status.Retirement }
func (s *told) target(i int) *v1alpha1.RetirementTarget { return &s.operation().Targets[i] }
func (s *told) pod(i int) *corev1.Pod                   { return &s.pods[i] }
func (s *told) delete(when time.Duration, finalizers ...string) {
	at := metav1.NewTime(atNight.Add(-when))
	s.md().DeletionTimestamp, s.md().Finalizers = &at, finalizers
	if s.operation() != nil {
		s.operation().Cause = v1alpha1.CauseDeletion
	}
}

func newTold() *told {
	replicas := int32(2)
	s := &told{facts{deployments: []v1alpha1.ModelDeployment{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "qwen", UID: "m1", Generation: 4, CreationTimestamp: metav1.NewTime(atNight.Add(-time.Hour))},
		Spec: v1alpha1.ModelDeploymentSpec{
			Engine:     v1alpha1.Engine{Name: v1alpha1.VLLM},
			Withdrawal: v1alpha1.Withdrawal{Direct: v1alpha1.DirectConnections},
			Roles:      []v1alpha1.Role{{Name: "server", Replicas: &replicas}},
		},
		Status: v1alpha1.ModelDeploymentStatus{Retirement: &v1alpha1.RetirementStatus{
			Cause: v1alpha1.CauseScaleDown, State: v1alpha1.StateDraining, Generation: 4, StartedAt: ago(65 * time.Second),
			Deadline: metav1.NewMicroTime(atNight.Add(235 * time.Second)),
		}},
	}}}}
	for i := range 3 {
		s.pods = append(s.pods, toldPod("server", i, 0))
	}
	s.addTarget("server", 2, v1alpha1.StateDraining, names.HeldServingRequests)
	return s
}

func toldPod(role string, ordinal, member int) corev1.Pod {
	name := fmt.Sprintf("qwen-%s-%d", role, ordinal)
	if member > 0 {
		name = fmt.Sprintf("%s-%d", name, member)
	}
	controller := true
	grace := int64(120)
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: name, UID: types.UID("uid-" + name),
			Labels: map[string]string{names.LabelComponent: role, names.LabelOrdinal: strconv.Itoa(ordinal), names.LabelServing: names.Serving},
			Annotations: map[string]string{
				names.AnnotationPrometheusPort: "8000", names.AnnotationPrometheusPath: "/metrics",
				names.AnnotationStatus: `{"outcome":"injected","reason":"EngineRecognized","graceSeconds":120,"graceFrom":"spec"}`,
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "lastcall.dev/v1alpha1", Kind: "ModelDeployment", Name: "qwen", UID: "m1", Controller: &controller}},
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, NodeName: "gpu-7"},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: names.MainContainer, ContainerID: "containerd://1-" + name}},
		},
	}
}

// addTarget makes a replica a target that came into its state 50 s ago, withdrawn and
// read as such a target is.
func (s *told) addTarget(role string, ordinal int32, state v1alpha1.RetirementState, reason string) {
	t := v1alpha1.RetirementTarget{Role: role, Ordinal: ordinal, State: state, Reason: reason, PhaseStartedAt: ago(50 * time.Second)}
	withdrawn := slices.Contains([]v1alpha1.RetirementState{v1alpha1.StateWithdrawing, v1alpha1.StateDraining, v1alpha1.StateDeleting, v1alpha1.StateSettling}, state)
	for i := range s.pods {
		p := &s.pods[i]
		if r, o := slotOf(p); r != role || o != ordinal {
			continue
		}
		t.Members = append(t.Members, v1alpha1.RetirementMember{Name: p.Name, UID: p.UID, ContainerID: p.Status.ContainerStatuses[0].ContainerID, Answering: len(t.Members) == 0})
		if withdrawn && reason != names.RetireWithdrawalUnobservable {
			p.Labels[names.LabelServing] = names.Withdrawn
		}
	}
	four, none, at, idle := int64(4), int64(0), ago(8*time.Second), ago(13*time.Second)
	switch reason {
	case names.HeldServingRequests:
		t.ReadAt, t.InFlight = &at, &four
	case names.HeldProvingIdle, names.RetireIdle:
		t.ReadAt, t.InFlight, t.IdleSince = &at, &none, &idle
	case names.HeldReadFailed, names.HeldReadTimedOut, names.HeldReadIncomplete, names.HeldExecForbidden,
		names.ReadGaugesMissing, names.ReadInvalidValue, names.ReadNotMetrics, names.ReadTooLarge:
		t.ReadAt = &at
	}
	s.operation().Targets = append(s.operation().Targets, t)
}

// set gives the only target another state and reason.
func (s *told) set(state v1alpha1.RetirementState, reason string) *v1alpha1.RetirementTarget {
	s.operation().Targets = nil
	for i := range s.pods {
		s.pods[i].Labels[names.LabelServing] = names.Serving
	}
	s.addTarget("server", 2, state, reason)
	return s.target(0)
}

// routed puts a router in front, and lists its processes in the only target.
func (s *told) routed(name v1alpha1.RouterName, processes ...v1alpha1.RetirementRouter) {
	s.md().Spec.Withdrawal.Direct = ""
	s.md().Spec.Router = &v1alpha1.Router{Name: name, Namespace: "routing", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "router"}}, Port: 8000}
	s.target(0).Routers = processes
}

// process is one that was asked 2 s ago, and told so long ago if it was.
func process(pod, missing, message string, told time.Duration) v1alpha1.RetirementRouter {
	asked := ago(2 * time.Second)
	p := v1alpha1.RetirementRouter{Pod: pod, UID: types.UID(pod), Missing: missing, Message: message, AskedAt: &asked}
	if told > 0 {
		at := ago(told)
		p.ToldAt = &at
	}
	return p
}

func (s *told) text() string { return explain(atNight, s.facts).text(atNight) }

func TestExplainTellsTheStory(t *testing.T) {
	second := time.Second
	for sentence, story := range map[string]func(*told){
		"nothing was ever retired": func(s *told) {
			three := int32(3)
			s.md().Spec.Roles[0].Replicas, s.md().Status.Retirement = &three, nil
		},
		"nothing is held and the last was completed": func(s *told) {
			s.md().Status.Retirement, s.pods = nil, s.pods[:2]
			s.md().Status.LastRetirement = &v1alpha1.LastRetirement{Cause: v1alpha1.CauseScaleDown, End: v1alpha1.EndCompleted, Reason: names.RetireIdle, StartedAt: ago(time.Hour), EndedAt: ago(59 * time.Minute)}
		},
		"admitted": func(s *told) {
			s.set(v1alpha1.StateAdmitted, "").PhaseStartedAt = ago(second)
		},
		"being marked": func(s *told) {
			s.set(v1alpha1.StateDisqualified, "").PhaseStartedAt = ago(3 * second)
		},
		"one of two Pods is marked": func(s *told) {
			s.pods = append(s.pods, toldPod("server", 2, 1))
			s.set(v1alpha1.StateDisqualified, "").PhaseStartedAt = ago(3 * second)
			s.pod(2).Labels[names.LabelServing] = names.Withdrawn
		},
		"being withdrawn": func(s *told) {
			s.set(v1alpha1.StateWithdrawing, names.HeldConnectionsUnread).PhaseStartedAt = ago(5 * second)
		},
		"cannot be withdrawn": func(s *told) {
			s.md().Spec.Withdrawal.Direct = v1alpha1.DirectHold
			s.set(v1alpha1.StateWithdrawing, names.RetireWithdrawalUnobservable).PhaseStartedAt = ago(5 * second)
		},
		"serves requests":  func(*told) {},
		"is being deleted": func(s *told) { s.set(v1alpha1.StateDeleting, names.RetireIdle) },
		"is leaving": func(s *told) {
			s.set(v1alpha1.StateSettling, names.RetireIdle)
			end := metav1.NewTime(atNight.Add(70 * second))
			s.pod(2).DeletionTimestamp = &end
		},
		"was admitted by Kueue": func(s *told) {
			for i, state := range []v1alpha1.RetirementState{v1alpha1.StateSettling, v1alpha1.StateDraining, v1alpha1.StateAborted} {
				s.pods = append(s.pods, toldPod("pair", i, 0), toldPod("pair", i, 1))
				s.addTarget("pair", int32(i), state, names.HeldServingRequests)
				s.target(i + 1).Workload = &v1alpha1.RetirementWorkload{Name: fmt.Sprintf("qwen-pair-%d", i), UID: "w"}
			}
		},
		"should have left": func(s *told) {
			s.set(v1alpha1.StateSettling, names.RetireIdle).PhaseStartedAt = ago(145 * second)
			end := metav1.NewTime(atNight.Add(-40 * second))
			s.pod(2).DeletionTimestamp = &end
		},
		"is gone and waits for others": func(s *told) {
			one := int32(1)
			s.md().Spec.Roles[0].Replicas = &one
			s.set(v1alpha1.StateCompleted, names.RetireIdle)
			s.addTarget("server", 1, v1alpha1.StateDraining, names.HeldProvingIdle)
			s.pods = s.pods[:2]
		},
		"was given up": func(s *told) { s.set(v1alpha1.StateAborted, names.HeldServingRequests) },
		"was given up with nothing to prove it": func(s *told) {
			s.md().Spec.Withdrawal.Direct = v1alpha1.DirectHold
			s.set(v1alpha1.StateAborted, names.RetireWithdrawalUnobservable)
		},
		"was given up before it had a router": func(s *told) {
			s.set(v1alpha1.StateAborted, names.RetireWithdrawalUnobservable)
			s.routed(v1alpha1.VLLMRouter)
		},
		"a router is told": func(s *told) {
			s.set(v1alpha1.StateDisqualified, names.HeldRouterSelects).PhaseStartedAt = ago(5 * second)
			s.routed(v1alpha1.VLLMRouter, process("vr-0", names.HeldRouterSelects, "POST /workers: it answers 500", 5*second), process("vr-1", "", "", 4*second))
		},
		"a router takes it out": func(s *told) {
			s.set(v1alpha1.StateDisqualified, names.HeldRouterReturns).PhaseStartedAt = ago(5 * second)
			s.routed(v1alpha1.SGLangGateway, process("smg-0", names.HeldRouterReturns, "its selector still matches the labels of the replica", 5*second))
		},
		"a router is asked": func(s *told) {
			s.set(v1alpha1.StateWithdrawing, names.HeldRouterHolds).PhaseStartedAt = ago(9 * second)
			s.routed(v1alpha1.LLMDRouter, process("epp-a", "", "", 0), process("epp-b", names.HeldRouterHolds, "2 bound to it", 0),
				v1alpha1.RetirementRouter{Pod: "epp-c", UID: "c"}, process("epp-d", "Unheard", "", 0))
		},
		"a router of many processes is asked": func(s *told) {
			s.set(v1alpha1.StateWithdrawing, names.HeldRouterUnread).PhaseStartedAt = ago(9 * second)
			var all []v1alpha1.RetirementRouter
			for i := range 30 {
				missing := names.HeldRouterUnread
				if i%2 == 0 {
					missing = ""
				}
				all = append(all, process(fmt.Sprintf("gw-%02d", i), missing, "", 0))
			}
			s.routed(v1alpha1.SGLangGateway, all...)
		},
		"it was given up and its router was told": func(s *told) {
			s.set(v1alpha1.StateAborted, names.HeldRouterUnread).PhaseStartedAt = ago(5 * second)
			s.routed(v1alpha1.VLLMRouter, process("vr-0", names.HeldRouterUnread, "GET /workers: no answer in time", 40*second), process("vr-1", "", "", 0))
		},
		"it is wanted again and its router was told": func(s *told) {
			three := int32(3)
			s.md().Spec.Roles[0].Replicas = &three
			s.set(v1alpha1.StateAborted, names.RetireCancelled).PhaseStartedAt = ago(5 * second)
			s.routed(v1alpha1.VLLMRouter, process("vr-0", "", "", 40*second))
		},
		"it decodes and its router is seen": func(s *told) {
			s.set(v1alpha1.StateAborted, names.HeldPrefillDecode).PhaseStartedAt = ago(5 * second)
			s.routed(v1alpha1.LLMDRouter, process("epp-a", names.HeldRouterSelects, "it can choose the replica; it counts 3 requests for it; it has chosen it 57 times", 0))
		},
		"a deletion with a router": func(s *told) {
			s.set(v1alpha1.StateWithdrawing, names.HeldRouterUnread).PhaseStartedAt = ago(9 * second)
			s.routed(v1alpha1.LLMDRouter, process("epp-a", names.HeldRouterUnread, "it lists no endpoint at all, so it may not know its pool yet", 0))
			s.delete(20*second, names.Finalizer)
		},
		"is wanted again": func(s *told) {
			three := int32(3)
			s.md().Spec.Roles[0].Replicas = &three
			s.set(v1alpha1.StateAborted, names.RetireCancelled)
		},
		"its role was dropped": func(s *told) {
			s.pods = append(s.pods[:2], toldPod("old", 0, 0))
			s.operation().Cause, s.operation().Targets = v1alpha1.CauseRoleDropped, nil
			s.addTarget("old", 0, v1alpha1.StateAborted, names.HeldPrefillDecode)
		},
		"a later removal waits": func(s *told) {
			one := int32(1)
			s.md().Spec.Roles[0].Replicas = &one
		},
		"a Pod of somebody else has its labels": func(s *told) {
			s.md().Status.Retirement, s.pods = nil, append(s.pods[:2], toldPod("server", 7, 0))
			s.pod(2).OwnerReferences[0].UID = "another"
		},
		"the retirer says more": func(s *told) {
			recent := int64(3)
			t := s.set(v1alpha1.StateDraining, names.HeldReadFailed)
			t.Message, t.RecentDispatches = "connection refused", &recent
		},
		"its budgets are its own": func(s *told) {
			drain, total := int32(1200), int32(1260)
			s.md().Spec.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: &drain, TotalSeconds: &total}
			s.operation().Deadline = metav1.NewMicroTime(atNight.Add(1195 * second))
		},
		"its engine was restarted and its other Pod replaced": func(s *told) {
			s.pods = append(s.pods, toldPod("server", 2, 1))
			s.set(v1alpha1.StateDraining, names.HeldContainerRestarted)
			s.pod(2).Status.ContainerStatuses[0].ContainerID = "containerd://2"
			s.pod(3).UID = "another"
		},
		"its Pods could not be read": func(s *told) {
			s.pods, s.unread = nil, []string{`Pods with a label: pods is forbidden: User "jane" cannot list`}
		},
		"a state of another version": func(s *told) { s.set("Pondering", "Unheard") },
		"a deletion with a busy replica": func(s *told) {
			s.delete(65*second, names.Finalizer)
		},
		"a deletion that waits for idle": func(s *told) {
			s.delete(65*second, names.Finalizer, "example.com/other")
			s.md().Annotations = map[string]string{names.AnnotationDeletion: names.DeletionWaitForIdle}
		},
		"a deletion that lastcall does not hold": func(s *told) {
			s.md().Status.Retirement = nil
			s.delete(time.Hour, "example.com/other")
		},
		"a deletion that the retirer has not seen": func(s *told) {
			s.md().Status.Retirement = nil
			s.delete(40*second, names.Finalizer)
		},
		"a deletion of a moment ago": func(s *told) {
			s.md().Status.Retirement = nil
			s.delete(5*second, names.Finalizer)
		},
		"a surplus that the retirer has not seen": func(s *told) {
			edited, status := metav1.NewTime(atNight.Add(-40*second)), metav1.NewTime(atNight)
			s.md().Status.Retirement = nil
			s.md().ManagedFields = []metav1.ManagedFieldsEntry{{Time: &edited}, {Time: &status, Subresource: "status"}}
		},
		"a surplus of a moment ago": func(s *told) {
			edited, status := metav1.NewTime(atNight.Add(-5*second)), metav1.NewTime(atNight)
			s.md().Status.Retirement = nil
			s.md().ManagedFields = []metav1.ManagedFieldsEntry{{Time: &edited}, {Time: &status, Subresource: "status"}}
		},
		"the retirer stopped while it read": func(s *told) {
			at := ago(45 * second)
			s.target(0).ReadAt = &at
		},
		"the retirer stopped before the deadline": func(s *told) {
			s.operation().Deadline = ago(40 * second)
		},
		"the retirer has longer budgets than by default": func(s *told) {
			s.target(0).PhaseStartedAt = ago(300 * second)
			s.operation().Deadline = metav1.NewMicroTime(atNight.Add(300 * second))
		},
		"the retirer stopped and the budget of the spec is over": func(s *told) {
			drain := int32(15)
			s.md().Spec.Retirement.DrainSeconds = &drain
			s.target(0).ReadAt, s.target(0).Reason = nil, names.HeldNodeUnreachable
		},
		"a retry that nobody acted on": func(s *told) {
			s.set(v1alpha1.StateAborted, names.HeldServingRequests)
			s.md().Annotations = map[string]string{names.AnnotationRetryRetirement: "t"}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newTold()
			story(s)
			golden(t, filepath.Join("explain", strings.ReplaceAll(sentence, " ", "-")+".txt"), s.text())
		})
	}
}

// TestEveryReasonIsExplained holds the promise that no reason leaves a person without
// words: those of the API are read from its source, so that a new one is not forgotten.
func TestEveryReasonIsExplained(t *testing.T) {
	var held, ended strings.Builder
	reasons := reasonsOfTheAPI(t)
	require.Greater(t, len(reasons), 25)
	for _, name := range slices.Sorted(slices.Values(mapKeys(reasons))) {
		reason := reasons[name]
		m, ok := meanings[reason]
		if !assert.True(t, ok, "names.%s has no meaning", name) {
			continue
		}
		assert.NotEmpty(t, m.says, name)
		if waited := !strings.HasPrefix(name, "Retire"); waited {
			assert.NotEmpty(t, m.needs, "names.%s: what is missing?", name)
			assert.NotEmpty(t, append(slices.Clone(m.out), do(m.wait)), "names.%s: what is the way out?", name)
		}
		s := newTold()
		if ofRouter(reason) {
			s.routed(v1alpha1.SGLangGateway)
		}
		if state := stateOf(reason); state != v1alpha1.StateAborted {
			s.set(state, reason)
			fmt.Fprintf(&held, "== %s\n%s\n", reason, s.text())
		}
		s.set(v1alpha1.StateAborted, reason)
		x := explain(atNight, s.facts)
		fmt.Fprintf(&ended, "== %s\n%s\n", reason, x.text(atNight))
		assert.Equal(t, !m.lasting, strings.Contains(fmt.Sprint(x.Targets[0].WayOut), "kubectl lastcall retry qwen -n team-a"), name)
	}
	assert.Len(t, meanings, len(reasons), "a meaning of no reason")
	golden(t, filepath.Join("explain", "reasons-held.txt"), held.String())
	golden(t, filepath.Join("explain", "reasons-aborted.txt"), ended.String())
}

// stateOf is where a target that was not given up has this reason.
func stateOf(reason string) v1alpha1.RetirementState {
	switch reason {
	case names.RetireNotMarked, names.RetireMarkLost:
		return v1alpha1.StateDisqualified
	case names.HeldEndpointsRemain, names.HeldConnectionsOpen, names.HeldConnectionsUnread, names.HeldCommandTakenOver, names.RetireWithdrawalUnobservable,
		names.HeldRouterNotFound, names.HeldRouterNotAsked, names.HeldRouterUnread, names.HeldRouterSelects, names.HeldRouterReturns, names.HeldRouterHolds,
		names.HeldRecentDispatches, names.HeldRouterBypassed:
		return v1alpha1.StateWithdrawing
	case names.RetireIdle, names.RetireNeverStarted, names.RetireNotRunning, names.RetireNotProvenAgain:
		return v1alpha1.StateDeleting
	case names.RetireMemberReplaced, names.RetireSettlingOverran:
		return v1alpha1.StateSettling
	case names.RetireCancelled, names.RetireStateUnknown, names.RetireOrphaned, names.RetireNamespaceTerminating,
		names.HeldPrefillDecode, names.HeldNoGaugeList:
		return v1alpha1.StateAborted
	}
	return v1alpha1.StateDraining
}

func mapKeys(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// reasonsOfTheAPI are the constants that a target's reason can be, by their names.
func reasonsOfTheAPI(t *testing.T) map[string]string {
	t.Helper()
	reasons := map[string]string{}
	for _, name := range []string{"retirement.go", "readings.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../../api/names", name), nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			value, ok := n.(*ast.ValueSpec)
			if !ok || !regexp.MustCompile("^(Held|Retire|Read)[A-Z]").MatchString(value.Names[0].Name) || value.Names[0].Name == "Retirer" {
				return true
			}
			literal, ok := value.Values[0].(*ast.BasicLit)
			require.True(t, ok, value.Names[0].Name)
			text, err := strconv.Unquote(literal.Value)
			require.NoError(t, err)
			reasons[value.Names[0].Name] = text
			return true
		})
	}
	return reasons
}

// What is to be done about a router that goes on choosing differs by its family.
func TestEveryFamilyHasItsSelector(t *testing.T) {
	for name, want := range map[v1alpha1.RouterName]string{
		v1alpha1.LLMDRouter:    `select its workers with lastcall.dev/serving: "true" in spec.selector.matchLabels of its InferencePool, or --endpoint-selector=app.kubernetes.io/instance=qwen,app.kubernetes.io/component=server,lastcall.dev/serving=true`,
		v1alpha1.VLLMRouter:    "--selector app.kubernetes.io/instance=qwen app.kubernetes.io/component=server lastcall.dev/serving=true",
		v1alpha1.SGLangGateway: "--selector app.kubernetes.io/instance=qwen app.kubernetes.io/component=server lastcall.dev/serving=true",
	} {
		s := newTold()
		s.set(v1alpha1.StateWithdrawing, names.HeldRouterReturns)
		s.routed(name)
		assert.Contains(t, s.text(), want, name)
	}
	s := newTold() // its router was dropped from the spec meanwhile
	s.set(v1alpha1.StateWithdrawing, names.HeldRouterReturns)
	assert.Contains(t, s.text(), `select its workers with lastcall.dev/serving: "true"`)
	s.set(v1alpha1.StateWithdrawing, names.HeldRouterHolds)
	assert.Contains(t, s.text(), "kubectl get pods -n NAMESPACE -l app=ROUTER -o wide")
}

// TestTheCommandsToCopyAreWhole runs what can be run of them without a cluster: ours
// have to be known, with their flags, and no word in braces may be left.
func TestTheCommandsToCopyAreWhole(t *testing.T) {
	pages, err := filepath.Glob("testdata/explain/*.txt")
	require.NoError(t, err)
	ours := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		assert.NotRegexp(t, `\{[a-z]+\}`, string(text), page)
		for line := range strings.Lines(string(text)) {
			args, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl lastcall ")
			if !ok {
				continue
			}
			ours++
			cmd, rest, err := newRoot(Streams{Out: io.Discard, Err: io.Discard}).Find(strings.Fields(args))
			require.NoError(t, err, line)
			require.NoError(t, cmd.ParseFlags(rest), line)
			if cmd.Args != nil {
				require.NoError(t, cmd.Args(cmd, cmd.Flags().Args()), line)
			}
		}
	}
	require.Greater(t, ours, 20)
}

// golden compares text with a file of testdata; -update writes that.
func golden(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run go test ./internal/cli -update, and read what it writes")
	require.Equal(t, string(want), text)
}
