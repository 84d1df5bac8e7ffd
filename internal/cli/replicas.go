package cli

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// Commands about the retirer itself, as they are where it was installed as documented.
const (
	retirerLabels = names.LabelPartOf + "=" + names.PartOf + "," + names.LabelComponent + "=retirer"
	retirerPods   = "kubectl get pods -A -l " + retirerLabels
	retirerLogs   = "kubectl logs -n lastcall-system -l " + retirerLabels + " --prefix --tail=50"
)

// replicaName is what a replica's Pods are called, without their number in it.
func replicaName(md *v1alpha1.ModelDeployment, role string, ordinal int32) string {
	return fmt.Sprintf("%s-%s-%d", md.Name, role, ordinal)
}

// roleOf is the role of the spec with this name; nil where there is none.
func roleOf(md *v1alpha1.ModelDeployment, name string) *v1alpha1.Role {
	for i := range md.Spec.Roles {
		if md.Spec.Roles[i].Name == name {
			return &md.Spec.Roles[i]
		}
	}
	return nil
}

// isUnwanted reports whether the spec asks for the slot to be empty.
func isUnwanted(md *v1alpha1.ModelDeployment, role string, ordinal int32) bool {
	r := roleOf(md, role)
	return md.DeletionTimestamp != nil || r == nil || ordinal >= render.Replicas(r)
}

// isGivenUp reports whether a target is kept although the spec does not want it. One
// that is wanted again is only being let go.
func isGivenUp(md *v1alpha1.ModelDeployment, t *v1alpha1.RetirementTarget) bool {
	return t.State == v1alpha1.StateAborted && isUnwanted(md, t.Role, t.Ordinal)
}

func isUnderWay(t *v1alpha1.RetirementTarget) bool {
	return t.State != v1alpha1.StateAborted && t.State != v1alpha1.StateCompleted
}

// isDecided reports whether the decision to delete a target stands.
func isDecided(t *v1alpha1.RetirementTarget) bool {
	return t.State == v1alpha1.StateDeleting || t.State == v1alpha1.StateSettling || t.State == v1alpha1.StateCompleted
}

// slotOf is where a Pod that the operator built belongs.
func slotOf(p *corev1.Pod) (role string, ordinal int32) {
	return p.Labels[names.LabelComponent], int32(labelNumber(p.Labels[names.LabelOrdinal], 0))
}
