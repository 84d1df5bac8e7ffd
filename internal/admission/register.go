package admission

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// The paths the webhook configurations name.
const (
	PathPods             = "/mutate-pods"
	PathModelDeployments = "/validate-modeldeployments"
)

// Register puts the handlers on the server and their metrics in the registry. The
// scheme has to know v1alpha1.
//
// A handler that panics breaks its connection, and the API server does what the
// failurePolicy says. A panic that is recovered would be a refusal under any policy.
func Register(server webhook.Server, scheme *runtime.Scheme, registry prometheus.Registerer) error {
	admissions := newAdmissions()
	if err := registry.Register(admissions); err != nil {
		return err
	}
	podWebhook := &admission.Webhook{Handler: podHandler{admissions}}
	server.Register(PathPods, podWebhook.WithRecoverPanic(false))
	server.Register(PathModelDeployments, admission.WithValidator(scheme, modelDeploymentValidator{}).WithRecoverPanic(false))
	return nil
}
