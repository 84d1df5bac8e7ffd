package manifest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	jsonutil "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TypeErrors says which values of a JSON text do not fit the Go type of into, each
// with its path below this one, which may be nil. The decoder stops at the first,
// and names neither a list's index nor a map's key. It is empty where all of them
// fit.
func TypeErrors(text []byte, into any, path *field.Path) []error {
	t := typing{}
	t.decode(text, into, path)
	return t.wrong
}

// UnknownFields says which fields of a JSON text the Go type of into does not have,
// each with its path below this one and the field that may be meant.
func UnknownFields(text []byte, into any, path *field.Path) []error {
	t := typing{}
	t.decode(text, into, path)
	return t.unknown
}

// typing compares a parsed value with a Go type.
type typing struct {
	wrong, unknown []error
}

func (t *typing) decode(text []byte, into any, path *field.Path) {
	var value any
	if err := jsonutil.Unmarshal(text, &value); err != nil {
		t.wrong = append(t.wrong, err)
		return
	}
	t.compare(value, reflect.TypeOf(into), path)
}

func (t *typing) compare(value any, want reflect.Type, path *field.Path) {
	for want.Kind() == reflect.Pointer {
		want = want.Elem()
	}
	if value == nil { // null is the zero value of every type
		return
	}
	if decodesItself(want) {
		if text := encode(value); json.Unmarshal(text, reflect.New(want).Interface()) != nil {
			t.refuse(value, want, path)
		}
		return
	}
	switch want.Kind() {
	case reflect.Struct:
		if fields, ok := value.(map[string]any); ok {
			t.compareFields(fields, want, path)
			return
		}
	case reflect.Map:
		if fields, ok := value.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(fields)) {
				t.compare(fields[key], want.Elem(), path.Key(key))
			}
			return
		}
	case reflect.Slice:
		if items, ok := value.([]any); ok {
			for i, item := range items {
				t.compare(item, want.Elem(), path.Index(i))
			}
			return
		}
	default:
		if fits(value, want) {
			return
		}
	}
	t.refuse(value, want, path)
}

func (t *typing) compareFields(fields map[string]any, want reflect.Type, path *field.Path) {
	known := fieldsOf(want)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if wanted, ok := known[name]; ok {
			t.compare(fields[name], wanted, path.Child(name))
			continue
		}
		err := fmt.Errorf("%s: there is no such field", path.Child(name))
		if meant := nearest(name, slices.Sorted(maps.Keys(known))); meant != "" {
			err = fmt.Errorf("%w; did you mean %q?", err, meant)
		}
		t.unknown = append(t.unknown, err)
	}
}

func (t *typing) refuse(value any, want reflect.Type, path *field.Path) {
	message := fmt.Sprintf("must be %s, not %s", describeType(want, value), describeValue(value))
	if hint := wayOut(value, want); hint != "" {
		message += ": " + hint
	}
	if path != nil {
		message = path.String() + ": " + message
	}
	t.wrong = append(t.wrong, fmt.Errorf("%s", message))
}

// fieldsOf returns the types of a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			maps.Copy(fields, fieldsOf(f.Type))
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

// decodesItself reports whether the type has a form of its own in JSON, such as a
// quantity or a time.
func decodesItself(t reflect.Type) bool {
	pointer := reflect.PointerTo(t)
	return pointer.Implements(reflect.TypeFor[json.Unmarshaler]()) || pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fits reports whether a scalar or list can be decoded into a type that is no
// struct, map or list.
func fits(value any, want reflect.Type) bool {
	switch want.Kind() {
	case reflect.Interface:
		return true
	case reflect.String:
		_, ok := value.(string)
		return ok
	case reflect.Bool:
		_, ok := value.(bool)
		return ok
	case reflect.Float32, reflect.Float64:
		_, isFloat := value.(float64)
		_, isInt := value.(int64)
		return isFloat || isInt
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		whole, ok := value.(int64)
		return ok && !reflect.Zero(want).OverflowInt(whole)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		whole, ok := value.(int64)
		return ok && whole >= 0 && !reflect.Zero(want).OverflowUint(uint64(whole))
	}
	return false
}

// describeType says what this value would have to be.
func describeType(t reflect.Type, value any) string {
	switch t.Name() {
	case "Quantity":
		return `a quantity such as 500m or "16Gi"`
	case "IntOrString":
		return "a whole number or a string"
	case "Time", "MicroTime":
		return "a time such as 2026-01-31T12:00:00Z"
	case "Duration":
		return "a duration such as 90s"
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			return "a list of strings"
		}
		return "a list"
	}
	if _, isWhole := value.(int64); isWhole {
		return "a whole number" + bounds(t.Kind())
	}
	return "a whole number"
}

// bounds are the least and the largest number of a type, where a manifest's whole
// number can be outside.
func bounds(k reflect.Kind) string {
	switch k {
	case reflect.Int32:
		return fmt.Sprintf(" from %d to %d", math.MinInt32, math.MaxInt32)
	case reflect.Uint32:
		return fmt.Sprintf(" from 0 to %d", uint32(math.MaxUint32))
	}
	return ""
}

// longestValue is how much of a string an error shows, in bytes.
const longestValue = 60

func describeValue(value any) string {
	switch value := value.(type) {
	case string:
		if len(value) > longestValue {
			value = strings.ToValidUTF8(value[:longestValue], "") + "…"
		}
		return "the string " + strconv.Quote(value)
	case bool:
		return "the boolean " + strconv.FormatBool(value)
	case []any:
		return "a list"
	case map[string]any:
		return "a mapping"
	}
	return "the number " + string(encode(value))
}

// wayOut says how to write what was probably meant; empty where that is not known.
func wayOut(value any, want reflect.Type) string {
	text, isString := value.(string)
	_, isList := value.([]any)
	_, isMapping := value.(map[string]any)
	switch isScalar := !isList && !isMapping; {
	case isString && actions.MatchString(text):
		return "this is a Helm template: run helm template first"
	case want.Kind() == reflect.String && isScalar:
		return "quote it"
	case want.Kind() == reflect.Slice && want.Elem().Kind() == reflect.String && isString && len(text) <= longestValue:
		return "write [" + strconv.Quote(text) + "]"
	case want.Kind() == reflect.Slice && isMapping:
		return `begin each item with "- "`
	case isString && isScalarKind(want.Kind()):
		var unquoted any
		if json.Unmarshal([]byte(text), &unquoted) == nil && jsonutil.Unmarshal([]byte(text), &unquoted) == nil && fits(unquoted, want) {
			return "take the quotes off"
		}
	}
	return ""
}

func isScalarKind(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Float64 }
