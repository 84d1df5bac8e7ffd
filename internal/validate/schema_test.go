package validate

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Each case breaks one CEL rule of the schema. The schema and this package must
// say the same of it, at the same field, and no rule may be without a case.
func TestTheSchemaAndTheWebhookSayTheSame(t *testing.T) {
	cases := map[string]struct {
		old, edit func(*v1alpha1.ModelDeployment)
	}{
		"a name that no Service can have": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Name = "7b" },
		},
		"names too long for a Pod at the highest ordinal": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Name = strings.Repeat("q", 63-len("-server-1023")+1) },
		},
		"names too long for a member of two digits": {
			old: func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Size = new(int32(11)) },
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Name = strings.Repeat("q", 63-len("-server-1023-10")+1)
				md.Spec.Roles[0].Size = new(int32(11))
			},
		},
		"names too long for a member of one digit": {
			old: func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Size = new(int32(10)) },
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Name = strings.Repeat("q", 63-len("-server-1023-9")+1)
				md.Spec.Roles[0].Size = new(int32(10))
			},
		},
		"no image anywhere": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Engine.Image = "" },
		},
		"direct withdrawal beside a router": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Withdrawal.Direct = v1alpha1.DirectConnections
				md.Spec.Router = &v1alpha1.Router{
					Name: v1alpha1.LLMDRouter, Port: 9090,
					PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "epp"}},
				}
			},
		},
		"a router that is every Pod": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Router = router(v1alpha1.VLLMRouter)
				md.Spec.Router.PodSelector = metav1.LabelSelector{}
			},
		},
		"a router in what is no namespace": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Router = router(v1alpha1.VLLMRouter)
				md.Spec.Router.Namespace = "team.a"
			},
		},
		"a Secret by its path": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Router = router(v1alpha1.VLLMRouter)
				md.Spec.Router.SecretName = "team-a/token"
			},
		},
		"a certificate for a URL": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Router = router(v1alpha1.VLLMRouter)
				md.Spec.Router.TLS = &v1alpha1.RouterTLS{ServerName: "https://router.team-a.svc"}
			},
		},
		"a certificate for an address that no certificate has": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Router = router(v1alpha1.VLLMRouter)
				md.Spec.Router.TLS = &v1alpha1.RouterTLS{ServerName: "fe80::1%eth0"}
			},
		},
		"a peer that is nobody": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Withdrawal.Peers = []v1alpha1.WithdrawalPeer{{}} },
		},
		"a peer that is no block of addresses": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Withdrawal.Peers = []v1alpha1.WithdrawalPeer{{CIDR: "10.0.3.7"}}
			},
		},
		"a namespace of addresses": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Withdrawal.Peers = []v1alpha1.WithdrawalPeer{{CIDR: "10.0.3.7/32", Namespace: "monitoring"}}
			},
		},
		"draining longer than the whole": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Retirement = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(301)), TotalSeconds: new(int32(300))}
			},
		},
		"a grace period out of its range": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(14))
			},
		},
		"a proxy on the engine's port": {
			edit: func(md *v1alpha1.ModelDeployment) {
				md.Spec.Roles[0].Port = new(int32(9000))
				md.Spec.Roles[0].Proxy = &v1alpha1.Proxy{Image: "proxy:1", Port: 9000}
			},
		},
		"another engine": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Engine.Name = v1alpha1.SGLang },
		},
		"another kind": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Kind = v1alpha1.Decode },
		},
		"another size": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Size = new(int32(2)) },
		},
		"a command where there was none": {
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Command = []string{"/serve"} },
		},
		"another command": {
			old:  func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Command = []string{"/serve"} },
			edit: func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Command = []string{"/serve", "--fast"} },
		},
		"no command where there was one": {
			old:  func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Command = []string{"/serve"} },
			edit: func(*v1alpha1.ModelDeployment) {},
		},
	}

	s := loadSchema(t)
	broken := map[string]bool{}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			old, md := minimal(t), minimal(t)
			if c.old != nil {
				c.old(old)
			}
			c.edit(md)
			ours, _ := ModelDeploymentUpdate(old, md)
			theirs := s.evaluate(t, md, old)
			require.Len(t, ours, 1)
			require.Len(t, theirs, 1)
			broken[theirs[0].Detail] = true
			require.Equal(t, theirs[0].Detail, ours[0].Detail)
			// A rule at the root has no field of its own, or only that of the list.
			if at := theirs[0].Field; at != "<nil>" {
				require.True(t, strings.HasPrefix(ours[0].Field, at), "the schema says %s, we say %s", at, ours[0].Field)
			}
		})
	}
	for _, message := range s.messages() {
		require.True(t, broken[message], "no case for the rule: %s", message)
	}
}

func TestTheSchemaAndTheWebhookAcceptTheSame(t *testing.T) {
	cases := map[string]func(old, md *v1alpha1.ModelDeployment){
		"the minimal deployment":    func(_, _ *v1alpha1.ModelDeployment) {},
		"the longest name":          func(_, md *v1alpha1.ModelDeployment) { md.Name = strings.Repeat("q", 63-len("-server-1023")) },
		"the shortest grace period": func(_, md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(15)) },
		"the longest grace period": func(_, md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].TerminationGracePeriodSeconds = new(int64(3600))
		},
		"defaults that are written": func(_, md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Kind, md.Spec.Roles[0].Size = "Server", new(int32(1))
		},
		"an image in every role": func(_, md *v1alpha1.ModelDeployment) { md.Spec.Engine.Image, md.Spec.Roles[0].Image = "", "vllm:1" },
		"a longer drain alone":   func(_, md *v1alpha1.ModelDeployment) { md.Spec.Retirement.DrainSeconds = new(int32(3600)) },
		"an unchanged command": func(old, md *v1alpha1.ModelDeployment) {
			old.Spec.Roles[0].Command, md.Spec.Roles[0].Command = []string{"a"}, []string{"a"}
		},
		"a role that is renamed": func(_, md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Name, md.Spec.Roles[0].Size = "other", new(int32(4))
		},
		"a router by expressions": func(_, md *v1alpha1.ModelDeployment) {
			md.Spec.Router = router(v1alpha1.LLMDRouter)
			md.Spec.Router.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"epp"}}}}
		},
		"a router that is asked over HTTPS": func(_, md *v1alpha1.ModelDeployment) {
			md.Spec.Router = router(v1alpha1.VLLMRouter)
			md.Spec.Router.Namespace, md.Spec.Router.SecretName = "routing-1", "router.token"
			md.Spec.Router.TLS, md.Spec.Router.MetricsPort = &v1alpha1.RouterTLS{ServerName: "fd00::1"}, new(int32(29000))
		},
		"roles in another order":    reorder,
		"a changed env of one name": func(_, md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}} },
	}
	s := loadSchema(t)
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			old, md := minimal(t), minimal(t)
			edit(old, md)
			errs, warnings := ModelDeploymentUpdate(old, md)
			require.Empty(t, errs)
			require.Empty(t, warnings)
			require.Empty(t, s.evaluate(t, md, old))
		})
	}
}

func reorder(old, md *v1alpha1.ModelDeployment) {
	a, b := v1alpha1.Role{Name: "a", Size: new(int32(1))}, v1alpha1.Role{Name: "b", Size: new(int32(2))}
	old.Spec.Roles, md.Spec.Roles = []v1alpha1.Role{a, b}, []v1alpha1.Role{b, a}
}

// schema is the schema of the CustomResourceDefinition that the chart installs.
type schema struct {
	*structuralschema.Structural
	rules *cel.Validator
}

func loadSchema(t *testing.T) schema {
	text, err := os.ReadFile("../../charts/lastcall/files/modeldeployments.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(text, crd))
	props := &apiextensions.JSONSchemaProps{}
	require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, props, nil))
	s, err := structuralschema.NewStructural(props)
	require.NoError(t, err)
	return schema{s, cel.NewValidator(s, true, celconfig.PerCallLimit)}
}

// evaluate is what the schema's CEL rules say, after the schema's defaults.
func (s schema) evaluate(t *testing.T, md, old *v1alpha1.ModelDeployment) field.ErrorList {
	errs, _ := s.rules.Validate(t.Context(), nil, s.Structural, s.object(t, md), s.object(t, old), celconfig.RuntimeCELCostBudget)
	return errs
}

func (s schema) object(t *testing.T, md *v1alpha1.ModelDeployment) map[string]any {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(md)
	require.NoError(t, err)
	defaulting.Default(object, s.Structural)
	return object
}

// messages are those of all CEL rules.
func (s schema) messages() []string {
	var all []string
	var walk func(*structuralschema.Structural)
	walk = func(node *structuralschema.Structural) {
		for _, rule := range node.XValidations {
			all = append(all, rule.Message)
		}
		for _, property := range node.Properties {
			walk(&property)
		}
		if node.Items != nil {
			walk(node.Items)
		}
	}
	walk(s.Structural)
	return all
}

func minimal(t *testing.T) *v1alpha1.ModelDeployment { return example(t, "minimal") }

func example(t *testing.T, name string) *v1alpha1.ModelDeployment {
	text, err := os.ReadFile("../../api/v1alpha1/testdata/" + name + ".yaml")
	require.NoError(t, err)
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, yaml.UnmarshalStrict(text, md))
	return md
}
