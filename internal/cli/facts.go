package cli

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// facts are what status read of the cluster. Everything it prints is decided from
// them.
type facts struct {
	// notInstalled: the cluster has no kind ModelDeployment.
	notInstalled bool
	deployments  []v1alpha1.ModelDeployment
	// pods are those the operator built and those that may have opted in.
	pods []corev1.Pod
	// owners are the workloads at the top of the Pods' controllers, by the Pods' UIDs.
	owners map[types.UID]owner
	// optedIn are the namespaces whose label opts their Pods in.
	optedIn map[string]bool
	// labelled are the workloads that have LabelDrain themselves.
	labelled []labelledWorkload
	// unread is what could not be read, and why.
	unread []string
}

// owner is a workload: the Pod itself where nothing controls it.
type owner struct {
	namespace, group, kind, name string
}

// labelledWorkload is a workload that has LabelDrain with the value own. template is
// the value in its Pod template, empty where that has no such label.
type labelledWorkload struct {
	owner
	own, template string
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
