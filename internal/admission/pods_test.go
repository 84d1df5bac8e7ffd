package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

func TestAnEnginePodIsPatchedAsTheAPIServerWould(t *testing.T) {
	raw := enginePod(t)
	response := podHandler{newAdmissions()}.Handle(t.Context(), create(raw))
	require.True(t, response.Allowed)
	require.Equal(t, admissionv1.PatchTypeJSONPatch, *response.PatchType)
	require.Empty(t, response.Warnings)

	patch, err := jsonpatch.DecodePatch(response.Patch)
	require.NoError(t, err)
	patched, err := patch.Apply(raw)
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal(patched, &pod))
	require.True(t, drain.IsHook(pod.Spec.Containers[0].Lifecycle.PreStop.Exec.Command))
	require.Contains(t, pod.Annotations[names.AnnotationStatus], `"outcome":"injected"`)

	again := podHandler{newAdmissions()}.Handle(t.Context(), create(patched))
	require.True(t, again.Allowed)
	require.Nil(t, again.Patch, "a reinvocation finds nothing to change")
	require.Nil(t, again.PatchType)
}

// What the hook reads with is in the Pod already; a key in it stays where it is.
func TestNoSecretIsCopiedIntoThePatch(t *testing.T) {
	raw := []byte(`{"metadata":{"name":"a"},"spec":{"containers":[{"name":"engine","image":"vllm/vllm-openai",
		"args":["--model","/m","--api-key","sk-secret"],"env":[{"name":"VLLM_API_KEY","value":"sk-secret"}]}]}}`)
	response := podHandler{newAdmissions()}.Handle(t.Context(), create(raw))
	require.NotEmpty(t, response.Patch)
	answer, err := json.Marshal(response)
	require.NoError(t, err)
	require.NotContains(t, string(answer), "sk-secret")
}

func TestWhatIsNoCreationOfAPodPassesUntouched(t *testing.T) {
	change := map[string]func(*admission.Request){
		"an update of a Pod from before lastcall": func(r *admission.Request) { r.Operation = admissionv1.Update },
		"a delete": func(r *admission.Request) {
			r.Operation, r.OldObject, r.Object = admissionv1.Delete, r.Object, runtime.RawExtension{}
		},
		"an exec":                           func(r *admission.Request) { r.Operation, r.SubResource = admissionv1.Connect, "exec" },
		"an eviction":                       func(r *admission.Request) { r.SubResource = "eviction" },
		"a Deployment, whatever its labels": func(r *admission.Request) { r.Resource.Group, r.Resource.Resource = "apps", "deployments" },
	}
	for name, change := range change {
		t.Run(name, func(t *testing.T) {
			req := create([]byte(`{"metadata":{"name":"a","annotations":{"lastcall.dev/grace-seconds":"5"}},"spec":{"containers":[{"name":"engine","command":["vllm","serve","/m"]}]}}`))
			change(&req)
			admissions := newAdmissions()
			response := podHandler{admissions}.Handle(t.Context(), req)
			require.True(t, response.Allowed)
			require.Nil(t, response.Patch)
			require.Empty(t, response.Warnings)
			require.Zero(t, total(t, admissions))
		})
	}
}

func TestARefusalNamesTheField(t *testing.T) {
	req := create([]byte(`{"metadata":{"generateName":"qwen-","annotations":{"lastcall.dev/grace-seconds":"5"}},"spec":{"containers":[{"name":"engine","command":["vllm","serve","/m"]}]}}`))
	response := podHandler{newAdmissions()}.Handle(t.Context(), req)
	require.False(t, response.Allowed)
	require.Nil(t, response.Patch)
	require.EqualValues(t, http.StatusUnprocessableEntity, response.Result.Code)
	require.Equal(t, metav1.StatusReasonInvalid, response.Result.Reason)
	require.Contains(t, response.Result.Message, `Pod "qwen-" is invalid: metadata.annotations[lastcall.dev/grace-seconds]: Invalid value: "5": must be 15 to 3600 seconds`)
	require.Len(t, response.Result.Details.Causes, 1)
	require.Equal(t, "metadata.annotations[lastcall.dev/grace-seconds]", response.Result.Details.Causes[0].Field)
}

func TestWhatIsNoPodIsABadRequest(t *testing.T) {
	for name, raw := range map[string]string{
		"nothing":                   ``,
		"half a Pod":                `{"metadata":{"name":`,
		"a list":                    `[]`,
		"a number for a name":       `{"metadata":{"name":5}}`,
		"a Pod and something after": `{"metadata":{}} {}`,
	} {
		t.Run(name, func(t *testing.T) {
			admissions := newAdmissions()
			response := podHandler{admissions}.Handle(t.Context(), create([]byte(raw)))
			require.False(t, response.Allowed)
			require.EqualValues(t, http.StatusBadRequest, response.Result.Code)
			require.Contains(t, response.Result.Message, "reading the Pod: ")
			require.EqualValues(t, 1, testutil.ToFloat64(admissions.WithLabelValues(names.OutcomeRefused, names.ReasonMalformedPod)))
		})
	}
}

func TestADryRunIsAnsweredAlikeAndNotCounted(t *testing.T) {
	admissions := newAdmissions()
	req := create(enginePod(t))
	answer := podHandler{admissions}.Handle(t.Context(), req)
	require.EqualValues(t, 1, total(t, admissions))
	req.DryRun = new(true)
	require.Equal(t, answer, podHandler{admissions}.Handle(t.Context(), req))
	require.EqualValues(t, 1, total(t, admissions))
}

func TestEveryAnswerIsCountedUnderAPairThatIsThereFromTheStart(t *testing.T) {
	files, err := filepath.Glob("../mutate/testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	admissions := newAdmissions()
	pairs := testutil.CollectAndCount(admissions)
	for _, file := range files {
		podHandler{admissions}.Handle(t.Context(), create(firstDocument(t, file)))
	}
	require.EqualValues(t, len(files), total(t, admissions))
	require.Equal(t, pairs, testutil.CollectAndCount(admissions))
	problems, err := testutil.CollectAndLint(admissions)
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestRegisterServesBothPaths(t *testing.T) {
	server := &fakeServer{}
	registry := prometheus.NewRegistry()
	require.NoError(t, Register(server, newScheme(t), registry))

	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  new(create(enginePod(t)).AdmissionRequest),
	})
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathPods, bytes.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	server.mux.ServeHTTP(recorder, request)

	var answer admissionv1.AdmissionReview
	require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), &answer))
	require.True(t, answer.Response.Allowed)
	require.NotEmpty(t, answer.Response.Patch)
	require.Equal(t, "7f0e", string(answer.Response.UID))
	_, pattern := server.mux.Handler(httptest.NewRequestWithContext(t.Context(), http.MethodPost, PathModelDeployments, nil))
	require.Equal(t, PathModelDeployments, pattern)
	require.Error(t, Register(server, newScheme(t), registry), "metrics that are registered already are an error, not a panic")
}

// An answer of "not allowed" would be a denial even under failurePolicy Ignore.
func TestAPanicLeavesTheDecisionToTheFailurePolicy(t *testing.T) {
	server := &fakeServer{}
	require.NoError(t, Register(server, newScheme(t), prometheus.NewRegistry()))
	for _, path := range []string{PathPods, PathModelDeployments} {
		t.Run(path, func(t *testing.T) {
			handler, _ := server.mux.Handler(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
			handler.(*admission.Webhook).Handler = admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
				panic("a bug")
			})
			served := httptest.NewUnstartedServer(&server.mux)
			served.Config.ErrorLog = log.New(io.Discard, "", 0)
			served.Start()
			defer served.Close()

			review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1"}}`
			response, err := served.Client().Post(served.URL+path, "application/json", strings.NewReader(review))
			if err == nil {
				response.Body.Close() //nolint:errcheck // there should be none
			}
			require.ErrorIs(t, err, io.EOF)
		})
	}
	require.Panics(t, func() { patched(mutate.Result{Patch: []mutate.Operation{{Value: func() {}}}}) }, "a patch that cannot be written")
}

// FuzzPodHandler sends what no API server would: the handler answers, and what it
// allows can be applied, once.
func FuzzPodHandler(f *testing.F) {
	files, err := filepath.Glob("../mutate/testdata/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		f.Add(firstDocument(f, file))
	}
	for _, hostile := range []string{
		`null`, `{}`, `{"spec":null}`, `{"spec":{"containers":null}}`, `{"spec":{"containers":[{}]}}`,
		`{"metadata":{"annotations":{"lastcall.dev/engine":"vllm"}},"spec":{"containers":[{},{}]}}`,
		`{"metadata":{"annotations":{"lastcall.dev/container":""}},"spec":{"containers":[{"name":""}]}}`,
		`{"spec":{"containers":[{"command":["sh","-c","vllm serve $(A) \"$A '"],"env":[{"name":"A","value":"$(A)"}]}]}}`,
		`{"spec":{"containers":[{"command":["vllm","serve"],"args":["--port"],"lifecycle":{}}]}}`,
		`{"spec":{"terminationGracePeriodSeconds":-9223372036854775808,"containers":[{"command":["vllm","serve"]}]}}`,
		`{"spec":{"containers":[{"lifecycle":{"preStop":{"exec":{"command":["lastcall.dev/drain-hook:9"]}}}}]}}`,
		strings.Repeat(`{"a":`, 1000),
	} {
		f.Add([]byte(hostile))
	}
	handler := podHandler{newAdmissions()}
	f.Fuzz(func(t *testing.T, raw []byte) {
		response := handler.Handle(t.Context(), create(raw))
		if !response.Allowed {
			require.NotEmpty(t, response.Result.Message)
			return
		}
		var pod corev1.Pod
		require.NoError(t, json.Unmarshal(raw, &pod))
		if response.Patch == nil {
			return
		}
		patch, err := jsonpatch.DecodePatch(response.Patch)
		require.NoError(t, err)
		// The API server sends what it has typed itself: every parent is there.
		typed, err := json.Marshal(pod)
		require.NoError(t, err)
		patched, err := patch.Apply(typed)
		require.NoError(t, err, "%s", response.Patch)
		require.Nil(t, handler.Handle(t.Context(), create(patched)).Patch, "a second time")
	})
}

// create is a request to create this object as a Pod.
func create(raw []byte) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID:       "7f0e",
		Operation: admissionv1.Create,
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: "chat",
		Object:    runtime.RawExtension{Raw: raw},
	}}
}

// enginePod is a Pod of a ReplicaSet as the API server sends it, 12 KB.
func enginePod(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/engine-pod.json")
	require.NoError(t, err)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, text))
	return compact.Bytes()
}

func total(t *testing.T, admissions *prometheus.CounterVec) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(admissions))
	families, err := registry.Gather()
	require.NoError(t, err)
	var sum float64
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			sum += metric.GetCounter().GetValue()
		}
	}
	return sum
}
