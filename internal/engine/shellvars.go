package engine

import (
	"strconv"
	"strings"
)

// dollar reads what follows a $: a variable, a parameter or a substitution.
func (s *shell) dollar(quoted bool) {
	switch {
	case s.accept("("):
		s.add("$(" + s.parenthesized() + ")")
	case s.accept("{"):
		s.braced(s.until('}'), quoted)
	case !quoted && s.accept("'"):
		s.add(s.until('\''))
	case !quoted && s.accept(`"`):
		s.doubleQuoted()
	case s.accept("@"), s.accept("*"):
		s.positional()
	default:
		start := s.pos
		for s.pos < len(s.text) && isVariableRune(rune(s.text[s.pos]), s.pos == start) {
			s.pos++
		}
		if s.pos == start && s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
			s.pos++
		}
		s.variable(s.text[start:s.pos], "$"+s.text[start:s.pos], quoted)
	}
}

// braced expands ${NAME} and the forms with a default: ${NAME:-x}, ${NAME-x},
// ${NAME:=x}, ${NAME=x}. A default is taken where the variable is not known.
func (s *shell) braced(text string, quoted bool) {
	end := strings.IndexFunc(text, func(c rune) bool { return !isVariableRune(c, false) })
	if end < 0 {
		s.variable(text, "${"+text+"}", quoted)
		return
	}
	name, operator := text[:end], text[end:]
	if text == "@" || text == "*" {
		s.positional()
		return
	}
	value, known := s.value(name)
	fallback, defaults := strings.CutPrefix(strings.TrimPrefix(operator, ":"), "-")
	if !defaults {
		fallback, defaults = strings.CutPrefix(strings.TrimPrefix(operator, ":"), "=")
	}
	switch {
	case !defaults:
		s.add("${" + text + "}")
	case known && value != "":
		s.expanded(value, quoted)
	default:
		s.expanded(strings.Trim(fallback, `"'`), quoted)
	}
}

func (s *shell) variable(name, written string, quoted bool) {
	if value, known := s.value(name); known {
		s.expanded(value, quoted)
		return
	}
	s.add(written)
}

// value is a variable's or a parameter's value.
func (s *shell) value(name string) (string, bool) {
	value, known := s.assigned[name]
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(s.params) {
		value, known = s.params[n], true
	}
	if !known {
		return s.env.lookup(name)
	}
	return value, s.env.spend(value)
}

// expanded adds a value, which the shell splits into words outside quotes.
func (s *shell) expanded(value string, quoted bool) {
	if quoted {
		s.add(value)
		return
	}
	fields := strings.Fields(value)
	for i, field := range fields {
		if i > 0 || strings.HasPrefix(value, " ") {
			s.endWord()
		}
		s.add(field)
	}
	if len(fields) > 0 && strings.HasSuffix(value, " ") {
		s.endWord()
	}
}

// positional adds $1 and the following as words of their own.
func (s *shell) positional() {
	for i := 1; i < len(s.params); i++ {
		value, known := s.value(strconv.Itoa(i))
		if !known {
			return
		}
		if i > 1 {
			s.endWord()
		}
		s.add(value)
	}
}
