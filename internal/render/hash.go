package render

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/drain"
)

// Hash is the digest of a role's replicas, 16 hexadecimal digits: what Replica
// writes into names.AnnotationSpecHash, the same for every ordinal and member. It
// covers the Pods and, where they get one, how the drain hook behaves; the owner's
// UID is left out, so it survives a backup and restore.
func Hash(md *v1alpha1.ModelDeployment, role *v1alpha1.Role) string {
	// Workers differ from each other in their number alone.
	var pods []*corev1.Pod
	for index := range min(Size(role), 2) {
		pods = append(pods, member{md, role.DeepCopy(), 0, index}.pod())
	}
	hook := drain.HookVersion
	if TakenOver(role) {
		hook = ""
	}
	return digest([]any{pods, hook})
}

func digest(object any) string {
	text, err := json.Marshal(canonical(reflect.ValueOf(object)))
	if err != nil {
		panic(err) // maps, lists and scalars always encode
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// canonical is what an API object says, as maps, lists and scalars. Encoding the
// object itself would not do: what it writes for a field that is unset differs
// between versions of the API's Go types, and each replica of every deployment
// would be replaced by an upgrade of lastcall. A pointer to nothing but defaults
// is kept: an empty selector selects everything, an absent one nothing.
func canonical(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return canonical(v.Elem())
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = canonical(v.Index(i))
		}
		return list
	case reflect.Map:
		object := make(map[string]any, v.Len())
		for key, value := range v.Seq2() {
			object[key.String()] = canonical(value)
		}
		return object
	case reflect.Struct:
		if quantity, ok := v.Interface().(resource.Quantity); ok {
			return resource.NewDecimalQuantity(*quantity.AsDec(), resource.DecimalSI).String()
		}
		return fields(v)
	}
	return v.Interface()
}

// fields are those of a struct that are set, by their names in the API.
func fields(v reflect.Value) map[string]any {
	object := map[string]any{}
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if unset(value) {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name != "":
			object[name] = canonical(value)
		case field.Anonymous && value.Kind() == reflect.Struct:
			maps.Copy(object, fields(value))
		default: // intstr.IntOrString has no names for its parts
			object[field.Name] = canonical(value)
		}
	}
	return object
}

// unset reports whether a field says nothing.
func unset(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		for i := range v.NumField() {
			if !unset(v.Field(i)) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}
