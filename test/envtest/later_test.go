package envtest

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// startLaterWebhook runs a mutating webhook that comes after lastcall's, because
// the API server goes by name, and returns the label of the Pods it changes, once
// each.
func startLaterWebhook(t *testing.T, change func(*corev1.Pod)) (label string) {
	t.Helper()
	const name, done = "zz-later", "zz-later/done"
	handler := admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		var pod corev1.Pod
		if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if pod.Annotations[done] != "" {
			return admission.Allowed("")
		}
		change(&pod)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, done, "true")
		changed, err := json.Marshal(pod)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		return admission.PatchResponseFromRaw(request.Object.Raw, changed)
	})
	later := httptest.NewTLSServer(&admission.Webhook{Handler: handler})
	t.Cleanup(later.Close)

	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "later.example.com",
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{name: "true"}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &later.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: later.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	require.NoError(t, api.Create(t.Context(), configuration))
	t.Cleanup(func() { require.NoError(t, api.Delete(context.Background(), configuration)) })
	label = name
	isDone := func(pod *corev1.Pod) bool { return pod.Annotations[done] != "" }
	require.NoError(t, untilInForce(t.Context(), isDone, map[string]string{label: "true"}))
	return label
}
