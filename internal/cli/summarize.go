package cli

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// summarize decides what the facts mean. Equal facts give equal reports, in whatever
// order the objects were read.
func summarize(f facts) report {
	r := report{
		ModelDeploymentsInstalled: !f.notInstalled,
		ModelDeployments:          []deploymentReport{},
		Unread:                    append([]string{}, f.unread...),
	}
	pods := slices.SortedFunc(slices.Values(f.pods), func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	members := map[types.UID][]corev1.Pod{}
	for _, md := range f.deployments {
		members[md.UID] = nil
	}
	var others []corev1.Pod
	for _, p := range pods {
		if ref := metav1.GetControllerOfNoCopy(&p); ref != nil {
			if own, ok := members[ref.UID]; ok {
				members[ref.UID] = append(own, p)
				continue
			}
		}
		others = append(others, p)
	}
	for _, md := range f.deployments {
		r.ModelDeployments = append(r.ModelDeployments, summarizeDeployment(md, members[md.UID]))
	}
	slices.SortFunc(r.ModelDeployments, func(a, b deploymentReport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	r.Workloads = summarizeWorkloads(f, others)
	return r
}

func summarizeDeployment(md v1alpha1.ModelDeployment, pods []corev1.Pod) deploymentReport {
	d := deploymentReport{
		Namespace:          md.Namespace,
		Name:               md.Name,
		Phase:              md.Status.Phase,
		Generation:         md.Generation,
		ObservedGeneration: md.Status.ObservedGeneration,
		Conditions:         []conditionReport{},
		Roles:              []roleReport{},
		Retirement:         reportRetirement(&md),
		LastRetirement:     reportLast(&md),
	}
	for _, name := range []string{names.ConditionReady, names.ConditionProgressing, names.ConditionRetiring} {
		for _, c := range md.Status.Conditions {
			if c.Type == name {
				d.Conditions = append(d.Conditions, conditionReport{c.Type, string(c.Status), c.Reason, c.Message})
			}
		}
	}
	byRole := map[string][]corev1.Pod{}
	for _, p := range pods {
		byRole[p.Labels[names.LabelComponent]] = append(byRole[p.Labels[names.LabelComponent]], p)
	}
	present := presentSpecs(md)
	for _, role := range rolesOf(md, byRole) {
		role.addReplicas(byRole[role.Name], present[role.Name])
		d.Roles = append(d.Roles, role)
	}
	return d
}

// rolesOf lists the roles of the spec as they are written there, then those that
// were dropped from it, as the status or the Pods know them.
func rolesOf(md v1alpha1.ModelDeployment, pods map[string][]corev1.Pod) []roleReport {
	known := map[string]v1alpha1.RoleStatus{}
	for _, status := range md.Status.Roles {
		known[status.Name] = status
	}
	var roles []roleReport
	inSpec := map[string]bool{}
	for _, role := range md.Spec.Roles {
		inSpec[role.Name] = true
		roles = append(roles, roleReport{
			Name: role.Name, Kind: render.Kind(&role), Ready: known[role.Name].Ready, Desired: render.Replicas(&role), Unmanaged: render.TakenOver(&role),
		})
	}
	dropped := map[string]v1alpha1.RoleKind{}
	for name, own := range pods {
		dropped[name] = v1alpha1.RoleKind(own[0].Labels[names.LabelRoleKind])
	}
	for name, status := range known {
		dropped[name] = status.Kind
	}
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		if !inSpec[name] {
			roles = append(roles, roleReport{Name: name, Kind: dropped[name], Ready: known[name].Ready, Unmanaged: known[name].Unmanaged})
		}
	}
	return roles
}

// addReplicas adds the replicas that these Pods, sorted by name, make up. present is
// the digest of the role's present spec; empty where that is not known.
func (r *roleReport) addReplicas(pods []corev1.Pod, present string) {
	r.Replicas, r.Missing = []replicaReport{}, []int{}
	replicas := map[int]*replicaReport{}
	for _, p := range pods {
		ordinal := labelNumber(p.Labels[names.LabelOrdinal], 0)
		replica := replicas[ordinal]
		if replica == nil {
			replica = &replicaReport{Ordinal: ordinal, Size: labelNumber(p.Labels[names.LabelSize], 1)}
			if present != "" {
				replica.OlderSpec = new(bool)
			}
			replicas[ordinal] = replica
		}
		replica.Withdrawn = replica.Withdrawn || p.Labels[names.LabelServing] == names.Withdrawn
		if replica.OlderSpec != nil && p.Annotations[names.AnnotationSpecHash] != present {
			*replica.OlderSpec = true
		}
		replica.Pods = append(replica.Pods, summarizePod(&p))
	}
	for _, ordinal := range slices.Sorted(maps.Keys(replicas)) {
		replica := replicas[ordinal]
		slices.SortStableFunc(replica.Pods, func(a, b podReport) int { return cmp.Compare(a.Member, b.Member) })
		r.Replicas = append(r.Replicas, *replica)
	}
	for ordinal := range int(r.Desired) {
		if replicas[ordinal] == nil {
			r.Missing = append(r.Missing, ordinal)
		}
	}
}

// presentSpecs are the digests of the roles' present specs, by the roles' names. There
// are none until the operator has seen the last edit: what its status calls present is
// what was before, and every Pod of the new spec would be called older.
func presentSpecs(md v1alpha1.ModelDeployment) map[string]string {
	hashes := map[string]string{}
	if md.Status.ObservedGeneration != md.Generation {
		return hashes
	}
	for _, status := range md.Status.Roles {
		hashes[status.Name] = status.SpecHash
	}
	return hashes
}

func summarizePod(p *corev1.Pod) podReport {
	r := podReport{
		Name:         p.Name,
		Member:       labelNumber(p.Labels[names.LabelMember], 0),
		Ready:        isReady(p),
		Phase:        string(p.Status.Phase),
		Terminating:  p.DeletionTimestamp != nil,
		GraceSeconds: drain.DefaultGraceSeconds,
		HookReason:   names.ReasonNoRecord,
	}
	if seconds := p.Spec.TerminationGracePeriodSeconds; seconds != nil {
		r.GraceSeconds = *seconds
	}
	if admitted, ok := mutate.RecordOf(p.Annotations); ok {
		r.Hook, r.HookReason = admitted.Outcome == names.OutcomeInjected, admitted.Reason
	}
	return r
}

// labelNumber is a label's number; otherwise is for a label that holds none.
func labelNumber(label string, otherwise int) int {
	if n, err := strconv.Atoi(label); err == nil {
		return n
	}
	return otherwise
}
