package engine

import (
	"strings"
	"unicode/utf8"
)

// maxExpansion bounds what variables may add to a command line, in bytes. A
// variable of a megabyte named a thousand times must not cost a gigabyte.
const maxExpansion = 64 << 10

// environment resolves variables while a command line is read.
type environment struct {
	values map[string]string
	budget int
}

func newEnvironment(values map[string]string) *environment {
	return &environment{values: values, budget: maxExpansion}
}

// lookup is a variable's value; false where it is not known, or too long.
func (e *environment) lookup(name string) (string, bool) {
	value, known := e.values[name]
	if !known || len(value) > e.budget {
		return "", false
	}
	e.budget -= len(value)
	return value, true
}

// expand resolves $(NAME) and $$ in a container's command or args as the kubelet
// does before the container starts. What is not known stays as it is.
func (e *environment) expand(text string) string {
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
		if name, rest, closed := strings.Cut(after, ")"); closed && strings.HasPrefix(name, "(") {
			if value, known := e.lookup(name[1:]); known {
				b.WriteString(value)
				text = rest
				continue
			}
		}
		b.WriteByte('$')
	}
}

// resolve expands variables in variables, as the kubelet does for env entries
// that refer to earlier ones.
func resolve(env map[string]string) map[string]string {
	resolved := make(map[string]string, len(env))
	plain := newEnvironment(env)
	for name, value := range env {
		resolved[name] = value
		if strings.Contains(value, "$") {
			resolved[name] = plain.expand(value)
		}
	}
	return resolved
}

// isVariable reports whether text can be a variable's name.
func isVariable(text string) bool {
	for i, c := range text {
		if !isVariableRune(c, i == 0) {
			return false
		}
	}
	return text != ""
}

func isVariableRune(c rune, first bool) bool {
	letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
	return c < utf8.RuneSelf && (letter || !first && c >= '0' && c <= '9')
}
