package manifest

import (
	"cmp"
	"slices"

	"go.yaml.in/yaml/v3"
)

// replacement puts text in the place of the document's text[from:to].
type replacement struct {
	from, to int
	indent   int // of the mapping that is changed
	text     string
}

// splice makes the changes in the text. It reports false where it does not see
// how; and where the text does not mean what it seems to, the result is not what
// the changes say. So the caller checks it.
func splice(text []byte, changes []change) ([]byte, bool) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil || len(document.Content) == 0 {
		return nil, false
	}
	s := newSource(text)
	var all []replacement
	for _, c := range changes {
		e, ok := find(document.Content[0], c.path)
		if !ok {
			return nil, false
		}
		if e.isFlow() && len(e.mapping.Content) == 0 && !c.remove {
			// An empty {} where the fields around it have lines of their own gets lines
			// too.
			above := len(c.path) - 1
			if parent, ok := find(document.Content[0], c.path[:above]); ok && !parent.isFlow() {
				e, c = parent, change{path: c.path[:above], value: map[string]any{e.name: c.value}}
			}
		}
		r, ok := s.replacement(e, c)
		if !ok {
			return nil, false
		}
		all = append(all, r)
	}
	// Of two that go to one place, the one that is further inside goes first.
	slices.SortStableFunc(all, func(a, b replacement) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.indent, a.indent))
	})
	var out []byte
	end := 0
	for _, r := range all {
		if r.from < end {
			return nil, false
		}
		out = append(append(out, text[end:r.from]...), r.text...)
		end = r.to
	}
	return append(out, text[end:]...), true
}
