package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

func TestTheYardstickIsTheSamePodsAndNobodysOfTheOperator(t *testing.T) {
	md := modelDeployment("a", "bench-0", replicas)
	errs, _ := validate.ModelDeployment(md)
	require.Empty(t, errs)

	objects := statefulSet("a", "bench-0", replicas)
	require.Len(t, objects, 4, "a budget, two Services and the owner")
	set, ok := objects[3].(*appsv1.StatefulSet)
	require.True(t, ok, "the owner comes last")
	pods := labels.Set(set.Spec.Template.Labels)
	assert.Equal(t, names.DrainEnabled, pods[names.LabelDrain], "the webhook is asked")
	assert.NotContains(t, pods, names.LabelManagedBy)
	assert.Contains(t, set.Spec.Template.Spec.Containers[0].Command, "Qwen/Qwen2.5-7B-Instruct")
	assert.True(t, labels.SelectorFromSet(set.Spec.Selector.MatchLabels).Matches(pods))
	for _, object := range objects {
		assert.Equal(t, "a", object.GetNamespace(), object.GetName())
		assert.NotContains(t, object.GetLabels(), names.LabelManagedBy, object.GetName())
		assert.Empty(t, object.GetOwnerReferences(), "an owner that is not there is collected with all it owns")
		switch o := object.(type) {
		case *corev1.Service:
			assert.True(t, labels.SelectorFromSet(o.Spec.Selector).Matches(pods), "Service %s", o.Name)
		case *policyv1.PodDisruptionBudget:
			assert.True(t, labels.SelectorFromSet(o.Spec.Selector.MatchLabels).Matches(pods))
		}
	}
}
