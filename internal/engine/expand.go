package engine

import "strings"

const (
	// maxExpansion bounds what variables may add to a command line, in bytes. A
	// variable of a megabyte named a thousand times must not cost a gigabyte.
	maxExpansion = 64 << 10
	// maxReferences bounds how deep variables may refer to others.
	maxReferences = 8
)

// environment resolves variables while a command line is read.
type environment struct {
	values map[string]string
	budget int
	depth  int
	// jobs is how many jobs the shells read so far put in the background.
	jobs int
}

func newEnvironment(values map[string]string) *environment {
	return &environment{values: values, budget: maxExpansion}
}

// spend takes the cost of an expanded value from the budget; false where too
// little is left, and the value must be treated as not known.
func (e *environment) spend(value string) bool {
	cost := len(value) + 1
	if cost > e.budget {
		return false
	}
	e.budget -= cost
	return true
}

// lookup is a variable's value, its own references expanded; false where it is
// not known.
func (e *environment) lookup(name string) (string, bool) {
	value, known := e.values[name]
	if !known || e.depth == maxReferences || !e.spend(value) {
		return "", false
	}
	e.depth++
	defer func() { e.depth-- }()
	return e.expand(value), true
}

// expand resolves $(NAME) and $$ in a container's command, args or env as the
// kubelet does before the container starts. What is not known stays as it is.
func (e *environment) expand(text string) string {
	if !strings.Contains(text, "$") {
		return text
	}
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if rest, escaped := strings.CutPrefix(after, "$"); escaped {
			b.WriteByte('$')
			text = rest
			continue
		}
		text = after
		if name, rest, ok := cutReference(after); ok {
			if value, known := e.lookup(name); known {
				b.WriteString(value)
				text = rest
				continue
			}
		}
		b.WriteByte('$')
	}
}

// cutReference reads (NAME) at the beginning of text.
func cutReference(text string) (name, rest string, ok bool) {
	inner, opened := strings.CutPrefix(text, "(")
	if !opened {
		return "", "", false
	}
	end := strings.IndexFunc(inner, func(c rune) bool {
		return !isVariableRune(c, false) && c != '.' && c != '-'
	})
	if end < 1 || inner[end] != ')' {
		return "", "", false
	}
	return inner[:end], inner[end+1:], true
}

// isVariable reports whether text can be the name of a shell's variable.
func isVariable(text string) bool {
	for i, c := range text {
		if !isVariableRune(c, i == 0) {
			return false
		}
	}
	return text != ""
}

func isVariableRune(c rune, first bool) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || !first && c >= '0' && c <= '9'
}
