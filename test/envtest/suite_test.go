package envtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// releaseNamespace is where the chart is installed: a place that many people use
// and that must not be exempt because of it.
const releaseNamespace = "default"

// One API server for the whole package.
var (
	rendered []chart.Document
	config   *rest.Config
	// adminKubeconfig is config for programs.
	adminKubeconfig []byte
	api             client.Client
	warnings        = &warningRecorder{}
	server          *webhookServer
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		stop, err := start()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		code := m.Run()
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

func start() (stop func() error, err error) {
	ctx := context.Background()
	ctrl.SetLogger(logr.Discard())
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		return nil, err
	}
	if rendered, err = chart.Render(ctx, "lastcall", releaseNamespace); err != nil {
		return nil, err
	}
	crds, err := chart.Decode[*apiextensionsv1.CustomResourceDefinition](rendered, "CustomResourceDefinition")
	if err != nil {
		return nil, err
	}
	mutating, err := chart.Decode[*admissionregistrationv1.MutatingWebhookConfiguration](rendered, "MutatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	validating, err := chart.Decode[*admissionregistrationv1.ValidatingWebhookConfiguration](rendered, "ValidatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	assets, err := binaries.AssetsDir(ctx)
	if err != nil {
		return nil, fmt.Errorf("etcd and kube-apiserver are needed, `go run ./test/cluster binaries etcd kube-apiserver kubectl` gets them: %w", err)
	}

	environment := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		ControlPlaneStartTimeout: 2 * time.Minute,
		CRDs:                     crds,
		WebhookInstallOptions: envtest.WebhookInstallOptions{
			MutatingWebhooks:   mutating,
			ValidatingWebhooks: validating,
		},
	}
	// Whoever owns an object in a way that holds up the owner's deletion must then be
	// allowed to; some distributions have this on.
	environment.ControlPlane.GetAPIServer().Configure().Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if config, err = environment.Start(); err != nil {
		return nil, err
	}
	adminKubeconfig = environment.KubeConfig
	config.WarningHandlerWithContext = warnings
	if api, err = client.New(config, client.Options{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		return nil, err
	}
	server = newWebhookServer(environment.WebhookInstallOptions)
	if err := server.start(); err != nil {
		return nil, err
	}
	return environment.Stop, untilInForce(ctx, injected, optedIn)
}

// untilInForce returns when the API server has read a webhook configuration that
// was just created: when a Pod with these labels comes back changed.
func untilInForce(ctx context.Context, changed func(*corev1.Pod) bool, labels map[string]string) error {
	for range 1000 {
		pod := enginePod(releaseNamespace, "probe", labels)
		if err := api.Create(ctx, pod, client.DryRunAll); err != nil {
			return err
		}
		if changed(pod) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("the API server does not call a webhook that was installed")
}

// warningRecorder keeps the warnings of API answers. Only tests that run alone can
// tell whose they are.
type warningRecorder struct {
	mu    sync.Mutex
	texts []string
}

func (w *warningRecorder) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// namespace makes a namespace of its own for a test.
func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels}}
	require.NoError(t, api.Create(t.Context(), object))
	return object.Name
}

// install creates the rendered objects of the given kinds.
func install[T client.Object](t *testing.T, documents []chart.Document, kind string) []T {
	t.Helper()
	objects, err := chart.Decode[T](documents, kind)
	require.NoError(t, err)
	require.NotEmpty(t, objects, kind)
	for _, object := range objects {
		require.NoError(t, api.Create(t.Context(), object), kind)
		t.Cleanup(func() {
			require.NoError(t, client.IgnoreNotFound(api.Delete(context.Background(), object)))
		})
	}
	return objects
}

// installPermissions installs the ServiceAccount of one binary and what it may do,
// and returns the account's name.
func installPermissions(t *testing.T, documents []chart.Document) client.ObjectKey {
	t.Helper()
	install[*rbacv1.Role](t, documents, "Role")
	install[*rbacv1.RoleBinding](t, documents, "RoleBinding")
	install[*rbacv1.ClusterRole](t, documents, "ClusterRole")
	install[*rbacv1.ClusterRoleBinding](t, documents, "ClusterRoleBinding")
	return client.ObjectKeyFromObject(install[*corev1.ServiceAccount](t, documents, "ServiceAccount")[0])
}

// eventually retries until check has nothing to say, for at most 30 s.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	require.NoError(t, err)
}

// toJSON is object as the API server would send it.
func toJSON(t *testing.T, object client.Object) []byte {
	t.Helper()
	gvk, err := api.GroupVersionKindFor(object)
	require.NoError(t, err)
	object.GetObjectKind().SetGroupVersionKind(gvk)
	text, err := json.Marshal(object)
	require.NoError(t, err)
	return text
}
