package manifest

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// entry is a field of a mapping: where it is, or where it belongs.
type entry struct {
	mapping    *yaml.Node
	name       string
	key, value *yaml.Node // nil where the mapping has no such field
	// after is the first node behind the field, or behind the mapping where it has
	// no such field; nil at the end of the document.
	after *yaml.Node
}

// find looks a field up. It reports false where the way there leads through an
// alias or a merge: to change what those name would change other places too.
func find(root *yaml.Node, path []string) (entry, bool) {
	var after *yaml.Node
	for i, token := range path {
		last := i == len(path)-1
		switch root.Kind {
		case yaml.MappingNode:
			e := lookup(root, token, after)
			if last {
				return e, true
			}
			if e.value == nil {
				return e, false
			}
			root, after = e.value, e.after
		case yaml.SequenceNode:
			index, err := strconv.Atoi(token)
			if err != nil || index < 0 || index >= len(root.Content) {
				return entry{}, false
			}
			if index+1 < len(root.Content) {
				after = root.Content[index+1]
			}
			root = root.Content[index]
		default:
			return entry{}, false
		}
	}
	return entry{}, false
}

// lookup finds the field in a mapping that this node comes after.
func lookup(mapping *yaml.Node, name string, after *yaml.Node) entry {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if key := mapping.Content[i]; key.Value == name {
			if i+2 < len(mapping.Content) {
				after = mapping.Content[i+2]
			}
			return entry{mapping, name, key, mapping.Content[i+1], after}
		}
	}
	return entry{mapping: mapping, name: name, after: after}
}

func (e entry) isFlow() bool { return e.mapping.Style&yaml.FlowStyle != 0 }
