// Package startup says whether an engine has come up, from the status of its Pod.
package startup

import corev1 "k8s.io/api/core/v1"

// Done reports whether a container has come up in its present run: its startup probe has
// succeeded, or its Pod was Ready since it began. A kubelet before Kubernetes 1.35 that
// restarts says of every container that it has not started, until its startup probe
// succeeds anew, and engines go on all the while; the Pod is not Ready from then on, and
// not from before the container began.
func Done(pod *corev1.Pod, c *corev1.ContainerStatus) bool {
	if c.Started != nil && *c.Started {
		return true
	}
	for _, ready := range pod.Status.Conditions {
		if ready.Type == corev1.PodReady && c.State.Running != nil {
			return ready.Status == corev1.ConditionTrue || ready.LastTransitionTime.After(c.State.Running.StartedAt.Time)
		}
	}
	return false
}
