package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// routerReport is what one process of the router said of a replica.
type routerReport struct {
	Pod string `json:"pod"`
	// AskedAt is when it was asked for that, and ToldAt when it was told last to leave the
	// replica alone; null where it was not.
	AskedAt *metav1.MicroTime `json:"askedAt"`
	ToldAt  *metav1.MicroTime `json:"toldAt"`
	// Missing is what its part of the proof lacks, and Message what was seen of it.
	Missing string `json:"missing"`
	Message string `json:"message"`
}

// reportRouters are the processes of a target's router, those first that lack something.
func reportRouters(t *v1alpha1.RetirementTarget) []routerReport {
	all := []routerReport{}
	for _, r := range t.Routers {
		all = append(all, routerReport{r.Pod, r.AskedAt, r.ToldAt, r.Missing, r.Message})
	}
	slices.SortStableFunc(all, func(a, b routerReport) int {
		return cmp.Or(cmp.Compare(rankOfMissing(a), rankOfMissing(b)), cmp.Compare(a.Pod, b.Pod))
	})
	return all
}

func rankOfMissing(r routerReport) int {
	if r.lacks() {
		return 0
	}
	return 1
}

// lacks reports whether a process keeps the proof from being whole.
func (r routerReport) lacks() bool { return r.Missing != "" || r.AskedAt == nil }

// ofProcess is what a process does that a reason of names.Held* is about.
var ofProcess = map[string]string{
	names.HeldRouterNotAsked:   "has not been asked yet",
	names.HeldRouterUnread:     "has not answered, or not enough",
	names.HeldRouterSelects:    "can still choose it",
	names.HeldRouterReturns:    "leaves it alone now, and would choose it again by itself",
	names.HeldRouterHolds:      "leaves it alone, and may hold a request for it",
	names.HeldRecentDispatches: "leaves it alone, and has sent it a request a moment ago",
}

// text is a process as a line of explain, for a target in its state.
func (r routerReport) text(now time.Time, t *targetReport) string {
	does := " leaves it alone: nothing is missing"
	switch {
	case t.State == v1alpha1.StateDisqualified && r.Missing == names.HeldRouterReturns:
		does = " leaves it alone"
	case r.Missing != "":
		does = " " + cmp.Or(ofProcess[r.Missing], "lacks "+r.Missing)
	case r.AskedAt == nil:
		does = " " + ofProcess[names.HeldRouterNotAsked]
	}
	switch {
	case r.Message == "":
	case t.Reason == names.HeldPrefillDecode: // it is all that was seen, and not a part of a proof
		does = ": " + r.Message
	default:
		does += ": " + r.Message
	}
	text := r.Pod + does
	if r.AskedAt != nil {
		text += fmt.Sprintf("; asked %s ago, at %s", seconds(now.Sub(r.AskedAt.Time)), clockTime(r.AskedAt.Time))
	}
	switch {
	case r.ToldAt != nil && t.State == v1alpha1.StateAborted:
		text += fmt.Sprintf("; told at %s to leave it alone, and not seen yet to choose it again", clockTime(r.ToldAt.Time))
	case r.ToldAt != nil:
		text += "; told at " + clockTime(r.ToldAt.Time)
	}
	return text
}

// routerLines are the processes as lines of explain, up to as many as a list has, and how
// many more there are.
func (t *targetReport) routerLines(now time.Time) (lines []string) {
	all := t.Routers
	for i, r := range all {
		if i == longestList {
			lacking := 0
			for _, rest := range all[i:] {
				if rest.lacks() {
					lacking++
				}
			}
			return append(lines, fmt.Sprintf("and %d more, of which %d lack something", len(all)-i, lacking))
		}
		lines = append(lines, r.text(now, t))
	}
	return lines
}

// owed are the processes that were told to leave a target alone and are to choose it
// again, because it is kept.
func owed(t *v1alpha1.RetirementTarget) (all []string) {
	for _, r := range t.Routers {
		if t.State == v1alpha1.StateAborted && r.ToldAt != nil {
			all = append(all, r.Pod)
		}
	}
	return all
}

// mostRouters is how many processes status lists of a ModelDeployment.
const mostRouters = 2 * longestList

// printRouters lists the processes that keep proofs from being whole.
func (r *retirementReport) printRouters(out *strings.Builder) {
	processes, rows, more := newTable(), 0, 0
	for _, t := range r.Targets {
		for _, p := range t.Routers {
			owes := t.State == v1alpha1.StateAborted && p.ToldAt != nil
			switch {
			case !p.lacks() && !owes:
				continue
			case rows == mostRouters:
				more++
				continue
			case rows == 0:
				processes.row("    ROLE", "REPLICA", "ROUTER POD", "MISSING", "ASKED", "TOLD")
			}
			rows++
			processes.row("    "+t.Role, fmt.Sprint(t.Ordinal), p.Pod, p.Missing, atOrNever(p.AskedAt), atOrNever(p.ToldAt))
		}
	}
	processes.print(out)
	if more > 0 {
		fmt.Fprintf(out, "    and %d more\n", more)
	}
}

func atOrNever(at *metav1.MicroTime) string {
	if at == nil {
		return "never"
	}
	return clockTime(at.Time)
}

// takingOut is what RouterReturns tells before a replica is marked: that it would come
// back is then as it should be.
var takingOut = meaning{
	says:  "a process of its router that was told so still has it on its list, or has just taken it off",
	needs: "every process that was told to list it no more; the label that keeps it out comes then",
	out:   []advice{do("SMG takes out what it drains after its --drain-settle-secs (5 s); a longer one delays this:", routerLogs)},
	wait:  "Wait a few seconds. It is no fault unless it stays so.",
}

// meaningOfTarget is what the reason of a target tells in its state.
func meaningOfTarget(t *v1alpha1.RetirementTarget) meaning {
	if t.State == v1alpha1.StateDisqualified && t.Reason == names.HeldRouterReturns {
		return takingOut
	}
	return meaningOf(reasonOf(t))
}

// ofRouter reports whether a reason is about what a router says.
func ofRouter(reason string) bool {
	return ofProcess[reason] != "" || reason == names.HeldRouterNotFound || reason == names.HeldRouterBypassed
}

// findRouter selects the Pods of a router on kubectl's command line.
func findRouter(md *v1alpha1.ModelDeployment) string {
	r := md.Spec.Router
	if r == nil {
		return "-n NAMESPACE -l app=ROUTER"
	}
	return fmt.Sprintf("-n %s -l '%s'", cmp.Or(r.Namespace, md.Namespace), metav1.FormatLabelSelector(&r.PodSelector))
}

// followsLabel is how a router is configured to leave out what is withdrawn.
func followsLabel(md *v1alpha1.ModelDeployment, role string) string {
	own := []string{
		names.LabelInstance + "=" + md.Name, names.LabelComponent + "=" + role, names.LabelServing + "=" + names.Serving,
	}
	switch {
	case md.Spec.Router == nil:
		return names.LabelServing + ": \"" + names.Serving + "\""
	case md.Spec.Router.Name == v1alpha1.LLMDRouter:
		return fmt.Sprintf("%s: %q in spec.selector.matchLabels of its InferencePool, or --endpoint-selector=%s", names.LabelServing, names.Serving, strings.Join(own, ","))
	}
	return "--selector " + strings.Join(own, " ")
}

// leavesAlone says by what a router learns that it is to leave a replica alone.
func leavesAlone(md *v1alpha1.ModelDeployment, role string) string {
	switch {
	case md.Spec.Router == nil:
		return "It follows the label " + names.LabelServing + ", or is told through its API; docs/routers.md says which."
	case md.Spec.Router.Name == v1alpha1.VLLMRouter:
		return "It is told so through its API, and does not follow labels. What a process answered to that is said above; its log says more:"
	case md.Spec.Router.Name == v1alpha1.SGLangGateway:
		return "sgl-model-gateway, and SMG up to 1.9.0, are told so through their API; later ones follow labels, and have to select their workers with " + followsLabel(md, role) +
			". Which of them it is, is taken from the name and the tag of its image, such as smg:v1.9.0: another name, latest or a digest alone does not say, and then it is not told. Its log says more:"
	}
	return "It follows labels, and has to select its endpoints with " + followsLabel(md, role) + ". Its log says more:"
}

// holdsNothing says how a router is brought to hold nothing, where waiting does not.
func holdsNothing(md *v1alpha1.ModelDeployment) string {
	if md.Spec.Router != nil && md.Spec.Router.Name == v1alpha1.LLMDRouter {
		return "If its sidecar or the gateway is said above to hold requests, no time is long enough, and no restart of the router helps: keep it, or delete its Pod by hand when its clients are gone. The router:"
	}
	return "If a process is said above to hold requests, no time is long enough. One that started after the replica was withdrawn holds nothing, so start the router anew while it is withdrawn, in a way that lets its own requests end (kubectl rollout restart of its Deployment):"
}
