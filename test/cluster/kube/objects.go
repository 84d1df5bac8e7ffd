package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CreateNamespace makes a namespace whose name starts with prefix, and waits until Pods can be created in it.
func (c *Cluster) CreateNamespace(ctx context.Context, prefix string, labels map[string]string) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-", Labels: labels}}
	if err := c.Client.Create(ctx, namespace); err != nil {
		return "", fmt.Errorf("creating a namespace: %w", err)
	}
	account := client.ObjectKey{Namespace: namespace.Name, Name: "default"}
	return namespace.Name, poll(ctx, "the default service account of "+namespace.Name, func(ctx context.Context) error {
		return c.Client.Get(ctx, account, &corev1.ServiceAccount{})
	})
}

// Apply applies every object of a YAML or JSON stream, as kubectl apply --server-side does. Namespaced objects that
// name no namespace go into the given one.
func (c *Cluster) Apply(ctx context.Context, namespace, manifests string) error {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a manifest: %w", err)
		}
		if len(object.Object) == 0 {
			continue // an empty document
		}
		namespaced, err := c.Client.IsObjectNamespaced(object)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if namespaced && object.GetNamespace() == "" {
			object.SetNamespace(namespace)
		}
		configuration := client.ApplyConfigurationFromUnstructured(object)
		if err := c.Client.Apply(ctx, configuration, client.FieldOwner("lastcall-test"), client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

// Events returns what was reported about a Pod, oldest first. Events outlive their Pod by an hour.
func (c *Cluster) Events(ctx context.Context, pod client.ObjectKey) ([]corev1.Event, error) {
	list, err := c.Clientset.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("listing the events of Pod %s: %w", pod, err)
	}
	return list.Items, nil
}
