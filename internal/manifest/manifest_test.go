package manifest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	jsonutil "k8s.io/apimachinery/pkg/util/json"

	"github.com/lastcall-dev/lastcall/internal/mutate"
)

var update = flag.Bool("update", false, "write the expected files anew; read the difference before you commit it")

// program is shaped as the hook is: lines, an empty one, quotes.
const program = "import os\n\nprint('a: \"b\"')  # <c>\n"

// TestApply edits every Pod of testdata/*.txtar: "in" is the stream, "out" the
// stream after the edits.
func TestApply(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(path)
			require.NoError(t, err)
			out := apply(t, archive.Files[0].Data)
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "out", Data: out})
				require.NoError(t, os.WriteFile(path, txtar.Format(archive), 0o600))
			}
			require.Equal(t, string(archive.Files[1].Data), string(out))
			require.Equal(t, string(out), string(apply(t, out)), "the second time changes something")
		})
	}
}

// apply gives every Pod of a stream what admission gives, and checks that each
// document then has the patched value.
func apply(t *testing.T, stream []byte) []byte {
	t.Helper()
	documents, err := Split(stream)
	require.NoError(t, err)
	var out []byte
	for _, d := range documents {
		text, err := d.Apply(edits(t, d))
		require.NoError(t, err)
		out = append(out, text...)
	}
	return out
}

// edits are the shapes of edit that internal/mutate makes.
func edits(t *testing.T, d Document) []Edit {
	t.Helper()
	objects, err := d.Objects()
	require.NoError(t, err)
	var all []Edit
	for _, o := range objects {
		for _, p := range o.Pods {
			var pod corev1.PodTemplateSpec
			require.NoError(t, jsonutil.Unmarshal(p.JSON, &pod))
			all = append(all, Edit{At: p.At, Patch: operations(&pod, p.JSON)})
		}
	}
	return all
}

func operations(pod *corev1.PodTemplateSpec, text []byte) []mutate.Operation {
	var ops []mutate.Operation
	add := func(path string, value any) { ops = append(ops, mutate.Operation{Op: "add", Path: path, Value: value}) }

	if grace := pod.Spec.TerminationGracePeriodSeconds; grace == nil || *grace != 60 {
		add("/spec/terminationGracePeriodSeconds", 60)
	}
	command := []string{"python3", "-c", program}
	handler := corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
	if len(pod.Spec.Containers) > 0 {
		switch c := pod.Spec.Containers[0]; {
		case c.Lifecycle == nil:
			add("/spec/containers/0/lifecycle", corev1.Lifecycle{PreStop: &handler})
		case c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil:
			add("/spec/containers/0/lifecycle/preStop", handler)
		case len(c.Lifecycle.PreStop.Exec.Command) != 3:
			add("/spec/containers/0/lifecycle/preStop/exec/command", command)
		}
	}
	if len(pod.Spec.Containers) > 1 {
		if c := pod.Spec.Containers[1]; c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
			ops = append(ops, mutate.Operation{Op: "remove", Path: "/spec/containers/1/lifecycle/preStop"})
		}
	}
	const status = `{"outcome":"injected"}`
	switch {
	case !bytes.Contains(text, []byte(`"metadata":{`)):
		add("/metadata", map[string]any{"annotations": map[string]string{"lastcall.dev/status": status}})
	case pod.Annotations == nil:
		add("/metadata/annotations", map[string]string{"lastcall.dev/status": status})
	case pod.Annotations["lastcall.dev/status"] != status:
		add("/metadata/annotations/lastcall.dev~1status", status)
	}
	return ops
}

func TestStreamsAreCutAtTheirSeparators(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []string
		lines  []int
	}{
		"an empty stream has no document":         {"", nil, nil},
		"one document":                            {"a: 1\n", []string{"a: 1\n"}, []int{1}},
		"two documents":                           {"a: 1\n---\nb: 1", []string{"a: 1\n", "---\nb: 1"}, []int{1, 2}},
		"a comment before the first separator":    {"# c\n---\na: 1\n", []string{"# c\n---\na: 1\n"}, []int{1}},
		"an empty document":                       {"---\n---\na: 1\n", []string{"---\n", "---\na: 1\n"}, []int{1, 2}},
		"content behind the separator":            {"--- {a: 1}\n--- # c\nb: 1\n", []string{"--- {a: 1}\n", "--- # c\nb: 1\n"}, []int{1, 2}},
		"a document that is ended":                {"a: 1\n...\nb: 1\n", []string{"a: 1\n...\n", "b: 1\n"}, []int{1, 3}},
		"a directive":                             {"a: 1\n...\n%YAML 1.1\n---\nb: 1\n", []string{"a: 1\n...\n", "%YAML 1.1\n---\nb: 1\n"}, []int{1, 3}},
		"lines that end in CR LF":                 {"a: 1\r\n---\r\nb: 1\r\n", []string{"a: 1\r\n", "---\r\nb: 1\r\n"}, []int{1, 2}},
		"a byte order mark":                       {"\ufeff---\na: 1\n", []string{"\ufeff---\na: 1\n"}, []int{1}},
		"dashes in a block scalar are indented":   {"a: |\n  ---\n  b\n", []string{"a: |\n  ---\n  b\n"}, []int{1}},
		"more than three dashes are no separator": {"a: 1\n----\nb: 1\n", []string{"a: 1\n----\nb: 1\n"}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := Split([]byte(c.stream))
			require.NoError(t, err)
			var texts []string
			var lines []int
			for i, d := range documents {
				texts, lines = append(texts, string(d.Text)), append(lines, d.Line)
				require.Equal(t, i+1, d.Number)
			}
			require.Equal(t, c.want, texts)
			require.Equal(t, c.lines, lines)
		})
	}
}

func TestPodsAreFound(t *testing.T) {
	const spec = "{spec: {containers: [{name: main}]}}"
	for name, c := range map[string]struct {
		document string
		want     []string // path in the object
	}{
		"a Pod":                         {"{apiVersion: v1, kind: Pod, spec: {containers: [{name: main}]}}", []string{""}},
		"a Deployment":                  {"{kind: Deployment, spec: {template: " + spec + "}}", []string{"spec.template"}},
		"a CronJob":                     {"{kind: CronJob, spec: {jobTemplate: {spec: {template: " + spec + "}}}}", []string{"spec.jobTemplate.spec.template"}},
		"a PodTemplate":                 {"{kind: PodTemplate, template: " + spec + "}", []string{"template"}},
		"a LeaderWorkerSet":             {"{kind: LeaderWorkerSet, spec: {leaderWorkerTemplate: {leaderTemplate: " + spec + ", workerTemplate: " + spec + "}}}", []string{"spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"}},
		"a RayCluster":                  {"{kind: RayCluster, spec: {headGroupSpec: {template: " + spec + "}, workerGroupSpecs: [{template: " + spec + "}]}}", []string{"spec.headGroupSpec.template", "spec.workerGroupSpecs[0].template"}},
		"a List":                        {"{kind: List, items: [{kind: Service}, {apiVersion: v1, kind: Pod, spec: {}}, {kind: Job, spec: {template: " + spec + "}}]}", []string{"", "spec.template"}},
		"a PodList without kinds":       {"{kind: PodList, items: [{spec: {containers: [{name: main}]}}]}", []string{""}},
		"no template in a status":       {"{kind: X, status: {template: " + spec + "}}", nil},
		"no template without one":       {"{kind: X, spec: {template: {spec: {containers: []}}, other: " + spec + "}}", nil},
		"a Deployment without a list":   {"{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: {name: main}}}}}", []string{"spec.template"}},
		"no list, and a kind of others": {"{apiVersion: a.b/v1, kind: X, spec: {template: {spec: {containers: {name: main}}}}}", nil},
		"no kind of Pod of others":      {"{apiVersion: metrics.k8s.io/v1, kind: Pod, spec: {}}", nil},
		"no Knative Service":            {"{apiVersion: serving.knative.dev/v1, kind: Service, spec: {template: " + spec + "}}", nil},
		"a schema is no template":       {"{kind: CustomResourceDefinition, spec: {properties: {template: {properties: {spec: {properties: {containers: {type: array}}}}}}}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Document{Text: []byte(c.document), Number: 1, Line: 1}.Objects()
			require.NoError(t, err)
			var paths []string
			for _, o := range objects {
				for _, p := range o.Pods {
					path := ""
					if p.Path != nil {
						path = p.Path.String()
					}
					paths = append(paths, path)
				}
			}
			require.Equal(t, c.want, paths)
		})
	}
}

func TestErrorsNameDocumentAndLine(t *testing.T) {
	for name, c := range map[string]struct{ stream, want string }{
		"a tab":             {"a: 1\n---\nb: 1\n\tc: 1\n", "document 2: line 4: found a tab character that violates indentation"},
		"a second colon":    {"a: 1\n---\nb: c: d\n", "document 2: line 3: mapping values are not allowed in this context"},
		"an open bracket":   {"a: [1\n", "document 1: line 1: did not find expected ',' or ']'"},
		"an unknown anchor": {"a: *b\n", "document 1: unknown anchor 'b' referenced"},
		"text":              {"---\nNAME READY\n", "document 1: line 1: not a Kubernetes object: it has no fields"},
		"a key twice in an object with a Pod": {
			"a: 1\na: 2\n---\napiVersion: v1\nkind: Pod\nspec: {}\nspec: {}\n", `document 2: line 7: key "spec" is there twice`,
		},
		"a Helm template": {
			"a: 1\n---\nkind: Pod\nmetadata:\n  name: {{ .Release.Name }}\n",
			"document 2: line 5: this is a Helm template, and not YAML yet: run helm template first, and give its output to this command",
		},
		"a Helm template that begins with an action": {
			"{{- if .Values.enabled }}\nkind: Pod\n{{- end }}\n",
			"document 1: line 1: this is a Helm template, and not YAML yet: run helm template first, and give its output to this command",
		},
		"braces of another program": {
			"args: ['{{ messages }}']\nb: c: d\n", "document 1: line 2: mapping values are not allowed in this context",
		},
		"bytes": {"a: \xff\n", "not UTF-8 text"},
	} {
		t.Run(name, func(t *testing.T) {
			documents, err := Split([]byte(c.stream))
			for _, d := range documents {
				if err == nil {
					_, err = d.Objects()
				}
			}
			require.EqualError(t, err, c.want)
		})
	}
}

func TestAnEditOfWhatIsNotThereIsAnError(t *testing.T) {
	d := Document{Text: []byte("spec: {containers: [1]}\n"), Number: 3, Line: 1}
	for _, path := range []string{"/metadata/annotations", "/spec/containers/1/lifecycle", "/spec/containers/0/lifecycle", "/spec/containers/0"} {
		_, err := d.Apply([]Edit{{Patch: []mutate.Operation{{Op: "add", Path: path, Value: 1}}}})
		require.ErrorContains(t, err, "document 3: there is no ", path)
	}
}

// FuzzApply holds what users rely on: nothing is lost between documents, and an
// edited document means what the edits say.
func FuzzApply(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.txtar")
	require.NoError(f, err)
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		require.NoError(f, err)
		f.Add(archive.Files[0].Data)
	}
	// U+2028 ends a line for the parser and for no editor.
	f.Add([]byte("{\u2028apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: main}]}}\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		documents, err := Split(stream)
		if err != nil {
			return
		}
		var whole []byte
		for _, d := range documents {
			whole = append(whole, d.Text...)
			objects, err := d.Objects()
			if err != nil {
				continue
			}
			var all []Edit
			want, err := d.value()
			require.NoError(t, err)
			for _, o := range objects {
				for _, p := range o.Pods {
					var pod corev1.PodTemplateSpec
					if jsonutil.Unmarshal(p.JSON, &pod) != nil {
						continue
					}
					e := Edit{At: p.At, Patch: operations(&pod, p.JSON)}
					for _, op := range e.Patch {
						c, err := newChange(e.At, op)
						require.NoError(t, err)
						if c.applyTo(want) != nil {
							t.Skip("operations are made for what the API server accepts")
						}
					}
					all = append(all, e)
				}
			}
			text, err := d.Apply(all)
			require.NoError(t, err)
			got, err := parse(text)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		require.Equal(t, string(stream), string(whole))
	})
}
