// Package report writes what controllers have to say of a ModelDeployment, in the
// form and length that the API server takes.
package report

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Status applies the owner's part of a status if the object is still as it was read,
// and notes its new version on it. It is a conflict if the object has changed.
func Status(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment, part *v1alpha1.ModelDeploymentStatus, owner string) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return err
	}
	apply := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind,
		// The API server ignores the UID in a write of the status. With the version it
		// cannot land on a new object of the same name, nor take back a later status.
		"metadata": map[string]any{"namespace": md.Namespace, "name": md.Name, "resourceVersion": md.ResourceVersion},
		"status":   content,
	}}
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(apply), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("writing status: %w", err)
	}
	md.ResourceVersion = cmp.Or(apply.GetResourceVersion(), md.ResourceVersion)
	return nil
}

// MaxNote is how long the note of an event is at most, in bytes; the API server takes
// 1024.
const MaxNote = 1000

// Cut shortens a text to a number of bytes, at least 3.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}
