package chart

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/names"
)

// What Helm makes for an uninstall it also takes away again, and what the release
// has it never touches.
func TestOnlyTheUninstallIsAHook(t *testing.T) {
	hooks := map[string]int{}
	for _, document := range render(t, "--set", "networkPolicy.enabled=true") {
		var object metav1.PartialObjectMetadata
		require.NoError(t, yaml.Unmarshal(document, &object))
		if object.Annotations["helm.sh/hook"] == "" {
			assert.NotEqual(t, "uninstall", object.Labels[names.LabelComponent], "%s %s", object.Kind, object.Name)
			continue
		}
		hooks[object.Kind]++
		assert.Equal(t, "pre-delete", object.Annotations["helm.sh/hook"], object.Kind)
		assert.Equal(t, "before-hook-creation,hook-succeeded", object.Annotations["helm.sh/hook-delete-policy"], object.Kind)
		assert.Equal(t, object.Kind != "Job", object.Annotations["helm.sh/hook-weight"] == "-1", "%s: the Job is made last", object.Kind)
		assert.Equal(t, names.PartOf, object.Labels[names.LabelPartOf], "%s: what an uninstall must not leave is found by this label", object.Kind)
	}
	assert.Equal(t, map[string]int{"ServiceAccount": 1, "Role": 1, "RoleBinding": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "Job": 1}, hooks)
}

func TestTheUninstallRunsWhereAndAsTheRetirerDoes(t *testing.T) {
	documents := render(t, "--set", "retirer.image=example.com/retirer@sha256:0123", "--set", "retirer.nodeSelector.pool=c",
		"--set-json", `retirer.tolerations=[{"operator":"Exists"}]`, "--set", "image.pullSecrets[0].name=d",
		"--set", "retirer.priorityClassName=p", "--set", "retirer.podSecurityContext.runAsUser=7")
	job := one[batchv1.Job](t, documents, "Job")
	pod := job.Spec.Template.Spec
	assert.Equal(t, names.PartOf, job.Spec.Template.Labels[names.LabelPartOf], "the webhook, which may be broken, must never be asked about it")
	for _, deployment := range decode[appsv1.Deployment](t, documents, "Deployment") {
		selected := metav1.FormatLabelSelector(deployment.Spec.Selector)
		assert.NotContains(t, selected, names.LabelComponent+"="+job.Spec.Template.Labels[names.LabelComponent], "it would wait for itself")
		if !strings.HasSuffix(deployment.Name, "-retirer") {
			continue
		}
		retirer := deployment.Spec.Template.Spec
		assert.Equal(t, retirer.Containers[0].Image, pod.Containers[0].Image)
		assert.Equal(t, retirer.Containers[0].SecurityContext, pod.Containers[0].SecurityContext)
		assert.Equal(t, retirer.SecurityContext, pod.SecurityContext)
		assert.Equal(t, retirer.NodeSelector, pod.NodeSelector)
		assert.Equal(t, retirer.Tolerations, pod.Tolerations)
		assert.Equal(t, retirer.ImagePullSecrets, pod.ImagePullSecrets)
		assert.Equal(t, retirer.PriorityClassName, pod.PriorityClassName)
	}
	assert.Equal(t, int64(7), *pod.SecurityContext.RunAsUser)
	assert.Equal(t, corev1.RestartPolicyNever, pod.RestartPolicy)
	assert.Equal(t, []string{"uninstall", "--namespace=" + namespace, "--name=lastcall", "--timeout=2m"}, pod.Containers[0].Args)
	const helmWaits = 5 * time.Minute
	assert.Less(t, time.Duration(*job.Spec.ActiveDeadlineSeconds)*time.Second, helmWaits, "helm must see it end")
}
