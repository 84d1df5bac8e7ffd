package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"
)

// apiServer answers reads and patches of the objects of a file as an API server does, with
// discovery, label selectors and pages. It knows the kinds that the file has, and
// the kinds of Kubernetes itself. A document of the kind Forbidden lists resources
// that may not be read.
type apiServer struct {
	kinds     []schema.GroupVersionKind
	objects   []unstructured.Unstructured
	forbidden []string
	mu        sync.Mutex
}

// page is how many objects a list answers with at a time, so that every story reads
// several pages.
const page = 2

// serve serves the objects of this file until the end, and writes a kubeconfig whose
// namespace is team-a.
func serve(objects, kubeconfig string, atEnd func(func())) error {
	text, err := os.ReadFile(objects)
	if err != nil {
		return err
	}
	s := &apiServer{kinds: []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Namespace"},
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "apps", Version: "v1", Kind: "DaemonSet"},
	}}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return err
		}
		if o.GetKind() == "Forbidden" {
			s.forbidden, _, _ = unstructured.NestedStringSlice(o.Object, "resources")
			continue
		}
		s.objects = append(s.objects, o)
		if gvk := o.GroupVersionKind(); !slices.Contains(s.kinds, gvk) {
			s.kinds = append(s.kinds, gvk)
		}
	}
	server := httptest.NewServer(s)
	atEnd(server.Close)
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", Namespace: "team-a"}},
		CurrentContext: "c",
	}, kubeconfig)
}

func resourceOf(kind string) string { return strings.ToLower(kind) + "s" }

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != http.MethodGet && r.Method != http.MethodPatch {
		http.Error(w, "only reads and patches are expected", http.StatusMethodNotAllowed)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(parts) == 1:
		s.discover(w, parts[0])
		return
	case parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) > 2:
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	}
	if len(parts) == 0 {
		s.resources(w, gv)
		return
	}
	namespace := ""
	if len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	resource, name := parts[0], ""
	if len(parts) > 1 {
		name = parts[1]
	}
	kind := slices.IndexFunc(s.kinds, func(k schema.GroupVersionKind) bool {
		return k.GroupVersion() == gv && resourceOf(k.Kind) == resource
	})
	switch {
	case kind < 0:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case slices.Contains(s.forbidden, resource):
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, resource+` is forbidden: User "jane" cannot read it`)
	case r.Method == http.MethodPatch:
		s.patch(w, r, s.kinds[kind], namespace, name)
	case name != "":
		s.get(w, s.kinds[kind], namespace, name)
	default:
		s.list(w, r, s.kinds[kind], namespace)
	}
}

func (s *apiServer) discover(w http.ResponseWriter, root string) {
	if root == "api" {
		answer(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
		return
	}
	all := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		version := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		if k.Group != "" {
			all.Groups = append(all.Groups, metav1.APIGroup{Name: k.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
		}
	}
	answer(w, all)
}

func (s *apiServer) resources(w http.ResponseWriter, gv schema.GroupVersion) {
	all := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.GroupVersion() == gv {
			all.APIResources = append(all.APIResources, metav1.APIResource{Name: resourceOf(k.Kind), Kind: k.Kind, Namespaced: k.Kind != "Namespace", Verbs: []string{"get", "list"}})
		}
	}
	if len(all.APIResources) == 0 {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	answer(w, all)
}

func (s *apiServer) get(w http.ResponseWriter, kind schema.GroupVersionKind, namespace, name string) {
	for _, o := range s.objects {
		if o.GroupVersionKind() == kind && o.GetNamespace() == namespace && o.GetName() == name {
			answer(w, o.Object)
			return
		}
	}
	fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", resourceOf(kind.Kind), name))
}

// patch applies a patch as the API server does, and counts up the resource version:
// a patch that names another one is a conflict, one whose test fails is invalid.
func (s *apiServer) patch(w http.ResponseWriter, r *http.Request, kind schema.GroupVersionKind, namespace, name string) {
	i := slices.IndexFunc(s.objects, func(o unstructured.Unstructured) bool {
		return o.GroupVersionKind() == kind && o.GetNamespace() == namespace && o.GetName() == name
	})
	if i < 0 {
		s.get(w, kind, namespace, name)
		return
	}
	before := s.objects[i].GetResourceVersion()
	text, _ := json.Marshal(s.objects[i].Object)
	body, _ := io.ReadAll(r.Body)
	var err error
	if r.Header.Get("Content-Type") == string(types.JSONPatchType) {
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			text, err = patch.Apply(text)
		}
	} else {
		text, err = jsonpatch.MergePatch(text, body)
	}
	var changed unstructured.Unstructured
	if err == nil {
		err = json.Unmarshal(text, &changed.Object)
	}
	switch {
	case err != nil:
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
	case changed.GetResourceVersion() != before:
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
	default:
		version, _ := strconv.Atoi(before)
		changed.SetResourceVersion(strconv.Itoa(version + 1))
		s.objects[i] = changed
		answer(w, changed.Object)
	}
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, kind schema.GroupVersionKind, namespace string) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	items := []any{}
	for _, o := range s.objects {
		if o.GroupVersionKind() == kind && (namespace == "" || o.GetNamespace() == namespace) && selector.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o.Object)
		}
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to, next := min(from+page, len(items)), ""
	if to < len(items) {
		next = strconv.Itoa(to)
	}
	answer(w, map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind + "List",
		"metadata": map[string]any{"continue": next}, "items": items[from:to],
	})
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
