package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// targetReport is one replica that is being taken away, or was given up.
type targetReport struct {
	// Replica is the name of its Pods, without their number in it.
	Replica string                   `json:"replica"`
	Role    string                   `json:"role"`
	Ordinal int32                    `json:"ordinal"`
	State   v1alpha1.RetirementState `json:"state"`
	Reason  string                   `json:"reason"`
	// Since is when it came into its state.
	Since metav1.MicroTime `json:"since"`
	// Waits is what it waits for, and why.
	Waits string `json:"waits"`
	// Seen and Missing are the evidence.
	Seen    []string `json:"seen"`
	Missing []string `json:"missing"`
	// Routers are the processes of the router, those first that lack something.
	Routers []routerReport `json:"routers"`
	// EndsAt is when its state is over at the latest; null where that has no bound.
	EndsAt *metav1.MicroTime `json:"endsAt"`
	// TimeLeft says that for people, and what happens then.
	TimeLeft string `json:"timeLeft"`
	// WayOut is what to do about it, the best first.
	WayOut []advice `json:"wayOut"`
}

// rank puts those first that a person may have to do something about.
func (t *targetReport) rank() int {
	switch t.State {
	case v1alpha1.StateAborted:
		return 0
	case v1alpha1.StateDeleting, v1alpha1.StateSettling, v1alpha1.StateCompleted:
		return 2
	}
	return 1
}

func (e *explainer) target(t *v1alpha1.RetirementTarget) targetReport {
	r := targetReport{
		Replica: replicaName(e.md, t.Role, t.Ordinal), Role: t.Role, Ordinal: t.Ordinal,
		State: t.State, Reason: t.Reason, Since: t.PhaseStartedAt,
		Waits: e.waits(t), Seen: e.seen(t), Missing: []string{}, Routers: reportRouters(t), WayOut: []advice{},
	}
	if needs := e.needs(t); needs != "" {
		r.Missing = append(r.Missing, needs)
	}
	var at time.Time
	if at, r.TimeLeft = e.timeLeft(t); !at.IsZero() {
		ends := metav1.NewMicroTime(at)
		r.EndsAt = &ends
	}
	r.WayOut = append(r.WayOut, e.wayOut(t)...)
	return r
}

// waits says in words what a target waits for.
func (e *explainer) waits(t *v1alpha1.RetirementTarget) string {
	because := ""
	if t.Reason != "" {
		because = ": " + meaningOfTarget(t).says
	}
	switch t.State {
	case v1alpha1.StateAdmitted:
		return "It waits for its turn: the retirer has taken it up and nothing was done yet" + because + "."
	case v1alpha1.StateDisqualified:
		if ofRouter(t.Reason) {
			return "It waits until its router leaves it alone, before it is marked" + because + "."
		}
		return "It waits for the label " + names.LabelServing + ": \"" + names.Withdrawn + "\" on its Pods" + because + "."
	case v1alpha1.StateWithdrawing:
		return "It waits for a proof that no client can reach it any more" + because + "."
	case v1alpha1.StateDraining:
		return "It waits for a proof that its engine is idle" + because + "."
	case v1alpha1.StateDeleting:
		return "The decision to delete it stands, and its Pods are being deleted" + because + "."
	case v1alpha1.StateSettling:
		return "Its Pods were deleted and are leaving" + because + "."
	case v1alpha1.StateCompleted:
		return "It is gone, and listed until the others have ended" + because + "."
	case v1alpha1.StateAborted:
		if !isGivenUp(e.md, t) {
			return "The spec wants it again: it is let go as soon as it serves" + untilRestored(t) + "."
		}
		if len(owed(t)) > 0 {
			return "It was given up: it is kept" + untilRestored(t) + ". Why" + because + "."
		}
		return "It was given up: it is kept and serves again, until somebody asks for it anew. Why" + because + "."
	}
	return fmt.Sprintf("Its state is %s, which this version of kubectl lastcall does not know.", t.State)
}

// untilRestored is what a target that is kept lacks of its traffic.
func untilRestored(t *v1alpha1.RetirementTarget) string {
	if told := owed(t); len(told) > 0 {
		return ", and the router's processes that were told to leave it alone are told to choose it again: " + enumerate(told)
	}
	return ""
}

// needs is the evidence that is missing for the next step.
func (e *explainer) needs(t *v1alpha1.RetirementTarget) string {
	switch {
	case isDecided(t), t.State == v1alpha1.StateAborted && !isGivenUp(e.md, t):
		return ""
	case t.Reason != "":
		return e.words(t).Replace(meaningOfTarget(t).needs)
	case t.State == v1alpha1.StateDisqualified:
		return marked
	}
	return ""
}

// seen is the evidence there is: of the label, of the reads, of the members.
func (e *explainer) seen(t *v1alpha1.RetirementTarget) []string {
	withdrawn, there := 0, 0
	members := []string{}
	for i := range t.Members {
		m := &t.Members[i]
		p := e.pod(m)
		if p != nil {
			there++
			if p.Labels[names.LabelServing] == names.Withdrawn {
				withdrawn++
			}
		}
		members = append(members, e.member(m, p))
	}
	if t.Workload != nil {
		members = append(members, "Kueue's Workload "+t.Workload.Name+": "+workloadOf(t))
	}
	if e.blind {
		return append(e.reported(t), members...)
	}
	label := fmt.Sprintf("%d of its %d Pods are withdrawn, so its Services may still send to the rest", withdrawn, there)
	switch {
	case there == 0:
		label = "none of its Pods is there any more"
	case withdrawn == there:
		label = "withdrawn: its Services send it nothing"
	case withdrawn == 0:
		label = "not withdrawn: its Services may send to it"
	}
	seen := append([]string{label}, e.reported(t)...)
	if len(t.Members) == 0 {
		seen = append(seen, "no Pods were bound")
	}
	return append(seen, members...)
}

// workloadOf says what becomes of a target's Workload.
func workloadOf(t *v1alpha1.RetirementTarget) string {
	switch t.State {
	case v1alpha1.StateAborted:
		return "kept, with its Pods"
	case v1alpha1.StateSettling, v1alpha1.StateCompleted:
		return "deleted, now that no Pod of it stays"
	}
	return "kept until its last Pod is deleted"
}

// reported is what the retirer has seen, as the status says.
func (e *explainer) reported(t *v1alpha1.RetirementTarget) []string {
	seen := []string{e.reads(t)}
	if t.Message != "" {
		seen = append(seen, "the retirer says: "+t.Message)
	}
	if t.RecentDispatches != nil {
		seen = append(seen, fmt.Sprintf("%d requests lately sent to it, as its router says", *t.RecentDispatches))
	}
	return seen
}

func (e *explainer) reads(t *v1alpha1.RetirementTarget) string {
	if t.ReadAt == nil {
		return "no read of its engine so far"
	}
	when := fmt.Sprintf("read %s ago, at %s", seconds(e.now.Sub(t.ReadAt.Time)), clockTime(t.ReadAt.Time))
	switch {
	case t.InFlight == nil:
		return "the last read could not tell what is in flight; " + when
	case t.IdleSince == nil:
		return fmt.Sprintf("%d requests in flight; %s", *t.InFlight, when)
	}
	return fmt.Sprintf("%d requests in flight; %s; idle since %s", *t.InFlight, when, clockTime(t.IdleSince.Time))
}

// pod is a bound member's Pod; nil where it is gone, or another has its name.
func (e *explainer) pod(m *v1alpha1.RetirementMember) *corev1.Pod {
	for i := range e.pods {
		if e.pods[i].UID == m.UID {
			return &e.pods[i]
		}
	}
	return nil
}

// member says what became of a bound Pod.
func (e *explainer) member(m *v1alpha1.RetirementMember, p *corev1.Pod) string {
	text := "Pod " + m.Name
	if m.Answering {
		text += ", which answers for the replica"
	}
	switch {
	case e.blind:
		return text + ": could not be read"
	case p == nil && slices.ContainsFunc(e.pods, func(o corev1.Pod) bool { return o.Name == m.Name }):
		return text + ": replaced by another of the same name, which is not touched"
	case p == nil:
		return text + ": gone"
	case p.DeletionTimestamp != nil:
		return text + ": leaving, to be gone by " + e.when(p.DeletionTimestamp.Time)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == names.MainContainer && m.ContainerID != "" && c.ContainerID != m.ContainerID {
			return text + ": its engine was started again since"
		}
	}
	return fmt.Sprintf("%s: there, %s", text, p.Status.Phase)
}

// podsOf are the bound Pods of a target that are there.
func (e *explainer) podsOf(t *v1alpha1.RetirementTarget) (all []*corev1.Pod) {
	for i := range t.Members {
		if p := e.pod(&t.Members[i]); p != nil {
			all = append(all, p)
		}
	}
	return all
}

// wayOut is what is to be done about the reason, and then what can be done about any.
func (e *explainer) wayOut(t *v1alpha1.RetirementTarget) []advice {
	if t.State == v1alpha1.StateCompleted || t.State == v1alpha1.StateAborted && !isGivenUp(e.md, t) {
		return nil
	}
	words, pods := e.words(t), e.podsOf(t)
	var all []advice
	m := meaningOfTarget(t)
	if m.wait != "" && isUnderWay(t) {
		all = append(all, replaceIn(do(m.wait), words))
	}
	for _, a := range m.out {
		if a.ofNext && e.md.DeletionTimestamp != nil {
			continue
		}
		if t.Reason == names.RetireWithdrawalUnobservable && e.md.Spec.Router != nil {
			a = do("There is a spec.router by now, which the next attempt asks.")
		}
		all = append(all, replaceIn(a, words))
	}
	if isDecided(t) {
		return all
	}
	if len(owed(t)) > 0 {
		all = append(all, replaceIn(do("If a process does not choose it again, delete its Pod: the next one looks for its workers anew and finds it.", routerPods), words))
	}
	if t.State == v1alpha1.StateAborted && !m.lasting {
		all = append(all, replaceIn(do("When that is settled, begin again:", "kubectl lastcall retry {name} -n {namespace}"), words))
	}
	if e.md.DeletionTimestamp == nil {
		keep := do("To keep it after all:", fmt.Sprintf("kubectl lastcall scale {name} -n {namespace} --role {role} --replicas %d", t.Ordinal+1))
		if roleOf(e.md, t.Role) == nil {
			keep = do("To keep it after all, write the role {role} into the spec again, as it was:", editDeployment)
		}
		all = append(all, replaceIn(keep, words))
	}
	if len(pods) > 0 {
		cost := fmt.Sprintf("what is in flight has its drain window of %s, and what is left then is cut", seconds(graceOf(pods[0])))
		if !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return summarizePod(p).Hook }) {
			cost = "it has no drain hook, so what is in flight is cut as its engine sees fit"
		}
		all = append(all, replaceIn(do("To let it go now; "+cost+":", "kubectl delete pod -n {namespace} {pods}"), words))
	}
	return all
}

// reasonOf is the reason whose ways out a target has: those of its label where it
// has none yet.
func reasonOf(t *v1alpha1.RetirementTarget) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.State == v1alpha1.StateDisqualified:
		return names.RetireNotMarked
	}
	return names.RetireIdle
}

// words fills in the words in braces for a target.
func (e *explainer) words(t *v1alpha1.RetirementTarget) *strings.Replacer {
	pods := e.podsOf(t)
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return answersFirst(t, a) - answersFirst(t, b) })
	return e.wordsFor(pods, t.Role)
}

func answersFirst(t *v1alpha1.RetirementTarget, p *corev1.Pod) int {
	if slices.ContainsFunc(t.Members, func(m v1alpha1.RetirementMember) bool { return m.UID == p.UID && m.Answering }) {
		return 0
	}
	return 1
}

// wordsFor fills in the words in braces for Pods, the one that answers first.
func (e *explainer) wordsFor(pods []*corev1.Pod, role string) *strings.Replacer {
	first, all, node, metrics := "POD", []string{}, "NODE", "POD:PORT/proxy/metrics"
	for _, p := range pods {
		all = append(all, p.Name)
	}
	if len(pods) == 0 {
		all = []string{first}
	} else {
		first = pods[0].Name
		metrics = metricsPath(pods[0])
		if n := pods[0].Spec.NodeName; n != "" {
			node = n
		}
	}
	engine := render.Engine(&e.md.Spec)
	return strings.NewReplacer("{name}", e.md.Name, "{namespace}", e.md.Namespace, "{role}", role,
		"{pod}", first, "{pods}", strings.Join(all, " "), "{node}", node, "{metrics}", metrics,
		"{engine}", string(engine.Name), "{refresh}", seconds(engine.Refresh), "{connections}", directConnections(e.md),
		"{router}", findRouter(e.md), "{followslabel}", followsLabel(e.md, role), "{leavesalone}", leavesAlone(e.md, role), "{holdsnothing}", holdsNothing(e.md))
}

// metricsPath is where the API server passes on to a Pod's /metrics.
func metricsPath(p *corev1.Pod) string {
	port, path, scheme := p.Annotations[names.AnnotationPrometheusPort], p.Annotations[names.AnnotationPrometheusPath], ""
	if _, err := strconv.Atoi(port); err != nil {
		port = "PORT"
	}
	if path == "" {
		path = "/metrics"
	}
	if p.Annotations[names.AnnotationPrometheusScheme] == "https" {
		scheme = "https:"
	}
	return fmt.Sprintf("%s%s:%s/proxy%s", scheme, p.Name, port, path)
}

func (e *explainer) fill(a advice, pods []*corev1.Pod, role string) advice {
	return replaceIn(a, e.wordsFor(pods, role))
}

func replaceIn(a advice, words *strings.Replacer) advice {
	filled := advice{Text: words.Replace(a.Text), Commands: []string{}}
	for _, c := range a.Commands {
		filled.Commands = append(filled.Commands, words.Replace(c))
	}
	return filled
}
