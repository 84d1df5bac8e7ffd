package mutate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

var update = flag.Bool("update", false, "rewrite what is expected in testdata; read the diff before you commit it")

// answer is the second document of a case: what admission says to the first.
type answer struct {
	Patch    []mutate.Operation `json:"patch,omitempty"`
	Warnings []string           `json:"warnings,omitempty"`
	Errors   []string           `json:"errors,omitempty"`
}

// Each file of testdata is a case: a Pod, or a PodTemplate, and after "---" the
// answer. Write the first part and run with -update.
func TestCases(t *testing.T) {
	for name, text := range cases(t) {
		t.Run(name, func(t *testing.T) {
			given, want, _ := bytes.Cut(text, []byte("---\n"))
			_, result, errs := decide(t, toJSON(t, given))
			got, err := yaml.Marshal(shown(result, errs))
			require.NoError(t, err)
			if *update {
				text = bytes.Join([][]byte{given, got}, []byte("---\n"))
				require.NoError(t, os.WriteFile(filepath.Join("testdata", name+".yaml"), text, 0o644))
				return
			}
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestASecondAdmissionChangesNothing(t *testing.T) {
	for name, text := range cases(t) {
		t.Run(name, func(t *testing.T) {
			object, first, errs := decide(t, toJSON(t, text))
			if len(errs) > 0 {
				require.Empty(t, first.Patch, "a refused Pod is not patched")
				return
			}
			_, second, errs := decide(t, apply(t, object, first.Patch))
			require.Empty(t, errs)
			require.Empty(t, second.Patch)
			require.Equal(t, first.Record, second.Record)
			require.Equal(t, first.Warnings, second.Warnings)
		})
	}
}

// Later versions of Kubernetes have fields these Go types do not know.
func TestOnlyGraceHookAndRecordChange(t *testing.T) {
	for name, text := range cases(t) {
		t.Run(name, func(t *testing.T) {
			object := withUnknownFields(t, toJSON(t, text))
			root, result, _ := decide(t, object)
			require.Equal(t, withoutOurs(t, root), withoutOurs(t, apply(t, root, result.Patch)))
		})
	}
}

// The API server cuts warnings where those of one request have over 4096
// characters together.
func TestWarningsAreShortLines(t *testing.T) {
	for name, text := range cases(t) {
		_, result, _ := decide(t, toJSON(t, text))
		for _, w := range result.Warnings {
			require.True(t, strings.HasPrefix(w, "lastcall: "), "%s: %s", name, w)
			require.NotContains(t, w, "\n", name)
		}
		require.LessOrEqual(t, len(strings.Join(result.Warnings, "")), 1024, name)
	}
}

// decide returns the JSON of the Pod or of the template, and what becomes of it.
func decide(t *testing.T, object []byte) ([]byte, mutate.Result, field.ErrorList) {
	t.Helper()
	var of struct {
		Kind     string          `json:"kind"`
		Template json.RawMessage `json:"template"`
	}
	require.NoError(t, json.Unmarshal(object, &of))
	if of.Kind == "PodTemplate" {
		object = of.Template
	}
	if of.Kind == "Pod" {
		var pod corev1.Pod
		require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(object, &pod))
		before := pod.DeepCopy()
		result, errs := mutate.Pod(&pod)
		require.Equal(t, before, &pod, "the Pod that was given is not to be changed")
		return object, result, errs
	}
	var template corev1.PodTemplateSpec
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(object, &template))
	result, errs := mutate.Template(&template, field.NewPath("template"))
	return object, result, errs
}

// apply applies a patch as the API server does.
func apply(t *testing.T, object []byte, operations []mutate.Operation) []byte {
	t.Helper()
	if len(operations) == 0 {
		return object
	}
	text, err := json.Marshal(operations)
	require.NoError(t, err)
	patch, err := jsonpatch.DecodePatch(text)
	require.NoError(t, err)
	patched, err := patch.Apply(object)
	require.NoError(t, err, "%s", text)
	return patched
}

// shown is the answer with hooks put short.
func shown(result mutate.Result, errs field.ErrorList) answer {
	a := answer{Patch: result.Patch, Warnings: result.Warnings}
	for _, err := range errs {
		a.Errors = append(a.Errors, err.Error())
	}
	for i, op := range a.Patch {
		switch value := op.Value.(type) {
		case corev1.Lifecycle:
			value.PreStop.Exec.Command = summary(value.PreStop.Exec.Command)
		case *corev1.LifecycleHandler:
			value.Exec.Command = summary(value.Exec.Command)
		case []string:
			a.Patch[i].Value = summary(value)
		}
	}
	return a
}

var constants = regexp.MustCompile(`(?m)^(?:SCHEME|HOSTS|PORT|PATH|LAST) = (.*)$|^GAUGES = \[\["(\w+):`)

// summary shows of a hook what is rendered for the Pod: engine, listener, and the
// second of the last read.
func summary(command []string) []string {
	if !drain.IsHook(command) {
		return []string{"not the drain hook"}
	}
	var values []string
	for _, match := range constants.FindAllStringSubmatch(command[len(command)-1], -1) {
		values = append(values, match[1]+match[2])
	}
	return []string{command[0], fmt.Sprintf("<drain hook: %s>", strings.Join(values, " "))}
}

func cases(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	found := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found[strings.TrimSuffix(filepath.Base(file), ".yaml")] = text
	}
	return found
}

func toJSON(t *testing.T, text []byte) []byte {
	t.Helper()
	given, _, _ := bytes.Cut(text, []byte("---\n"))
	object, err := yaml.YAMLToJSON(given)
	require.NoError(t, err)
	return object
}

// withUnknownFields adds a field of the future to every object of the document.
func withUnknownFields(t *testing.T, object []byte) []byte {
	t.Helper()
	var add func(any)
	add = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for key, child := range node {
				if key != "labels" && key != "annotations" {
					add(child)
				}
			}
			node["futureField"] = map[string]any{"kept": true}
		case []any:
			for _, child := range node {
				add(child)
			}
		}
	}
	return edit(t, object, func(root map[string]any) { add(root) })
}

// withoutOurs takes out what admission may change.
func withoutOurs(t *testing.T, object []byte) string {
	t.Helper()
	return string(edit(t, object, func(root map[string]any) {
		metadata, _ := root["metadata"].(map[string]any)
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, "lastcall.dev/status")
		}
		prune(metadata, "annotations")
		prune(root, "metadata")
		spec := root["spec"].(map[string]any)
		delete(spec, "terminationGracePeriodSeconds")
		for _, list := range []string{"initContainers", "containers"} {
			containers, _ := spec[list].([]any)
			for _, c := range containers {
				if lifecycle, ok := c.(map[string]any)["lifecycle"].(map[string]any); ok {
					if text, _ := json.Marshal(lifecycle["preStop"]); bytes.Contains(text, []byte("lastcall.dev/drain-hook:")) && !bytes.Contains(text, []byte(`"sleep"`)) {
						delete(lifecycle, "preStop")
					}
					prune(lifecycle, "preStop")
				}
				prune(c.(map[string]any), "lifecycle")
			}
		}
	}))
}

// prune drops a field that is null or an empty object.
func prune(object map[string]any, key string) {
	if value, _ := object[key].(map[string]any); len(value) == 0 {
		delete(object, key)
	}
}

func edit(t *testing.T, object []byte, change func(map[string]any)) []byte {
	t.Helper()
	var root map[string]any
	require.NoError(t, json.Unmarshal(object, &root))
	change(root)
	edited, err := json.Marshal(root)
	require.NoError(t, err)
	return edited
}
