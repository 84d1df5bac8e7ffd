package manifest

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func TestWrongTypesAreNamedByTheirPlace(t *testing.T) {
	for name, c := range map[string]struct {
		template string // in YAML
		want     []string
	}{
		"an annotation that is a number": {
			"{metadata: {annotations: {lastcall.dev/grace-seconds: 60}}}",
			[]string{"spec.template.metadata.annotations[lastcall.dev/grace-seconds]: must be a string, not the number 60: quote it"},
		},
		"a label that YAML takes for a boolean": {
			"{metadata: {labels: {lastcall.dev/drain: on}}}",
			[]string{"spec.template.metadata.labels[lastcall.dev/drain]: must be a string, not the boolean true: quote it"},
		},
		"a number in a container's environment": {
			"{spec: {containers: [{name: a}, {name: b, env: [{name: A, value: 1.5}]}]}}",
			[]string{"spec.template.spec.containers[1].env[0].value: must be a string, not the number 1.5: quote it"},
		},
		"a string in the place of an environment variable": {
			"{spec: {containers: [{name: a}, {name: b, env: [N=1]}]}}",
			[]string{`spec.template.spec.containers[1].env[0]: must be a mapping, not the string "N=1"`},
		},
		"a string for a list of strings": {
			"{spec: {containers: [{args: --port=1}]}}",
			[]string{`spec.template.spec.containers[0].args: must be a list of strings, not the string "--port=1": write ["--port=1"]`},
		},
		"a mapping for a list": {
			"{spec: {containers: {name: main}}}",
			[]string{`spec.template.spec.containers: must be a list, not a mapping: begin each item with "- "`},
		},
		"a list for a mapping": {
			"{metadata: {labels: [a]}}",
			[]string{"spec.template.metadata.labels: must be a mapping, not a list"},
		},
		"a number in quotes": {
			`{spec: {terminationGracePeriodSeconds: "60"}}`,
			[]string{`spec.template.spec.terminationGracePeriodSeconds: must be a whole number, not the string "60": take the quotes off`},
		},
		"a number with its unit": {
			`{spec: {terminationGracePeriodSeconds: 60s}}`,
			[]string{`spec.template.spec.terminationGracePeriodSeconds: must be a whole number, not the string "60s"`},
		},
		"half a second": {
			`{spec: {terminationGracePeriodSeconds: 1.5}}`,
			[]string{`spec.template.spec.terminationGracePeriodSeconds: must be a whole number, not the number 1.5`},
		},
		"a number that is too large": {
			"{spec: {containers: [{ports: [{containerPort: 3000000000}]}]}}",
			[]string{"spec.template.spec.containers[0].ports[0].containerPort: must be a whole number from -2147483648 to 2147483647, not the number 3000000000"},
		},
		"a boolean in quotes": {
			`{spec: {hostNetwork: "true"}}`,
			[]string{`spec.template.spec.hostNetwork: must be true or false, not the string "true": take the quotes off`},
		},
		"a quantity that is none": {
			"{spec: {containers: [{resources: {limits: {memory: much}}}]}}",
			[]string{`spec.template.spec.containers[0].resources.limits[memory]: must be a quantity such as 500m or "16Gi", not the string "much"`},
		},
		"a probe's port that is a list": {
			"{spec: {containers: [{livenessProbe: {httpGet: {port: [1]}}}]}}",
			[]string{"spec.template.spec.containers[0].livenessProbe.httpGet.port: must be a whole number or a string, not a list"},
		},
		"a value that Helm has not filled in": {
			`{spec: {terminationGracePeriodSeconds: "{{ .Values.grace }}"}}`,
			[]string{`spec.template.spec.terminationGracePeriodSeconds: must be a whole number, not the string "{{ .Values.grace }}": this is a Helm template: run helm template first`},
		},
		"a long string is cut": {
			"{spec: {containers: [{args: 123456789 123456789 123456789 123456789 123456789 123456789 123}]}}",
			[]string{`spec.template.spec.containers[0].args: must be a list of strings, not the string "123456789 123456789 123456789 123456789 123456789 123456789 …"`},
		},
		"all of them": {
			"{metadata: {annotations: {b: 1, a: 2}}, spec: {nodeSelector: {c: 3}}}",
			[]string{
				"spec.template.metadata.annotations[a]: must be a string, not the number 2: quote it",
				"spec.template.metadata.annotations[b]: must be a string, not the number 1: quote it",
				"spec.template.spec.nodeSelector[c]: must be a string, not the number 3: quote it",
			},
		},
		"what is right":     {"{metadata: {creationTimestamp: null, annotations: {a: b}}, spec: {containers: [{resources: {limits: {cpu: 1, memory: 1Gi}}}]}}", nil},
		"an unknown field":  {"{spec: {futureField: 1}}", nil},
		"nulls are nothing": {"{metadata: null, spec: {containers: [null]}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := parse([]byte(c.template))
			require.NoError(t, err)
			text := encode(value)
			require.Equal(t, c.want, messages(TypeErrors(text, corev1.PodTemplateSpec{}, field.NewPath("spec", "template"))))
			// The decoder that decides must agree.
			var template corev1.PodTemplateSpec
			require.Equal(t, c.want == nil, json.Unmarshal(text, &template) == nil)
		})
	}
}

func TestUnknownFieldsAreNamedWithTheOneThatIsNear(t *testing.T) {
	for name, c := range map[string]struct {
		object string // in YAML
		want   []string
	}{
		"a letter is missing":      {"{spec: {roles: [{}, {replica: 2}]}}", []string{`spec.roles[1].replica: there is no such field; did you mean "replicas"?`}},
		"two letters changed":      {"{spec: {rolse: []}}", []string{`spec.rolse: there is no such field; did you mean "roles"?`}},
		"capitals":                 {"{spec: {roles: [{Replicas: 2}]}}", []string{`spec.roles[0].Replicas: there is no such field; did you mean "replicas"?`}},
		"the beginning of one":     {"{spec: {roles: [{terminationGracePeriod: 2}]}}", []string{`spec.roles[0].terminationGracePeriod: there is no such field; did you mean "terminationGracePeriodSeconds"?`}},
		"none is near":             {"{spec: {roles: [{autoscaling: {}}]}}", []string{`spec.roles[0].autoscaling: there is no such field`}},
		"in a field of Kubernetes": {"{spec: {roles: [{env: [{name: A, vale: b}]}]}}", []string{`spec.roles[0].env[0].vale: there is no such field; did you mean "value"?`}},
		"in the metadata":          {"{metadata: {lables: {}}}", []string{`metadata.lables: there is no such field; did you mean "labels"?`}},
		"a key is no field":        {"{metadata: {labels: {lable: x}}, spec: {roles: [{resources: {limits: {nvidia.com/gpu: 1}}}]}}", nil},
		"what is known":            {"{apiVersion: a, kind: b, spec: {engine: {name: vLLM}, roles: [{replicas: 1}]}, status: {phase: Ready}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := parse([]byte(c.object))
			require.NoError(t, err)
			text := encode(value)
			require.Equal(t, c.want, messages(UnknownFields(text, v1alpha1.ModelDeployment{}, nil)))
			// The decoder that decides must agree.
			strict, err := kjson.UnmarshalStrict(text, &v1alpha1.ModelDeployment{})
			require.NoError(t, err)
			require.Len(t, strict, len(c.want))
		})
	}
}

func messages(errs []error) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}
