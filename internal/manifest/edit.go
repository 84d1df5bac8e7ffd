package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	jsonutil "k8s.io/apimachinery/pkg/util/json"

	"github.com/lastcall-dev/lastcall/internal/mutate"
)

// Edit is a patch of the Pod or template at a place of a document.
type Edit struct {
	At    []string
	Patch []mutate.Operation
}

// Apply returns the text of the document after the edits.
func (d Document) Apply(edits []Edit) ([]byte, error) {
	var changes []change
	for _, e := range edits {
		for _, op := range e.Patch {
			c, err := newChange(e.At, op)
			if err != nil {
				return nil, err
			}
			changes = append(changes, c)
		}
	}
	if len(changes) == 0 {
		return d.Text, nil
	}
	want, err := d.value()
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		if err := c.applyTo(want); err != nil {
			return nil, fmt.Errorf("document %d: %w", d.Number, err)
		}
	}
	if text, ok := splice(d.Text, changes); ok {
		if got, err := parse(text); err == nil && reflect.DeepEqual(got, want) {
			return text, nil
		}
	}
	return d.rewrite(want), nil
}

// change gives one field of a document a value, or takes the field away.
type change struct {
	path   []string
	value  any // as parsed from JSON
	remove bool
}

func newChange(at []string, op mutate.Operation) (change, error) {
	c := change{path: append([]string(nil), at...), remove: op.Op == "remove"}
	for token := range strings.SplitSeq(strings.TrimPrefix(op.Path, "/"), "/") {
		c.path = append(c.path, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	text, err := json.Marshal(op.Value)
	if err == nil {
		err = jsonutil.Unmarshal(text, &c.value)
	}
	if err != nil {
		return c, fmt.Errorf("encoding the value of %s: %w", op.Path, err)
	}
	return c, nil
}

// applyTo makes the change on a parsed document. All patches set or remove fields
// of objects; none adds to a list.
func (c change) applyTo(root any) error {
	last := len(c.path) - 1
	for i, token := range c.path {
		switch parent := root.(type) {
		case map[string]any:
			switch {
			case i < last:
				root = parent[token]
			case c.remove:
				delete(parent, token)
			default:
				parent[token] = c.value
			}
			continue
		case []any:
			if index, err := strconv.Atoi(token); err == nil && index < len(parent) && i < last {
				root = parent[index]
				continue
			}
		}
		return fmt.Errorf("there is no /%s to change", strings.Join(c.path[:i+1], "/"))
	}
	return nil
}

// rewrite returns the document with this value in place of its text.
func (d Document) rewrite(value any) []byte {
	text := []byte(YAML(value))
	if d.IsSeparated() {
		text = append([]byte("---\n"), text...)
	}
	return text
}
