package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	jsonutil "k8s.io/apimachinery/pkg/util/json"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
)

// parse parses a document as kubectl does: YAML 1.1 by way of JSON. JSON is left
// to its own parser, because it may hold what YAML may not: escaped surrogate
// pairs.
func parse(text []byte) (value any, err error) {
	body := bytes.TrimPrefix(bytes.TrimPrefix(text, byteOrderMark), []byte("---"))
	if json.Valid(body) {
		err = jsonutil.Unmarshal(body, &value)
	} else {
		err = k8syaml.Unmarshal(text, &value)
	}
	return value, err
}

var parserPrefix = regexp.MustCompile(`^(error converting YAML to JSON: )?(yaml: )?(unmarshal errors:\s*)?`)

// value returns the parsed document, nil for an empty one.
func (d Document) value() (any, error) {
	value, err := parse(d.Text)
	if err != nil {
		return nil, d.explain(err)
	}
	return value, nil
}

// explain says where in the stream a parser's error is. The parser counts lines
// from the document's first; parsing again with as many empty lines in front as
// the stream has gives the line that an editor shows.
func (d Document) explain(err error) error {
	padded := append(bytes.Repeat([]byte("\n"), d.Line-1), bytes.TrimPrefix(d.Text, byteOrderMark)...)
	if _, again := parse(padded); again != nil {
		err = again
	}
	if action := actions.FindIndex(padded); action != nil {
		line := bytes.Count(padded[:action[0]], []byte("\n")) + 1
		return fmt.Errorf("document %d: line %d: this is a Helm template, and not YAML yet: run helm template first, and give its output to this command", d.Number, line)
	}
	return fmt.Errorf("document %d: %s", d.Number, parserPrefix.ReplaceAllString(err.Error(), ""))
}

// actions are what Helm replaces in a template. Other programs use double braces
// too (Argo Workflows, chat templates), with other words in them.
var actions = regexp.MustCompile(`\{\{-?\s*(/\*|\.[A-Z]|\$|(if|else|end|range|with|define|include|template|block|toYaml|tpl|required|default|printf|quote|lookup|fail)\b)`)

// duplicates returns an error if a mapping of the document has a key twice.
// kubectl takes the last one, so elsewhere that is no error; but an edit needs to
// know which is meant.
func (d Document) duplicates() error {
	var root yaml.Node
	if err := yaml.Unmarshal(d.Text, &root); err != nil {
		return nil //nolint:nilerr // JSON that is no YAML; value has reported all else
	}
	return d.duplicatesIn(&root)
}

func (d Document) duplicatesIn(n *yaml.Node) error {
	seen := map[string]bool{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode {
			if seen[child.Value] {
				return fmt.Errorf("document %d: line %d: key %q is there twice", d.Number, d.Line+child.Line-1, child.Value)
			}
			seen[child.Value] = true
		}
		if err := d.duplicatesIn(child); err != nil {
			return err
		}
	}
	return nil
}

// YAML writes a value as kubectl lays YAML out, with text of several lines as such
// and no line broken.
func YAML(value any) string {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	if err := encoder.Encode(value); err != nil {
		panic(err) // maps, lists, strings and numbers always encode
	}
	return out.String()
}
