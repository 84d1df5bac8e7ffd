package validate

import (
	"fmt"
	"net/netip"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

const (
	maxRoles = 10
	// minBudgetSeconds and maxBudgetSeconds bound both budgets of a retirement: two
	// reads of an engine and a day.
	minBudgetSeconds = 15
	maxBudgetSeconds = 86400
)

// serviceName is a DNS label that starts with a letter, which Services need on
// every supported version of Kubernetes.
var serviceName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

// ModelDeployment finds what is wrong with a ModelDeployment by itself. Fields
// that are unset mean their defaults.
func ModelDeployment(md *v1alpha1.ModelDeployment) (field.ErrorList, []string) {
	f := &findings{}
	name := md.Name
	if name == "" && md.GenerateName != "" {
		name = md.GenerateName + "xxxxx" // what the API server adds
	}
	f.name(name, field.NewPath("metadata", "name"))
	if md.Namespace == metav1.NamespaceSystem || md.Namespace == corev1.NamespaceNodeLease {
		f.add(field.Forbidden(field.NewPath("metadata", "namespace"), "the webhook is never asked about Pods in kube-system and kube-node-lease, so replicas would have no drain window; use another namespace"))
	}
	f.spec(&md.Spec, name, field.NewPath("spec"))
	return f.errs, f.warnings
}

// ModelDeploymentUpdate finds what is wrong with a ModelDeployment by itself and
// as a change of the old one.
func ModelDeploymentUpdate(old, md *v1alpha1.ModelDeployment) (field.ErrorList, []string) {
	errs, warnings := ModelDeployment(md)
	return append(errs, frozen(&old.Spec, &md.Spec, field.NewPath("spec"))...), warnings
}

// findings collects what is wrong with one object.
type findings struct {
	errs     field.ErrorList
	warnings []string
}

// add takes the errors that are not nil.
func (f *findings) add(errs ...*field.Error) {
	for _, err := range errs {
		if err != nil {
			f.errs = append(f.errs, err)
		}
	}
}

func (f *findings) warn(path *field.Path, sentence string) {
	f.warnings = append(f.warnings, path.String()+": "+sentence)
}

func (f *findings) name(name string, path *field.Path) {
	switch {
	case name == "":
		f.add(field.Required(path, "it is the first part of the names of all Pods and Services"))
	case !serviceName.MatchString(name):
		f.add(field.Invalid(path, name, serviceNameMessage))
	}
}

func (f *findings) spec(spec *v1alpha1.ModelDeploymentSpec, name string, path *field.Path) {
	if spec.Model.Name == "" {
		f.add(field.Required(path.Child("model", "name"), "it is the model that the engine loads"))
	}
	f.add(oneOf(path.Child("engine", "name"), spec.Engine.Name, []v1alpha1.EngineName{v1alpha1.VLLM, v1alpha1.SGLang}))
	f.withdrawal(spec, path.Child("withdrawal"))
	f.router(spec.Router, path.Child("router"))
	f.budgets(spec, path.Child("retirement"))

	roles := path.Child("roles")
	f.add(within(roles, len(spec.Roles), 1, maxRoles, " roles"))
	seen := map[string]bool{}
	hasImage := len(spec.Roles) > 0
	for i := range spec.Roles {
		r := role{Role: &spec.Roles[i], spec: spec, path: roles.Index(i)}
		r.validate(f, name)
		if seen[r.Name] {
			f.add(field.Duplicate(r.path.Child("name"), r.Name))
		}
		seen[r.Name] = true
		hasImage = hasImage && r.Image != ""
	}
	if spec.Engine.Image == "" && !hasImage {
		f.add(field.Invalid(path.Child("engine", "image"), "", imageMessage))
	}
}

func (f *findings) withdrawal(spec *v1alpha1.ModelDeploymentSpec, path *field.Path) {
	if direct := spec.Withdrawal.Direct; direct != "" {
		f.add(oneOf(path.Child("direct"), direct, []v1alpha1.DirectWithdrawal{v1alpha1.DirectHold, v1alpha1.DirectConnections}))
	}
	if spec.Router != nil && spec.Withdrawal.Direct == v1alpha1.DirectConnections {
		f.add(field.Invalid(path, spec.Withdrawal.Direct, directMessage))
	}
	f.peers(spec, path.Child("peers"))
}

// peers are whose connections are no clients'. One that selects too much would let a
// replica be taken from under its clients, so an empty selector is refused.
func (f *findings) peers(spec *v1alpha1.ModelDeploymentSpec, path *field.Path) {
	for i, peer := range spec.Withdrawal.Peers {
		path := path.Index(i)
		if (peer.CIDR != "") == (peer.PodSelector != nil) {
			f.add(field.Invalid(path, peer.CIDR, peerMessage))
			continue
		}
		if peer.CIDR != "" {
			if _, err := netip.ParsePrefix(peer.CIDR); err != nil {
				f.add(field.Invalid(path.Child("cidr"), peer.CIDR, cidrMessage))
			}
			if peer.Namespace != "" {
				f.add(field.Invalid(path.Child("namespace"), peer.Namespace, peerNamespaceMessage))
			}
			continue
		}
		selector := path.Child("podSelector")
		if len(peer.PodSelector.MatchLabels)+len(peer.PodSelector.MatchExpressions) == 0 {
			f.add(field.Required(selector, "without labels it would select every Pod of the namespace, clients among them"))
		}
		f.add(metav1validation.ValidateLabelSelector(peer.PodSelector, metav1validation.LabelSelectorValidationOptions{}, selector)...)
	}
}

// outOfReachSeconds is what the proof takes at the least that no client reaches a
// replica: through its Services 5 s after it left them, nobody connected for 6 s, and
// the mark. A router is asked every 3 s, once before the mark, and after that until
// nothing can be on its way to the replica, 5 s of llm-d-router and 12 s of the others.
func outOfReachSeconds(router *v1alpha1.Router) int32 {
	switch {
	case router == nil:
		return 12
	case router.Name == v1alpha1.LLMDRouter:
		return 9
	}
	return 15
}

func (f *findings) budgets(spec *v1alpha1.ModelDeploymentSpec, path *field.Path) {
	b, drain, total := spec.Retirement, path.Child("drainSeconds"), path.Child("totalSeconds")
	if b.DrainSeconds != nil {
		f.add(within(drain, *b.DrainSeconds, minBudgetSeconds, maxBudgetSeconds, " seconds"))
		if lag := int32(render.Engine(spec).Refresh.Seconds()); *b.DrainSeconds <= lag {
			f.warn(drain, fmt.Sprintf("%d is too short to prove a replica idle: the gauges of %s can lag by %d s; set at least %d, and more for long generations", *b.DrainSeconds, spec.Engine.Name, lag, 2*lag))
		}
	}
	if b.TotalSeconds != nil {
		f.add(within(total, *b.TotalSeconds, minBudgetSeconds, maxBudgetSeconds, " seconds"))
		if least := outOfReachSeconds(spec.Router) + int32(render.Engine(spec).Refresh.Seconds()); *b.TotalSeconds <= least {
			f.warn(total, fmt.Sprintf("%d is too short for any proof: to show that no client reaches a replica and that its engine is idle takes %d s at the least; set at least %d, and more for long generations", *b.TotalSeconds, least, 2*least))
		}
	}
	if b.DrainSeconds != nil && b.TotalSeconds != nil && *b.DrainSeconds > *b.TotalSeconds {
		f.add(field.Invalid(total, *b.TotalSeconds, totalMessage))
	}
}
