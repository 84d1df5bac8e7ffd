// Package finalizer puts lastcall's finalizer on ModelDeployments and takes it off,
// and touches nobody else's.
package finalizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// On reports whether the object has the finalizer.
func On(md *v1alpha1.ModelDeployment) bool { return slices.Contains(md.Finalizers, names.Finalizer) }

// Missing reports whether the finalizer is to be added: never to an object that is
// being deleted, where the API server does not take one.
func Missing(md *v1alpha1.ModelDeployment) bool { return md.DeletionTimestamp == nil && !On(md) }

// Add puts the finalizer on an object as it was read, and notes its new version on
// it. It is a conflict if the object has changed since, such as by a deletion.
func Add(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment, owner string) error {
	patched, err := patch(ctx, c, md, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"uid": md.UID, "resourceVersion": md.ResourceVersion, "finalizers": append(slices.Clone(md.Finalizers), names.Finalizer),
	}}, owner)
	if err != nil {
		return fmt.Errorf("adding the finalizer: %w", err)
	}
	md.Finalizers, md.ResourceVersion = patched.Finalizers, patched.ResourceVersion
	return nil
}

// Remove takes the finalizer off. It is a conflict if somebody else was at the
// object's finalizers meanwhile.
func Remove(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment, owner string) error {
	at := slices.Index(md.Finalizers, names.Finalizer)
	if at < 0 {
		return nil
	}
	return Drop(ctx, c, md, fmt.Sprintf("/metadata/finalizers/%d", at), names.Finalizer, owner)
}

// Drop removes one value from an object if it is still there. It is a conflict if
// it is not.
func Drop(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment, path, value, owner string) error {
	_, err := patch(ctx, c, md, types.JSONPatchType, []map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": md.UID},
		{"op": "test", "path": path, "value": value},
		{"op": "remove", "path": path},
	}, owner)
	if testFailed(err) {
		return apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("modeldeployments").GroupResource(), md.Name, err)
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}

// testFailed tells a test of a patch that failed from an object that was not taken:
// both are invalid to the API server, and only what it refuses to take has a name or,
// from an admission policy, a cause that is not its own.
func testFailed(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

func patch(ctx context.Context, c client.Client, md *v1alpha1.ModelDeployment, kind types.PatchType, content any, owner string) (*v1alpha1.ModelDeployment, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	patched := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: md.Namespace, Name: md.Name}}
	return patched, c.Patch(ctx, patched, client.RawPatch(kind, text), client.FieldOwner(owner))
}
