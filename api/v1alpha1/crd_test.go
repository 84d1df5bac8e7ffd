package v1alpha1_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// load reads the definition that the chart installs, as the API server does.
func load(t *testing.T) *apiextensions.CustomResourceDefinition {
	text, err := os.ReadFile("../../charts/lastcall/files/modeldeployments.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(text, crd))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	crd.Status.StoredVersions = []string{v1alpha1.GroupVersion.Version}
	internal := &apiextensions.CustomResourceDefinition{}
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil))
	return internal
}

// The API server compiles every rule and refuses a definition whose rules could
// cost too much at the schema's own limits.
func TestAPIServerAcceptsTheDefinition(t *testing.T) {
	require.Empty(t, crdvalidation.ValidateCustomResourceDefinition(t.Context(), load(t)))
}

func TestEveryFieldIsDocumented(t *testing.T) {
	var walk func(at string, props apiextensions.JSONSchemaProps)
	walk = func(at string, props apiextensions.JSONSchemaProps) {
		for name, property := range props.Properties {
			at := at + "." + name
			require.True(t, property.Description != "" || at == ".metadata", at)
			walk(at, property)
		}
		if props.Items != nil {
			walk(at, *props.Items.Schema)
		}
	}
	walk("", *load(t).Spec.Validation.OpenAPIV3Schema)
}

// Helm keeps a release, this definition included, in a Secret of at most 1 MiB,
// and kubectl apply keeps it in an annotation of at most 256 KiB.
func TestTheDefinitionStaysSmall(t *testing.T) {
	text, err := os.ReadFile("../../charts/lastcall/files/modeldeployments.yaml")
	require.NoError(t, err)
	asJSON, err := yaml.YAMLToJSON(text)
	require.NoError(t, err)
	require.Less(t, len(asJSON), 200<<10)
}

func TestTheSchemaAcceptsTheExamplesWhole(t *testing.T) {
	props := load(t).Spec.Validation.OpenAPIV3Schema
	validator, _, err := validation.NewSchemaValidator(props)
	require.NoError(t, err)
	structural, err := structuralschema.NewStructural(props)
	require.NoError(t, err)

	for _, name := range []string{"minimal", "full"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		require.NoError(t, err)
		object := map[string]any{}
		require.NoError(t, yaml.Unmarshal(text, &object))
		require.Empty(t, validation.ValidateCustomResource(nil, object, validator), name)
		require.Empty(t, pruning.PruneWithOptions(object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}), name)
	}
}

// An unset grace period stays unset, so that writing 30 and writing nothing can
// mean the same to all who render from it.
func TestWhatTheSchemaDefaults(t *testing.T) {
	structural, err := structuralschema.NewStructural(load(t).Spec.Validation.OpenAPIV3Schema)
	require.NoError(t, err)
	object := map[string]any{"spec": map[string]any{
		"roles":      []any{map[string]any{"name": "server"}},
		"withdrawal": map[string]any{},
	}}
	defaulting.Default(object, structural)
	require.Equal(t, map[string]any{
		"roles":      []any{map[string]any{"name": "server", "kind": "Server", "replicas": int64(1), "size": int64(1)}},
		"withdrawal": map[string]any{"direct": "Hold"},
	}, object["spec"])
}
