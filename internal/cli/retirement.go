package cli

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// operationReport is a retirement, as status and explain show it.
type operationReport struct {
	Cause     v1alpha1.RetirementCause `json:"cause"`
	State     v1alpha1.RetirementState `json:"state"`
	Reason    string                   `json:"reason"`
	Message   string                   `json:"message"`
	StartedAt metav1.MicroTime         `json:"startedAt"`
	Deadline  metav1.MicroTime         `json:"deadline"`
}

// lastReport is how the last retirement ended.
type lastReport struct {
	Cause     v1alpha1.RetirementCause `json:"cause"`
	End       v1alpha1.RetirementEnd   `json:"end"`
	Reason    string                   `json:"reason"`
	StartedAt metav1.MicroTime         `json:"startedAt"`
	EndedAt   metav1.MicroTime         `json:"endedAt"`
}

func reportOperation(md *v1alpha1.ModelDeployment) *operationReport {
	if o := md.Status.Retirement; o != nil {
		return &operationReport{o.Cause, o.State, o.Reason, o.Message, o.StartedAt, o.Deadline}
	}
	return nil
}

func reportLast(md *v1alpha1.ModelDeployment) *lastReport {
	if l := md.Status.LastRetirement; l != nil {
		return &lastReport{l.Cause, l.End, l.Reason, l.StartedAt, l.EndedAt}
	}
	return nil
}

// retirementReport is a retirement with its replicas, as status shows it.
type retirementReport struct {
	operationReport
	Targets []retiringReport `json:"targets"`
}

// retiringReport is one replica that is being taken away, or was given up.
type retiringReport struct {
	Role    string                   `json:"role"`
	Ordinal int32                    `json:"ordinal"`
	State   v1alpha1.RetirementState `json:"state"`
	Reason  string                   `json:"reason"`
	// InFlight is how many requests it had at the last read; null where no read told.
	InFlight *int64 `json:"inFlight"`
	// Routers are the processes of the router, those first that lack something.
	Routers []routerReport `json:"routers"`
}

func reportRetirement(md *v1alpha1.ModelDeployment) *retirementReport {
	operation := reportOperation(md)
	if operation == nil {
		return nil
	}
	r := &retirementReport{*operation, []retiringReport{}}
	for i := range md.Status.Retirement.Targets {
		t := &md.Status.Retirement.Targets[i]
		r.Targets = append(r.Targets, retiringReport{t.Role, t.Ordinal, t.State, t.Reason, t.InFlight, reportRouters(t)})
	}
	return r
}

func (r *retirementReport) print(out *strings.Builder) {
	fmt.Fprintf(out, "  Retirement (%s): %s", r.Cause, r.State)
	if r.Reason != "" {
		fmt.Fprintf(out, ", %s", r.Reason)
	}
	if r.Message != "" {
		fmt.Fprintf(out, ": %s", r.Message)
	}
	fmt.Fprintf(out, "; deadline %s\n", r.Deadline.UTC().Format(time.RFC3339))
	targets := newTable()
	if len(r.Targets) > 0 {
		targets.row("    ROLE", "REPLICA", "STATE", "REASON", "IN FLIGHT")
	}
	for _, t := range r.Targets {
		inFlight := ""
		if t.InFlight != nil {
			inFlight = fmt.Sprint(*t.InFlight)
		}
		targets.row("    "+t.Role, fmt.Sprint(t.Ordinal), string(t.State), t.Reason, inFlight)
	}
	targets.print(out)
	r.printRouters(out)
}

func (l *lastReport) print(out *strings.Builder) {
	fmt.Fprintf(out, "  Last retirement (%s): %s", l.Cause, l.End)
	if l.Reason != "" {
		fmt.Fprintf(out, ", %s", l.Reason)
	}
	fmt.Fprintf(out, ", at %s\n", l.EndedAt.UTC().Format(time.RFC3339))
}
