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
func Register(server webhook.Server, scheme *runtime.Scheme, registry prometheus.Registerer) error {
	admissions := newAdmissions()
	if err := registry.Register(admissions); err != nil {
		return err
	}
	server.Register(PathPods, &admission.Webhook{Handler: podHandler{admissions}})
	server.Register(PathModelDeployments, admission.WithValidator(scheme, modelDeploymentValidator{}))
	return nil
}
