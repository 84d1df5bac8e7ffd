package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/lastcall-dev/lastcall/api/names"
)

const namespace = "lastcall-system"

const onlyWebhook = "--show-only=templates/webhook/*"

func render(t *testing.T, flags ...string) []Document {
	t.Helper()
	documents, err := Render(t.Context(), "lastcall", namespace, flags...)
	require.NoError(t, err)
	return documents
}

func decode[T any](t *testing.T, documents []Document, kind string) []T {
	t.Helper()
	objects, err := Decode[T](documents, kind)
	require.NoError(t, err)
	return objects
}

func one[T any](t *testing.T, documents []Document, kind string) T {
	t.Helper()
	objects := decode[T](t, documents, kind)
	require.Len(t, objects, 1, kind)
	return objects[0]
}

func TestRenderingTwiceGivesTheSameText(t *testing.T) {
	assert.Equal(t, render(t), render(t))
}

func TestValuesThatDoNotExistAreRefused(t *testing.T) {
	for _, flag := range []string{
		"webhook.failurepolicy=Fail", "webhook.failurePolicy=fail", "webhook.replicas=0", "webhook.ports.webhook=443",
		"certificates.mode=manual", "certificate.mode=auto", "networkPolicy.enable=true", "image.tag=10",
		`webhook.podLabels.app\.kubernetes\.io/managed-by=lastcall-operator`,
		"operator.worker=1", "operator.workers=0", "operator.replicas=-1", "operator.hostNetwork=true", "operator.logLevel=loud",
		`operator.podLabels.app\.kubernetes\.io/managed-by=lastcall-operator`,
		"retirer.workers=101", "retirer.worker=1", "retirer.ports.metrics=8080", "retirer.budgets.drain=4m", "retirer.budgets.drain=240",
		"retirer.budgets.total=0s", "retirer.budgets.idle=5s", "monitoring.alerts.enable=true", "monitoring.dashboard.labels.a=b",
	} {
		_, err := Render(t.Context(), "lastcall", namespace, "--set", flag)
		assert.ErrorContains(t, err, "values don't meet the specifications of the schema", flag)
	}
}

func TestAReleaseNameThatNoServiceCanHaveIsRefused(t *testing.T) {
	for _, release := range []string{"1lastcall", "last.call"} {
		_, err := Render(t.Context(), release, namespace)
		assert.ErrorContains(t, err, `the release name "`+release+`" must start with a letter`)
	}
}

func TestTheCustomResourceDefinitionIsKept(t *testing.T) {
	crd := one[apiextensionsv1.CustomResourceDefinition](t, render(t), "CustomResourceDefinition")
	assert.Equal(t, "modeldeployments."+names.Group, crd.Name)
	assert.Equal(t, "keep", crd.Annotations["helm.sh/resource-policy"])
}

func TestTheCABundleIsNeverRendered(t *testing.T) {
	for _, mode := range []string{"cert-manager", "self-signed"} {
		documents := render(t, "--set", "certificates.mode="+mode)
		mutating := one[admissionregistrationv1.MutatingWebhookConfiguration](t, documents, "MutatingWebhookConfiguration")
		validating := one[admissionregistrationv1.ValidatingWebhookConfiguration](t, documents, "ValidatingWebhookConfiguration")
		require.Len(t, mutating.Webhooks, 3)
		require.Len(t, validating.Webhooks, 1)
		for _, webhook := range mutating.Webhooks {
			assert.Nil(t, webhook.ClientConfig.CABundle)
		}
		assert.Nil(t, validating.Webhooks[0].ClientConfig.CABundle)

		for _, secret := range decode[corev1.Secret](t, documents, "Secret") {
			assert.Empty(t, secret.Data, "an upgrade would write over the certificate")
			assert.Empty(t, secret.StringData)
		}
	}
}

func TestCertificateModes(t *testing.T) {
	withCertManager := []string{"--api-versions", "cert-manager.io/v1"}
	for name, test := range map[string]struct {
		flags       []string
		certManager bool
	}{
		"auto without cert-manager":     {},
		"auto with cert-manager":        {flags: withCertManager, certManager: true},
		"self-signed with cert-manager": {flags: append([]string{"--set", "certificates.mode=self-signed"}, withCertManager...)},
		"cert-manager":                  {flags: []string{"--set", "certificates.mode=cert-manager"}, certManager: true},
	} {
		t.Run(name, func(t *testing.T) {
			documents := render(t, append(test.flags, onlyWebhook)...)
			mutating := one[admissionregistrationv1.MutatingWebhookConfiguration](t, documents, "MutatingWebhookConfiguration")
			pod := one[appsv1.Deployment](t, documents, "Deployment").Spec.Template.Spec
			if !test.certManager {
				assert.Empty(t, decode[certmanager.Certificate](t, documents, "Certificate"))
				assert.Len(t, decode[corev1.Secret](t, documents, "Secret"), 1)
				assert.Empty(t, mutating.Annotations)
				assert.True(t, *pod.AutomountServiceAccountToken)
				return
			}
			certificates := decode[certmanager.Certificate](t, documents, "Certificate")
			require.Len(t, certificates, 2)
			require.Len(t, decode[certmanager.Issuer](t, documents, "Issuer"), 2)
			serving := certificates[1]
			assert.Equal(t, namespace+"/"+serving.Name, mutating.Annotations["cert-manager.io/inject-ca-from"])
			assert.Equal(t, serving.Spec.SecretName, pod.Volumes[0].Secret.SecretName)
			service := mutating.Webhooks[0].ClientConfig.Service
			assert.Contains(t, serving.Spec.DNSNames, service.Name+"."+service.Namespace+".svc", "the name that the API server verifies")
			assert.Empty(t, decode[corev1.Secret](t, documents, "Secret"))
			assert.Empty(t, decode[map[string]any](t, documents, "ClusterRole"), "cert-manager keeps the CA bundle")
			assert.False(t, *pod.AutomountServiceAccountToken)
		})
	}
}

// The manifests in certs/ are for people who do without the chart: they are what
// it renders, without Helm's labels.
func TestThePlainManifestsAreTheCharts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(Root(), "certs", "webhook.yaml"))
	require.NoError(t, err)
	var plain []Document
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		plain = append(plain, Document(document))
	}
	rendered := render(t, "--set", "certificates.mode=cert-manager")

	issuers, certificates := decode[certmanager.Issuer](t, rendered, "Issuer"), decode[certmanager.Certificate](t, rendered, "Certificate")
	for i := range issuers {
		issuers[i].Labels = nil
	}
	for i := range certificates {
		certificates[i].Labels = nil
	}
	assert.ElementsMatch(t, issuers, decode[certmanager.Issuer](t, plain, "Issuer"))
	assert.ElementsMatch(t, certificates, decode[certmanager.Certificate](t, plain, "Certificate"))
}

func TestPods(t *testing.T) {
	for _, deployment := range decode[appsv1.Deployment](t, render(t), "Deployment") {
		template := deployment.Spec.Template
		assert.Equal(t, names.PartOf, template.Labels[names.LabelPartOf], "the webhook must never be asked about %s", deployment.Name)
		for _, container := range template.Spec.Containers {
			assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, deployment.Name)
			assert.NotContains(t, container.Image, ":latest", deployment.Name)
		}
	}
}

func TestOptionsOfTheWebhook(t *testing.T) {
	documents := render(t,
		onlyWebhook, "--set", "networkPolicy.enabled=true", "--set", "webhook.hostNetwork=true", "--set", "webhook.ports.webhook=10250",
		"--set", "webhook.failurePolicy=Fail", "--set", "webhook.image=example.com/webhook@sha256:0123",
		"--set", "webhook.podLabels.team=a", "--set", "webhook.podAnnotations.note=b", "--set", "webhook.nodeSelector.pool=c",
		"--set", "webhook.priorityClassName=system-cluster-critical", "--set", "image.pullSecrets[0].name=d",
		"--set-json", `webhook.tolerations=[{"operator":"Exists"}]`, "--set-json", `webhook.affinity={"nodeAffinity":{}}`,
		"--set-json", `webhook.topologySpreadConstraints=[{"maxSkew":2,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}]`,
	)
	deployment := one[appsv1.Deployment](t, documents, "Deployment")
	template := deployment.Spec.Template
	assert.True(t, template.Spec.HostNetwork)
	assert.Equal(t, int32(10250), template.Spec.Containers[0].Ports[0].ContainerPort)
	assert.Contains(t, template.Spec.Containers[0].Args, "--port=10250")
	assert.Equal(t, "example.com/webhook@sha256:0123", template.Spec.Containers[0].Image)
	assert.Equal(t, "a", template.Labels["team"])
	assert.Equal(t, "b", template.Annotations["note"])
	assert.Equal(t, "c", template.Spec.NodeSelector["pool"])
	assert.Equal(t, "system-cluster-critical", template.Spec.PriorityClassName)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "d"}}, template.Spec.ImagePullSecrets)
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, template.Spec.Tolerations)
	assert.Nil(t, template.Spec.Affinity.PodAntiAffinity)
	assert.Equal(t, int32(2), template.Spec.TopologySpreadConstraints[0].MaxSkew)
	assert.Equal(t, "0", deployment.Spec.Strategy.RollingUpdate.MaxSurge.String(), "a surge would wait for a free port")

	mutating := one[admissionregistrationv1.MutatingWebhookConfiguration](t, documents, "MutatingWebhookConfiguration")
	for _, webhook := range mutating.Webhooks {
		assert.Equal(t, admissionregistrationv1.Fail, *webhook.FailurePolicy, webhook.Name)
	}
	one[networkingv1.NetworkPolicy](t, documents, "NetworkPolicy")
}

func TestOptionsOfTheOperator(t *testing.T) {
	documents := render(t, "--show-only=templates/operator/*", "--set", "networkPolicy.enabled=true",
		"--set", "operator.workers=3", "--set", "operator.replicas=1", "--set", "operator.logLevel=debug",
		"--set", "operator.image=example.com/operator@sha256:0123", "--set", "operator.podLabels.team=a",
		"--set", "operator.nodeSelector.pool=c", "--set", "operator.serviceAccountAnnotations.note=b",
	)
	deployment := one[appsv1.Deployment](t, documents, "Deployment")
	assert.Equal(t, int32(1), *deployment.Spec.Replicas)
	pod := deployment.Spec.Template.Spec
	assert.Equal(t, "example.com/operator@sha256:0123", pod.Containers[0].Image)
	assert.Equal(t, []string{
		"--name=lastcall-operator", "--namespace=" + namespace, "--metrics-address=:8080", "--health-address=:8081", "--log-level=debug", "--workers=3",
	}, pod.Containers[0].Args)
	assert.Equal(t, "a", deployment.Spec.Template.Labels["team"])
	assert.Equal(t, "c", pod.NodeSelector["pool"])

	account := one[corev1.ServiceAccount](t, documents, "ServiceAccount")
	assert.Equal(t, "b", account.Annotations["note"])
	assert.Equal(t, account.Name, pod.ServiceAccountName)
	policy := one[networkingv1.NetworkPolicy](t, documents, "NetworkPolicy")
	assert.Equal(t, deployment.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels)
	assert.Len(t, policy.Spec.Ingress[0].Ports, 2)
	budget := one[policyv1.PodDisruptionBudget](t, documents, "PodDisruptionBudget")
	assert.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)
}

func TestOptionsOfTheRetirer(t *testing.T) {
	documents := render(t, "--show-only=templates/retirer/*", "--set", "networkPolicy.enabled=true",
		"--set", "retirer.workers=3", "--set", "retirer.replicas=1", "--set", "retirer.logLevel=debug", "--set", "retirer.podLabels.team=a",
		"--set", "retirer.budgets.withdraw=10s", "--set", "retirer.budgets.drain=1800s", "--set", "retirer.budgets.total=1900s",
		"--set", "retirer.image=example.com/retirer@sha256:0123",
	)
	deployment := one[appsv1.Deployment](t, documents, "Deployment")
	assert.Equal(t, int32(1), *deployment.Spec.Replicas)
	pod := deployment.Spec.Template.Spec
	assert.Equal(t, "example.com/retirer@sha256:0123", pod.Containers[0].Image)
	assert.Equal(t, []string{
		"--name=lastcall-retirer", "--namespace=" + namespace, "--metrics-address=:8080", "--health-address=:8081", "--log-level=debug",
		"--workers=3", "--withdraw-budget=10s", "--drain-budget=1800s", "--total-budget=1900s",
	}, pod.Containers[0].Args)
	assert.Equal(t, "a", deployment.Spec.Template.Labels["team"])
	account := one[corev1.ServiceAccount](t, documents, "ServiceAccount")
	assert.Equal(t, account.Name, pod.ServiceAccountName)
	policy := one[networkingv1.NetworkPolicy](t, documents, "NetworkPolicy")
	assert.Equal(t, deployment.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels)
	assert.Len(t, policy.Spec.Ingress[0].Ports, 2)
	budget := one[policyv1.PodDisruptionBudget](t, documents, "PodDisruptionBudget")
	assert.Equal(t, deployment.Spec.Selector, budget.Spec.Selector)
}

// Kubernetes adds the rules to its own ClusterRoles by these labels.
func TestModelDeploymentsAreForUsersOfANamespace(t *testing.T) {
	may := map[string][]string{}
	for _, role := range decode[rbacv1.ClusterRole](t, render(t), "ClusterRole") {
		assert.Equal(t, names.PartOf, role.Labels[names.LabelPartOf], "%s: what an uninstall must not leave is found by this label", role.Name)
		for _, of := range []string{"view", "edit", "admin"} {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+of] != "true" {
				continue
			}
			for _, rule := range role.Rules {
				assert.Equal(t, []string{names.Group}, rule.APIGroups, role.Name)
				require.Equal(t, "modeldeployments", rule.Resources[0], role.Name)
				may[of] = append(may[of], rule.Verbs...)
			}
		}
	}
	read, write := []string{"get", "list", "watch"}, []string{"create", "update", "patch", "delete", "deletecollection"}
	assert.ElementsMatch(t, read, may["view"])
	assert.ElementsMatch(t, append(read, write...), may["edit"])
	assert.ElementsMatch(t, may["edit"], may["admin"])
}

func TestOpenShiftMayChooseTheUser(t *testing.T) {
	documents := render(t, "--set", "webhook.podSecurityContext.runAsUser=null", "--set", "webhook.containerSecurityContext.privileged=false",
		"--set", "operator.podSecurityContext.runAsUser=null", "--set", "operator.containerSecurityContext.privileged=false",
		"--set", "retirer.podSecurityContext.runAsUser=null", "--set", "retirer.containerSecurityContext.privileged=false")
	deployments := decode[appsv1.Deployment](t, documents, "Deployment")
	require.Len(t, deployments, 3)
	uninstall := one[batchv1.Job](t, documents, "Job").Spec.Template.Spec
	assert.Nil(t, uninstall.SecurityContext.RunAsUser)
	assert.True(t, *uninstall.SecurityContext.RunAsNonRoot)
	for _, deployment := range deployments {
		pod := deployment.Spec.Template.Spec
		assert.Nil(t, pod.SecurityContext.RunAsUser)
		assert.True(t, *pod.SecurityContext.RunAsNonRoot)
		assert.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
		assert.False(t, *pod.Containers[0].SecurityContext.Privileged)
		assert.True(t, *pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
	}
}

func TestHelmLint(t *testing.T) {
	_, err := Helm(t.Context(), "lint", "--strict", "charts/lastcall")
	assert.NoError(t, err)
}
