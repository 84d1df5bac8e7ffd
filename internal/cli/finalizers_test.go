package cli

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func withFinalizers(name string, finalizers ...string) *v1alpha1.ModelDeployment {
	return &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name), Finalizers: finalizers}}
}

// holding is a cluster with these, read by the caller, and hooks for what happens in
// between.
func holding(t *testing.T, hooks interceptor.Funcs, objects ...client.Object) (client.Client, []v1alpha1.ModelDeployment) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	inner := hooks.Patch
	hooks.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if inner != nil {
			if err := inner(ctx, c, o, p, opts...); err != nil {
				return err
			}
		}
		err := c.Patch(ctx, o, p, opts...)
		if err != nil && !apierrors.IsNotFound(err) { // as an API server says that a test failed
			return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return err
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(hooks).Build()
	var list v1alpha1.ModelDeploymentList
	require.NoError(t, c.List(t.Context(), &list))
	return c, list.Items
}

func finalizersOf(t *testing.T, c client.Client, name string) []string {
	t.Helper()
	var md v1alpha1.ModelDeployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, &md))
	return md.Finalizers
}

// vanish deletes one as somebody else would who removes its finalizers too.
func vanish(t *testing.T, c client.Client, name string) {
	t.Helper()
	var md v1alpha1.ModelDeployment
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, &md))
	md.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), &md))
	require.NoError(t, c.Delete(t.Context(), &md))
}

func namesOf(list []v1alpha1.ModelDeployment) (all []string) {
	for _, md := range list {
		all = append(all, md.Name)
	}
	return all
}

func TestOnlyLastcallsFinalizerIsRemoved(t *testing.T) {
	c, list := holding(t, interceptor.Funcs{}, withFinalizers("a", names.Finalizer, "example.com/other"), withFinalizers("b", "example.com/other"))
	done, err := removeFinalizers(t.Context(), c, list)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, namesOf(done))
	require.Equal(t, []string{"example.com/other"}, finalizersOf(t, c, "a"))
}

func TestAFinalizerThatSomebodyAddsMeanwhileIsKept(t *testing.T) {
	added := false
	c, list := holding(t, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		if !added {
			added = true
			var now v1alpha1.ModelDeployment
			require.NoError(t, c.Get(ctx, client.ObjectKeyFromObject(o), &now))
			now.Finalizers = []string{"example.com/new", names.Finalizer}
			require.NoError(t, c.Update(ctx, &now))
		}
		return nil
	}}, withFinalizers("a", names.Finalizer))
	done, err := removeFinalizers(t.Context(), c, list)
	require.NoError(t, err)
	require.Len(t, done, 1)
	require.Equal(t, []string{"example.com/new"}, finalizersOf(t, c, "a"))
}

func TestAnotherOfTheSameNameIsLeftAlone(t *testing.T) {
	c, list := holding(t, interceptor.Funcs{}, withFinalizers("a", names.Finalizer))
	vanish(t, c, "a")
	next := withFinalizers("a", names.Finalizer)
	next.UID = "another"
	require.NoError(t, c.Create(t.Context(), next))
	done, err := removeFinalizers(t.Context(), c, list)
	require.NoError(t, err)
	require.Empty(t, done)
	require.Equal(t, []string{names.Finalizer}, finalizersOf(t, c, "a"))
}

func TestOneThatCannotBeChangedKeepsNoOther(t *testing.T) {
	c, list := holding(t, interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
		if o.GetName() == "a" {
			return errors.New("refused")
		}
		return nil
	}}, withFinalizers("a", names.Finalizer), withFinalizers("b", names.Finalizer), withFinalizers("c", names.Finalizer))
	vanish(t, c, "c")
	done, err := removeFinalizers(t.Context(), c, list)
	require.EqualError(t, err, `removing the finalizer of ModelDeployment "a" in namespace team-a: removing /metadata/finalizers/0: refused`)
	require.Equal(t, []string{"b"}, namesOf(done), "c is gone, and that is fine")
}
