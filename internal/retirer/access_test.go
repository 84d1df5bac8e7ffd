package retirer

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// gateway is an API server that has the pools of one version, and one Secret.
type gateway struct {
	client.Reader
	version string
	pools   []map[string]any
	secret  map[string][]byte
	fail    error
}

func (g *gateway) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	kind := into.GetObjectKind().GroupVersionKind()
	switch {
	case g.fail != nil:
		return g.fail
	case kind.Version != g.version:
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	for _, spec := range g.pools {
		into.(*unstructured.UnstructuredList).Items = append(into.(*unstructured.UnstructuredList).Items, unstructured.Unstructured{
			Object: map[string]any{"metadata": map[string]any{"name": "qwen-pool"}, "spec": spec},
		})
	}
	return nil
}

func (g *gateway) Get(_ context.Context, _ types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	if g.fail != nil {
		return g.fail
	}
	into.(*corev1.Secret).Data = g.secret
	return nil
}

func TestPoolsThatFailOpenAreNoProof(t *testing.T) {
	selector := map[string]any{"matchLabels": map[string]any{"app": "qwen", names.LabelServing: names.Serving}}
	open := func(selector any) []map[string]any {
		return []map[string]any{{"selector": selector, "endpointPickerRef": map[string]any{"failureMode": "FailOpen"}}}
	}
	for sentence, c := range map[string]struct {
		api    gateway
		router v1alpha1.RouterName
		want   withdraw.Tri
		by     string
	}{
		"it fails open, and the mark keeps the replica out by now": {gateway{version: "v1", pools: open(selector)}, v1alpha1.LLMDRouter, withdraw.Yes, "InferencePool qwen-pool fails open"},
		"it fails open in the version before": {gateway{version: "v1alpha2", pools: []map[string]any{
			{"selector": map[string]any{"app": "qwen"}, "extensionRef": map[string]any{"failureMode": "FailOpen"}},
		}}, v1alpha1.LLMDRouter, withdraw.Yes, "InferencePool qwen-pool fails open"},
		"it fails open, and is of others": {gateway{version: "v1", pools: open(map[string]any{"matchLabels": map[string]any{"app": "llama"}})}, v1alpha1.LLMDRouter, withdraw.No, ""},
		"its selector cannot be read":     {gateway{version: "v1", pools: open("app=qwen")}, v1alpha1.LLMDRouter, withdraw.Yes, "fails open"},
		"it fails closed": {gateway{version: "v1", pools: []map[string]any{
			{"selector": selector, "endpointPickerRef": map[string]any{"failureMode": "FailClose"}},
		}}, v1alpha1.LLMDRouter, withdraw.No, ""},
		"it does not say how it fails":   {gateway{version: "v1", pools: []map[string]any{{"selector": selector}}}, v1alpha1.LLMDRouter, withdraw.No, ""},
		"there is no such API":           {gateway{version: "none"}, v1alpha1.LLMDRouter, withdraw.No, ""},
		"they may not be listed":         {gateway{fail: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))}, v1alpha1.LLMDRouter, withdraw.Unknown, "listing InferencePools"},
		"another router has no gateways": {gateway{version: "v1", pools: open(selector)}, v1alpha1.VLLMRouter, withdraw.No, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := &routers{live: &c.api, clock: clock.RealClock{}}
			b := router.Backend{Namespace: "team-a", Labels: map[string]string{"app": "qwen", names.LabelServing: names.Withdrawn}}
			all := r.bypasses(t.Context(), routerRef{name: c.router}, []router.Backend{b, b})
			require.Len(t, all, 2)
			assert.Equal(t, all[0], all[1])
			assert.Equal(t, c.want, all[0].is)
			assert.Contains(t, all[0].by, c.by)
		})
	}
}

func TestAPoolThatHasAMarkedReplicaStill(t *testing.T) {
	serving := map[string]any{"matchLabels": map[string]any{"app": "qwen", names.LabelServing: names.Serving}}
	for sentence, c := range map[string]struct {
		selector any
		label    string
		kept     string
	}{
		"its selector has the label":                          {serving, names.Withdrawn, ""},
		"its selector lacks it":                               {map[string]any{"matchLabels": map[string]any{"app": "qwen"}}, names.Withdrawn, "the selector of InferencePool qwen-pool"},
		"its selector lacks it, and the replica serves still": {map[string]any{"matchLabels": map[string]any{"app": "qwen"}}, names.Serving, ""},
		"it is of others":                                     {map[string]any{"matchLabels": map[string]any{"app": "llama"}}, names.Withdrawn, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := &routers{live: &gateway{version: "v1", pools: []map[string]any{{"selector": c.selector}}}, clock: clock.RealClock{}}
			b := router.Backend{Namespace: "team-a", UID: "a", Labels: map[string]string{"app": "qwen", names.LabelServing: c.label}}
			by := r.bypasses(t.Context(), routerRef{name: v1alpha1.LLMDRouter}, []router.Backend{b})[0]
			assert.Equal(t, withdraw.No, by.is)
			assert.Contains(t, by.kept, c.kept)
			m := heard{said: map[types.UID][]withdraw.Sighting{}}
			m.hear(&fleet{processes: []router.Process{{Process: withdraw.Process{UID: "p"}}}}, by, [][]withdraw.Sighting{{{Answered: true, Returns: withdraw.No}}}, 0)
			assert.Equal(t, c.kept != "", m.said["p"][0].Returns == withdraw.Yes, "whatever its picker says")
		})
	}
}

func TestWhatKeepsARouterFromBeingAsked(t *testing.T) {
	ref := routerRef{name: v1alpha1.VLLMRouter, port: 8000, secretOf: "team-a", secretName: "router-access"}
	for sentence, c := range map[string]struct {
		api  gateway
		want string
	}{
		"the Secret may not be read":       {gateway{fail: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))}, "may not get Secret router-access; bind a Role"},
		"there is no such Secret":          {gateway{fail: apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "router-access")}, `secrets "router-access" not found`},
		"its certificates are none":        {gateway{secret: map[string][]byte{"ca.crt": []byte("hunter2")}}, "ca.crt of Secret router-access has no certificate"},
		"it has a token, and nothing else": {gateway{secret: map[string][]byte{"token": []byte("hunter2")}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := &routers{live: &c.api, clock: clock.RealClock{}}
			family, asked, err := r.access(t.Context(), ref)
			if c.want == "" {
				require.NoError(t, err)
				assert.NotNil(t, family)
				assert.Equal(t, "hunter2", asked.Transport.(bearer).token)
				return
			}
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "hunter2")
		})
	}
	_, _, err := (&routers{}).access(t.Context(), routerRef{name: "another"})
	require.ErrorContains(t, err, "another is no router that this version can ask")
}

func TestACertificateIsCheckedAsTheSpecSays(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for sentence, c := range map[string]struct {
		ca  []byte
		ref routerRef
		err string
	}{
		"its authority is in the Secret, and it is for the address": {ca, routerRef{secretName: "access"}, ""},
		"and for the name that the spec has":                        {ca, routerRef{secretName: "access", serverName: "example.com"}, ""},
		"and not for it":                                            {ca, routerRef{secretName: "access", serverName: "router.example"}, "router.example"},
		"nobody knows its authority":                                {nil, routerRef{}, "unknown authority"},
		"nobody wants to know":                                      {nil, routerRef{skipVerify: true}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			c.ref.name, c.ref.secure = v1alpha1.SGLangGateway, true
			r := &routers{live: &gateway{secret: map[string][]byte{"ca.crt": c.ca}}, clock: clock.RealClock{}}
			_, asked, err := r.access(t.Context(), c.ref)
			require.NoError(t, err)
			response, err := asked.Get(server.URL)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
		})
	}
}
