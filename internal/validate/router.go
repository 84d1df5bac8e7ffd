package validate

import (
	"fmt"
	"net/netip"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// router finds what is wrong with how a router is found and asked. A selector that
// finds too many Pods would have each of them answer as a router, and one that finds
// too few would take the word of some for that of all.
func (f *findings) router(r *v1alpha1.Router, path *field.Path) {
	if r == nil {
		return
	}
	f.add(oneOf(path.Child("name"), r.Name, []v1alpha1.RouterName{v1alpha1.LLMDRouter, v1alpha1.VLLMRouter, v1alpha1.SGLangGateway}))
	f.add(within(path.Child("port"), r.Port, 1, maxPort, ""))
	if r.MetricsPort != nil {
		f.add(within(path.Child("metricsPort"), *r.MetricsPort, 1, maxPort, ""))
	}
	if r.Namespace != "" && len(validation.IsDNS1123Label(r.Namespace)) > 0 {
		f.add(field.Invalid(path.Child("namespace"), r.Namespace, routerNamespaceMessage))
	}
	if r.SecretName != "" && len(validation.IsDNS1123Subdomain(r.SecretName)) > 0 {
		f.add(field.Invalid(path.Child("secretName"), r.SecretName, secretNameMessage))
	}
	if r.TLS != nil && r.TLS.ServerName != "" && !isServerName(r.TLS.ServerName) {
		f.add(field.Invalid(path.Child("tls", "serverName"), r.TLS.ServerName, serverNameMessage))
	}
	selector := path.Child("podSelector")
	if len(r.PodSelector.MatchLabels)+len(r.PodSelector.MatchExpressions) == 0 {
		f.add(field.Required(selector, routerSelectorMessage))
	}
	f.add(metav1validation.ValidateLabelSelector(&r.PodSelector, metav1validation.LabelSelectorValidationOptions{}, selector)...)
	f.routerAccess(r, path)
}

// routerAccess warns of ways to ask a router that are other than they look.
func (f *findings) routerAccess(r *v1alpha1.Router, path *field.Path) {
	if r.TLS != nil && r.TLS.InsecureSkipVerify {
		f.warn(path.Child("tls", "insecureSkipVerify"), "any certificate is taken, so whoever can answer in the router's place is sent the token and can say that a replica is out of reach; name the Secret with the router's CA in secretName instead")
	}
	if r.SecretName != "" && r.TLS == nil {
		f.warn(path.Child("secretName"), "its token is sent over plain HTTP, for all to read who see that traffic; where the router serves HTTPS set tls: {}")
	}
	if r.Name == v1alpha1.LLMDRouter && r.MetricsPort != nil && *r.MetricsPort != r.Port {
		f.warn(path.Child("metricsPort"), fmt.Sprintf("llm-d-router is asked for its metrics alone, so port %d is not used, nor are tls and secretName: set port to %d and remove metricsPort", r.Port, *r.MetricsPort))
	}
}

// isServerName reports whether a certificate can have the name: isIP of the schema
// takes the same addresses.
func isServerName(name string) bool {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Zone() == "" && !addr.Is4In6()
	}
	return len(validation.IsDNS1123Subdomain(name)) == 0
}
