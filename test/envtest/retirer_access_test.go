package envtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/cli"
	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// installAccess installs what the chart gives one ServiceAccount of a release, from
// these templates, in a namespace of its own.
func installAccess(t *testing.T, templates string) client.ObjectKey {
	t.Helper()
	documents, err := chart.Render(t.Context(), "lastcall", namespace(t, nil), "--show-only=templates/"+templates)
	require.NoError(t, err)
	return installPermissions(t, documents)
}

func TestTheRetirerMayDoJustWhatItNeeds(t *testing.T) {
	account := installAccess(t, "retirer/rbac.yaml")
	want := map[string]string{
		"modeldeployments.lastcall.dev":        "get list watch patch",
		"modeldeployments/status.lastcall.dev": "patch",
		"pods":                                 "get list watch patch delete",
		"pods/exec":                            "get create",
		"nodes":                                "get list watch",
		"namespaces":                           "get",
		"endpointslices.discovery.k8s.io":      "list",
		"inferencepools.inference.networking.k8s.io":   "list",
		"inferencepools.inference.networking.x-k8s.io": "list",
		"workloads.kueue.x-k8s.io":                     "get list delete",
		"events.events.k8s.io":                         "create patch",
	}
	assert.Equal(t, want, granted(t, account, "default"), "anywhere")
	want["leases.coordination.k8s.io"] = "create"
	want["leases.coordination.k8s.io "+account.Name] = "get update"
	assert.Equal(t, want, granted(t, account, account.Namespace), "in its own namespace")

	as := clientOf(t, account)
	pod := enginePod("default", "any", nil)
	for what, err := range map[string]error{
		"to read Secrets":      as.List(t.Context(), &corev1.SecretList{}, client.InNamespace(account.Namespace)),
		"to read one by name":  as.Get(t.Context(), account, &corev1.Secret{}),
		"to create Pods":       as.Create(t.Context(), pod.DeepCopy()),
		"to replace Pods":      as.Update(t.Context(), pod.DeepCopy()),
		"to write their state": as.Status().Update(t.Context(), pod.DeepCopy()),
		"to evict":             as.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{}),
		"to delete all Pods":   as.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default")),
		"to change a node":     as.Update(t.Context(), &corev1.Node{ObjectMeta: pod.ObjectMeta}),
		"to delete the intent": as.Delete(t.Context(), modelDeployment("default", "any")),
		"to list namespaces":   as.List(t.Context(), &corev1.NamespaceList{}),
	} {
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

// The commands are those of the page: what they give is the one Secret that a
// ModelDeployment names, and nothing else.
func TestTheRetirerReadsTheSecretThatItWasGiven(t *testing.T) {
	account := installAccess(t, "retirer/rbac.yaml")
	given := client.ObjectKey{Namespace: namespace(t, nil), Name: "router-access"}
	page, err := os.ReadFile("../../docs/routers.md")
	require.NoError(t, err)
	as := clientOf(t, account)
	read := func(key client.ObjectKey) error { return as.Get(t.Context(), key, &corev1.Secret{}) }
	require.True(t, apierrors.IsForbidden(read(given)), "before")

	ran := 0
	words := strings.NewReplacer("team-a", given.Namespace, "lastcall-system:lastcall-retirer", account.Namespace+":"+account.Name, "--from-file=ca.crt", "--from-literal=ca.crt=pem")
	for line := range strings.Lines(string(page)) {
		if command, ok := strings.CutPrefix(line, "kubectl create "); ok {
			kubectl(t, append([]string{"create"}, strings.Fields(words.Replace(command))...)...)
			ran++
		}
	}
	require.Equal(t, 3, ran, "a Secret, a Role and a RoleBinding")
	// The authorizer learns of a Role by watching.
	eventually(t, func() error { return read(given) })

	other := given
	other.Name = "another"
	elsewhere := given
	elsewhere.Namespace = account.Namespace
	for what, err := range map[string]error{
		"another of the namespace":  read(other),
		"one of the name elsewhere": read(elsewhere),
		"all of the namespace":      as.List(t.Context(), &corev1.SecretList{}, client.InNamespace(given.Namespace)),
		"to change it":              as.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: given.Namespace, Name: given.Name}}),
	} {
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

// Whoever may exec into engines may do there what the engine may.
func TestOnlyTheRetirerRunsSomethingInPods(t *testing.T) {
	accounts := map[string]client.ObjectKey{}
	for _, templates := range []string{"webhook/rbac.yaml", "operator/rbac.yaml", "retirer/rbac.yaml", "uninstall/rbac.yaml"} {
		accounts[templates] = installAccess(t, templates)
	}
	for templates, account := range accounts {
		for _, ns := range []string{"default", account.Namespace} {
			rules := granted(t, account, ns)
			isRetirer := templates == "retirer/rbac.yaml"
			assert.Equal(t, isRetirer, rules["pods/exec"] != "", "%s in %s", templates, ns)
			for _, other := range []string{"pods/attach", "pods/portforward", "pods/ephemeralcontainers", "pods/*", "*", "*.*"} {
				assert.NotContains(t, rules, other, templates)
			}
		}
	}

	var named []string
	// A Role has nothing that a ClusterRole has not.
	for _, kind := range []string{"Role", "ClusterRole"} {
		roles, err := chart.Decode[rbacv1.ClusterRole](rendered, kind)
		require.NoError(t, err)
		for _, role := range roles {
			for _, rule := range role.Rules {
				assert.NotContains(t, slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*", role.Name)
				if slices.Contains(rule.Resources, "pods/exec") {
					named = append(named, kind+"/"+role.Name)
				}
			}
		}
	}
	assert.Equal(t, []string{"ClusterRole/lastcall-retirer"}, named, "nor does a user get it from the chart")
}

func TestTheUninstallMayDoJustWhatItNeeds(t *testing.T) {
	account := installAccess(t, "uninstall/rbac.yaml")
	want := map[string]string{
		"modeldeployments.lastcall.dev":                                                 "get list patch",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io lastcall-webhook":   "get delete",
		"validatingwebhookconfigurations.admissionregistration.k8s.io lastcall-webhook": "get delete",
	}
	assert.Equal(t, want, granted(t, account, "default"), "anywhere")
	want["deployments.apps lastcall-operator,lastcall-retirer"] = "get"
	want["deployments/scale.apps lastcall-operator,lastcall-retirer"] = "patch"
	want["pods"] = "list"
	assert.Equal(t, want, granted(t, account, account.Namespace), "in its own namespace")
}

// The chart's own command line, as its own account. Not parallel: it lets go of every
// ModelDeployment there is.
func TestAnUninstallLeavesNothingStuck(t *testing.T) {
	ns := namespace(t, nil)
	documents, err := chart.Render(t.Context(), "going", ns)
	require.NoError(t, err)
	hooks, err := chart.Render(t.Context(), "going", ns, "--show-only=templates/uninstall/rbac.yaml")
	require.NoError(t, err)
	t.Setenv("KUBECONFIG", kubeconfigOf(t, installPermissions(t, hooks)))
	jobs, err := chart.Decode[batchv1.Job](documents, "Job")
	require.NoError(t, err)
	uninstall := func() (said string) {
		var out, stderr bytes.Buffer
		code := cli.Run(jobs[0].Spec.Template.Spec.Containers[0].Args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &stderr})
		assert.Zero(t, code, "%s\n%s", out.String(), stderr.String())
		return out.String()
	}

	configurations := webhookConfigurations(t, documents)
	deployments := install[*appsv1.Deployment](t, documents, "Deployment")
	kept, leaving := heldModelDeployment(t, "kept"), heldModelDeployment(t, "leaving")
	require.NoError(t, api.Delete(t.Context(), leaving))

	said := make(chan string)
	go func() { said <- uninstall() }()
	for _, d := range deployments {
		if d.Labels[names.LabelComponent] != "webhook" {
			confirmScaledToZero(t, d)
		}
	}
	assert.Contains(t, <-said, "taking the finalizer "+names.Finalizer+" off")

	for _, configuration := range configurations {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration)
		assert.True(t, apierrors.IsNotFound(err), "%T: %v", configuration, err)
	}
	err = api.Get(t.Context(), client.ObjectKeyFromObject(leaving), leaving)
	assert.True(t, apierrors.IsNotFound(err), "it was being deleted, and nothing holds it: %v", err)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(kept), kept))
	assert.Empty(t, kept.Finalizers)
	assert.Nil(t, kept.DeletionTimestamp)
	for _, d := range deployments {
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		assert.Equal(t, d.Labels[names.LabelComponent] == "webhook", *d.Spec.Replicas > 0, d.Name)
	}

	assert.NotContains(t, uninstall(), "deleting", "a second time there is nothing to do")
}

// webhookConfigurations creates those of a release, without webhooks: nobody serves
// them here.
func webhookConfigurations(t *testing.T, documents []chart.Document) (created []client.Object) {
	t.Helper()
	mutating, err := chart.Decode[*admissionregistrationv1.MutatingWebhookConfiguration](documents, "MutatingWebhookConfiguration")
	require.NoError(t, err)
	validating, err := chart.Decode[*admissionregistrationv1.ValidatingWebhookConfiguration](documents, "ValidatingWebhookConfiguration")
	require.NoError(t, err)
	mutating[0].Webhooks, validating[0].Webhooks = nil, nil
	created = []client.Object{mutating[0], validating[0]}
	for _, configuration := range created {
		require.NoError(t, api.Create(t.Context(), configuration))
		t.Cleanup(func() {
			require.NoError(t, client.IgnoreNotFound(api.Delete(context.Background(), configuration)))
		})
	}
	return created
}

func heldModelDeployment(t *testing.T, name string) *v1alpha1.ModelDeployment {
	t.Helper()
	md := modelDeployment(namespace(t, nil), name)
	md.Finalizers = []string{names.Finalizer}
	require.NoError(t, api.Create(t.Context(), md))
	t.Cleanup(func() { require.NoError(t, client.IgnoreNotFound(api.Delete(context.Background(), md))) })
	return md
}

// confirmScaledToZero waits until a Deployment is scaled to zero and does what its
// controller does then, which does not run here.
func confirmScaledToZero(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			return err
		}
		if *d.Spec.Replicas > 0 {
			return fmt.Errorf("%s has %d replicas", d.Name, *d.Spec.Replicas)
		}
		d.Status.ObservedGeneration = d.Generation
		return api.Status().Update(t.Context(), d)
	})
}
