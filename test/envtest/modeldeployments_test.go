package envtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/admission"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

func modelDeployment(namespace, name string) *v1alpha1.ModelDeployment {
	return &v1alpha1.ModelDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ModelDeploymentSpec{
			Model:  v1alpha1.Model{Name: "m"},
			Engine: v1alpha1.Engine{Name: v1alpha1.VLLM, Image: "vllm/vllm-openai:v0.29.0"},
			Roles:  []v1alpha1.Role{{Name: "server"}},
		},
	}
}

var graces = []int64{-1, 0, 14, 15, 3600, 3601}

func withGrace(namespace string, seconds int64) *v1alpha1.ModelDeployment {
	md := modelDeployment(namespace, fmt.Sprintf("grace-%d", seconds+1))
	md.Spec.Roles[0].TerminationGracePeriodSeconds = &seconds
	return md
}

func TestTheCustomResourceDefinitionIsStructural(t *testing.T) {
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, api.Get(t.Context(), client.ObjectKey{Name: "modeldeployments." + names.Group}, &crd))
	for _, condition := range crd.Status.Conditions {
		switch condition.Type {
		case apiextensionsv1.Established, apiextensionsv1.NamesAccepted:
			assert.Equal(t, apiextensionsv1.ConditionTrue, condition.Status, condition.Message)
		default:
			assert.Equal(t, apiextensionsv1.ConditionFalse, condition.Status, "%s: %s", condition.Type, condition.Message)
		}
	}
}

func TestTheGraceOfModelDeployments(t *testing.T) {
	ns := namespace(t, nil)
	for _, seconds := range graces {
		err := api.Create(t.Context(), withGrace(ns, seconds))
		if message := validate.Grace(seconds); message != "" {
			assert.True(t, apierrors.IsInvalid(err), "%d: %v", seconds, err)
			assert.ErrorContains(t, err, "spec.roles[0].terminationGracePeriodSeconds", "%d", seconds)
			assert.ErrorContains(t, err, message, "%d", seconds)
		} else {
			assert.NoError(t, err, "%d", seconds)
		}
	}
}

func TestTheGraceOfModelDeploymentsWhileTheWebhookIsDown(t *testing.T) {
	ns := namespace(t, nil)
	server.down(t)
	for _, seconds := range graces {
		err := api.Create(t.Context(), withGrace(ns, seconds))
		if message := validate.Grace(seconds); message != "" {
			assert.True(t, apierrors.IsInvalid(err), "%d: %v", seconds, err)
			assert.ErrorContains(t, err, message, "the schema answers in the webhook's words")
		} else {
			assert.ErrorContains(t, err, `failed calling webhook "modeldeployments.lastcall.dev"`, "%d", seconds)
		}
	}
}

func TestTheGraceStraightAtTheHandler(t *testing.T) {
	resource := metav1.GroupVersionResource{Group: names.Group, Version: "v1alpha1", Resource: "modeldeployments"}
	for _, seconds := range graces {
		response := server.ask(t, admission.PathModelDeployments, resource, toJSON(t, withGrace(releaseNamespace, seconds)))
		message := validate.Grace(seconds)
		assert.Equal(t, message == "", response.Allowed, "%d", seconds)
		if message != "" {
			assert.Contains(t, response.Result.Message, message, "%d", seconds)
		}
	}
}

func TestAFinalizerCanBeRemovedWhileTheWebhookIsDown(t *testing.T) {
	md := modelDeployment(namespace(t, nil), "held")
	md.Finalizers = []string{names.Finalizer}
	require.NoError(t, api.Create(t.Context(), md))

	server.down(t)
	spec := md.DeepCopy()
	spec.Spec.Roles[0].Replicas = new(int32(3))
	assert.ErrorContains(t, api.Update(t.Context(), spec), "failed calling webhook", "the spec")

	md.Annotations = map[string]string{"example.com/note": "down"}
	assert.NoError(t, api.Update(t.Context(), md), "an annotation")
	md.Status.Phase = "Ready"
	assert.NoError(t, api.Status().Update(t.Context(), md), "the status")

	require.NoError(t, api.Delete(t.Context(), md))
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(md), md))
	md.Finalizers = nil
	assert.NoError(t, api.Update(t.Context(), md), "the finalizer")
	assert.True(t, apierrors.IsNotFound(api.Get(context.Background(), client.ObjectKeyFromObject(md), md)), "it is gone")
}

func TestOnlyChangesOfTheSpecAreAskedAbout(t *testing.T) {
	md := modelDeployment(namespace(t, nil), "asked-about")
	require.NoError(t, api.Create(t.Context(), md))
	require.Len(t, server.requests(md.Name), 1)

	md.Labels = map[string]string{"team": "a"}
	require.NoError(t, api.Update(t.Context(), md))
	require.Len(t, server.requests(md.Name), 1, "a label")

	md.Spec.Roles[0].Replicas = new(int32(2))
	require.NoError(t, api.Update(t.Context(), md))
	require.Len(t, server.requests(md.Name), 2, "the spec")

	require.NoError(t, api.Delete(t.Context(), md))
	require.Len(t, server.requests(md.Name), 2, "deletion")
}

func TestFrozenFields(t *testing.T) {
	md := modelDeployment(namespace(t, nil), "frozen")
	require.NoError(t, api.Create(t.Context(), md))
	md.Spec.Roles[0].Size = new(int32(2))
	err := api.Update(t.Context(), md)
	assert.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.ErrorContains(t, err, "is frozen")
}
