package admission

import (
	"bytes"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func TestAModelDeploymentThatCannotWorkIsRefused(t *testing.T) {
	md := modelDeployment()
	md.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(5))
	_, err := modelDeploymentValidator{}.ValidateCreate(t.Context(), md)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "terminationGracePeriodSeconds")

	old := modelDeployment()
	_, err = modelDeploymentValidator{}.ValidateUpdate(t.Context(), old, md)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
}

func TestAModelDeploymentThatWorksIsAdmitted(t *testing.T) {
	_, err := modelDeploymentValidator{}.ValidateCreate(t.Context(), modelDeployment())
	require.NoError(t, err)
}

// Somebody has to be able to take a finalizer off, whatever the spec says.
func TestWhatDoesNotChangeTheSpecIsAdmitted(t *testing.T) {
	broken := modelDeployment()
	broken.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(5))

	labelled := broken.DeepCopy()
	labelled.Labels, labelled.Finalizers = map[string]string{"a": "b"}, nil
	_, err := modelDeploymentValidator{}.ValidateUpdate(t.Context(), broken, labelled)
	require.NoError(t, err)

	deleted := broken.DeepCopy()
	deleted.DeletionTimestamp = new(metav1.Unix(1, 0))
	_, err = modelDeploymentValidator{}.ValidateUpdate(t.Context(), modelDeployment(), deleted)
	require.NoError(t, err)

	_, err = modelDeploymentValidator{}.ValidateDelete(t.Context(), broken)
	require.NoError(t, err)
}

func modelDeployment() *v1alpha1.ModelDeployment {
	return &v1alpha1.ModelDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: "qwen", Namespace: "chat"},
		Spec: v1alpha1.ModelDeploymentSpec{
			Model:  v1alpha1.Model{Name: "Qwen/Qwen2.5-7B-Instruct"},
			Engine: v1alpha1.Engine{Name: v1alpha1.VLLM, Image: "vllm/vllm-openai:v0.29.0"},
			Roles:  []v1alpha1.Role{{Name: "server"}},
		},
	}
}

// fakeServer is a webhook.Server that only has a mux.
type fakeServer struct {
	webhook.Server
	mux http.ServeMux
}

func (s *fakeServer) Register(path string, handler http.Handler) {
	s.mux.Handle(path, handler)
}

func newScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, corev1.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return scheme
}

// firstDocument is a YAML file up to its first "---", as JSON.
func firstDocument(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	given, _, _ := bytes.Cut(text, []byte("---\n"))
	object, err := yaml.YAMLToJSON(given)
	require.NoError(t, err)
	return object
}
