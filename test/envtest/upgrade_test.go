package envtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// certificates.mode is auto, and cert-manager is installed after lastcall.
func TestAReleaseThatIsSelfSignedStaysSo(t *testing.T) {
	crds := []*apiextensionsv1.CustomResourceDefinition{certManagerKind("Issuer"), certManagerKind("Certificate")}
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: crds})
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, crd := range crds {
			require.NoError(t, api.Delete(context.Background(), crd))
		}
	})
	ns := namespace(t, nil)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, adminKubeconfig, 0o600))
	kinds := func() (kinds []string) {
		// Unlike a plain rendering, this asks the API server what is there.
		documents, err := chart.Render(t.Context(), "lastcall", ns, "--dry-run=server", "--take-ownership", "--kubeconfig", kubeconfig)
		require.NoError(t, err)
		for _, document := range documents {
			var meta metav1.TypeMeta
			require.NoError(t, yaml.Unmarshal(document, &meta))
			kinds = append(kinds, meta.Kind)
		}
		return kinds
	}

	assert.Contains(t, kinds(), "Certificate", "the first installation")

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lastcall-webhook"}}
	require.NoError(t, api.Create(t.Context(), secret))
	assert.Contains(t, kinds(), "Certificate", "nothing was ever made")

	secret.Data = map[string][]byte{"tls.crt": []byte("made by the webhook")}
	require.NoError(t, api.Update(t.Context(), secret))
	assert.NotContains(t, kinds(), "Certificate")
	assert.Contains(t, kinds(), "Secret", "an upgrade without it would delete it")
}

// certManagerKind is a kind of cert-manager's API group, which is what the chart
// looks for.
func certManagerKind(kind string) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s.cert-manager.io"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "cert-manager.io",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}
