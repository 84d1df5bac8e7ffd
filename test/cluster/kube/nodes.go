package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Own tells whether the cluster is one of test/cluster's. Another one may hold things that a test must not touch.
func (c *Cluster) Own() bool { return c.own != nil }

// Pause stops a component of a cluster of our own, such as kubelet, until resume is called.
func (c *Cluster) Pause(component string) (resume func() error, err error) {
	return c.own.Pause(component)
}

// Kill ends the processes of a Pod that run a program, by its path in its container, in a cluster of our own, with SIGKILL.
func (c *Cluster) Kill(pod types.UID, program string) error { return c.own.Kill(pod, program) }

// Worker is the name of a node that takes any Pod. It is the only one in a cluster of our own.
func (c *Cluster) Worker(ctx context.Context) (string, error) {
	nodes, err := c.Clientset.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("looking for a node: %w", err)
	}
	for _, node := range nodes.Items {
		if !node.Spec.Unschedulable && len(node.Spec.Taints) == 0 {
			return node.Name, nil
		}
	}
	return "", errors.New("looking for a node: each one is cordoned or has a taint")
}

// Uncordon lets a node take Pods again, as kubectl uncordon does.
func (c *Cluster) Uncordon(ctx context.Context, node string) error {
	_, err := c.Clientset.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(`{"spec":{"unschedulable":null}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("uncordoning node %s: %w", node, err)
	}
	return nil
}

// On is the node selector of Pods that are to run on this node.
func On(node string) map[string]string { return map[string]string{corev1.LabelHostname: node} }
