package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
)

// Object is one Kubernetes object of a document: the document itself, or an item
// of a List.
type Object struct {
	// Name is generateName where the object has no name yet.
	APIVersion, Kind, Namespace, Name string
	// JSON is the whole object.
	JSON []byte
	// Pods are the Pod that the object is, or the Pod templates that it has, in
	// the order of their paths.
	Pods []Pod
}

// Pod is a Pod or a Pod template.
type Pod struct {
	// At is where it is in the document, one key or index a step.
	At []string
	// Path is where it is in its object; nil for an object that is a Pod.
	Path *field.Path
	// JSON is the Pod, or the template with its metadata and spec.
	JSON []byte
}

// Objects returns the objects of the document: none where it is empty.
func (d Document) Objects() ([]Object, error) {
	value, err := d.value()
	if err != nil || value == nil {
		return nil, err
	}
	root, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("document %d: line %d: not a Kubernetes object: it has no fields", d.Number, d.Line)
	}
	var objects []Object
	kind, _ := root["kind"].(string)
	items, isList := root["items"].([]any)
	if !isList || !strings.HasSuffix(kind, "List") {
		objects = append(objects, newObject(root, "", nil))
	} else {
		for i, item := range items {
			if fields, ok := item.(map[string]any); ok {
				objects = append(objects, newObject(fields, strings.TrimSuffix(kind, "List"), []string{"items", strconv.Itoa(i)}))
			}
		}
	}
	if slices.ContainsFunc(objects, func(o Object) bool { return len(o.Pods) > 0 || o.IsOurs() }) {
		err = d.duplicates()
	}
	return objects, err
}

// IsOurs reports whether the object is of lastcall's API group.
func (o Object) IsOurs() bool { return strings.HasPrefix(o.APIVersion, names.Group+"/") }

// isBuiltIn reports whether Kubernetes itself says what the object's templates are.
func (o *Object) isBuiltIn() bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return group == "v1" || group == "apps" || group == "batch"
}

// newObject describes the object at this place of its document. The kind is the
// one a typed List gives to items that name none.
func newObject(root map[string]any, kind string, at []string) Object {
	text := func(fields map[string]any, key string) string {
		s, _ := fields[key].(string)
		return s
	}
	metadata, _ := root["metadata"].(map[string]any)
	o := Object{
		APIVersion: text(root, "apiVersion"),
		Kind:       text(root, "kind"),
		Namespace:  text(metadata, "namespace"),
		Name:       text(metadata, "name"),
		JSON:       encode(root),
	}
	if o.Kind == "" {
		o.Kind = kind
	}
	if o.Name == "" {
		o.Name = text(metadata, "generateName")
	}
	switch {
	case o.Kind == "Pod" && (o.APIVersion == "v1" || o.APIVersion == ""):
		o.Pods = []Pod{{At: at, JSON: o.JSON}}
	case strings.HasPrefix(o.APIVersion, "serving.knative.dev/"):
	default:
		for _, key := range slices.Sorted(maps.Keys(root)) {
			if key != "status" {
				o.addTemplates(root[key], key, append(slices.Clone(at), key), field.NewPath(key))
			}
		}
	}
	return o
}

// addTemplates adds the Pod templates in the value of this key.
func (o *Object) addTemplates(value any, key string, at []string, path *field.Path) {
	switch value := value.(type) {
	case map[string]any:
		if o.isTemplate(key, value) {
			o.Pods = append(o.Pods, Pod{At: at, Path: path, JSON: encode(value)})
			return
		}
		for _, k := range slices.Sorted(maps.Keys(value)) {
			o.addTemplates(value[k], k, append(slices.Clone(at), k), path.Child(k))
		}
	case []any:
		for i, item := range value {
			o.addTemplates(item, "", append(slices.Clone(at), strconv.Itoa(i)), path.Index(i))
		}
	}
}

func (o *Object) isTemplate(key string, value map[string]any) bool {
	if key != "template" && !strings.HasSuffix(key, "Template") {
		return false
	}
	spec, _ := value["spec"].(map[string]any)
	switch containers := spec["containers"].(type) {
	case nil:
		return false
	case []any:
		return len(containers) > 0
	}
	return o.isBuiltIn() // what is no list is an error, where it has to be one
}

// encode returns a parsed value as JSON.
func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it was parsed from JSON
	}
	return text
}
