package admission

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

var pods = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}

// podHandler gives engine Pods their drain window as they are created.
//
// It is a Handler and not a typed Defaulter because it has warnings to give and
// a patch at hand: a Defaulter copies the Pod, compares it and marshals it to
// find the patch again.
type podHandler struct {
	admissions *prometheus.CounterVec
}

// Handle answers for the creation of a Pod and lets everything else pass: a hook
// or a grace period cannot be changed on a Pod that exists, and an answer that
// tried would make it undeletable.
func (h podHandler) Handle(_ context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.Resource != pods || req.SubResource != "" {
		return admission.Allowed("")
	}
	var pod corev1.Pod
	// The API server always sends JSON, and reads field names case-sensitively.
	if err := json.Unmarshal(req.Object.Raw, &pod); err != nil {
		h.count(req, names.OutcomeRefused, names.ReasonMalformedPod)
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("reading the Pod: %w", err))
	}
	result, errs := mutate.Pod(&pod)
	h.count(req, result.Record.Outcome, result.Record.Reason)
	if len(errs) > 0 {
		status := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, cmp.Or(pod.Name, pod.GenerateName), errs).Status()
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: &status}}
	}
	return patched(result)
}

func (h podHandler) count(req admission.Request, outcome, reason string) {
	if req.DryRun == nil || !*req.DryRun {
		h.admissions.WithLabelValues(outcome, reason).Inc()
	}
}

func patched(result mutate.Result) admission.Response {
	response := admission.Allowed("").WithWarnings(result.Warnings...)
	if len(result.Patch) == 0 {
		return response
	}
	patch, err := json.Marshal(result.Patch)
	if err != nil {
		// No fault of the Pod's, so not a refusal: see Register.
		panic(fmt.Errorf("writing the patch: %w", err))
	}
	response.Patch = patch
	response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	return response
}
