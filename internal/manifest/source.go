package manifest

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// source is the text of a document and the offsets of its lines.
type source struct {
	text  []byte
	lines []int
}

// lineBreak is what the parser counts as the end of a line.
var lineBreak = regexp.MustCompile("\r\n|[\n\r\u0085\u2028\u2029]")

func newSource(text []byte) source {
	s := source{text: text, lines: []int{0}}
	for _, found := range lineBreak.FindAllIndex(text, -1) {
		if found[1] < len(text) {
			s.lines = append(s.lines, found[1])
		}
	}
	return s
}

// replacement returns what makes the change where the entry is. It reports false
// for an entry whose extent in the text it does not know.
func (s source) replacement(e entry, c change) (replacement, bool) {
	indent := e.mapping.Column - 1
	if len(e.mapping.Content) > 0 {
		indent = e.mapping.Content[0].Column - 1
	}
	switch {
	case c.remove && e.value == nil:
		return replacement{}, true
	case e.value != nil && !c.remove && isScalar(c.value):
		if from, to, ok := s.scalar(e.value); ok {
			return replacement{from, to, indent, inline(c.value, e.isFlow())}, true
		}
	}
	switch {
	case e.isFlow() && e.value == nil:
		return s.insertIntoFlow(e, c, indent)
	case e.isFlow():
		return replacement{}, false
	case e.value == nil:
		at := s.end(e.after, indent)
		return s.block(replacement{at, at, indent, ""}, e.name, c.value), true
	}
	r := replacement{s.offset(e.key), s.end(e.after, indent+1), indent, ""}
	if c.remove {
		r.from -= indent // what the line begins with
		return r, true
	}
	r = s.block(r, e.name, c.value)
	r.text = strings.TrimLeft(r.text, " ")
	return r, true
}

// block gives the replacement the text of a field of a block mapping.
func (s source) block(r replacement, name string, value any) replacement {
	var text strings.Builder
	if r.from > 0 && s.text[r.from-1] != '\n' && r.from == r.to {
		text.WriteString("\n") // the last line of the text has no end
	}
	for line := range strings.Lines(YAML(map[string]any{name: value})) {
		if line != "\n" {
			text.WriteString(strings.Repeat(" ", r.indent))
		}
		text.WriteString(line)
	}
	r.text = text.String()
	if bytes.Contains(s.text, []byte("\r\n")) {
		r.text = strings.ReplaceAll(r.text, "\n", "\r\n")
	}
	return r
}

// insertIntoFlow puts a field first in a {…}, spaced as the first one there.
func (s source) insertIntoFlow(e entry, c change, indent int) (replacement, bool) {
	at := s.offset(e.mapping)
	if s.text[at] != '{' {
		return replacement{}, false // an anchor or a tag
	}
	at++
	rest := s.text[at:]
	space := string(rest[:len(rest)-len(bytes.TrimLeft(rest, " \t\r\n"))])
	text := encodeJSON(e.name) + ": " + encodeJSON(c.value)
	switch {
	case len(e.mapping.Content) == 0:
		space = ""
	case space == "":
		text += ", "
	default:
		text += ","
	}
	return replacement{at, at, indent, space + text}, true
}

// offset is where a node starts. The parser counts lines from 1 and columns in
// characters from 1.
func (s source) offset(n *yaml.Node) int {
	offset := s.lines[n.Line-1]
	if offset == 0 && bytes.HasPrefix(s.text, byteOrderMark) {
		offset = len(byteOrderMark)
	}
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(s.text[offset:])
		offset += size
	}
	return offset
}

// end is where a part of a block mapping ends that this node is the first one
// behind. Blank lines in front of the node belong to it, and comments unless they
// are indented as far as the part.
func (s source) end(after *yaml.Node, indent int) int {
	line, end := len(s.lines), len(s.text)
	if after != nil {
		line = after.Line - 1
		end = s.lines[line]
	}
	for ; line > 0; line-- {
		text := s.text[s.lines[line-1]:end]
		content := string(bytes.TrimSpace(text))
		isShallow := len(text)-len(bytes.TrimLeft(text, " ")) < indent
		switch {
		case content == "", content == "...":
		case isShallow && (content[0] == '#' || content == "-"): // leads the node in
		default:
			return end
		}
		end = s.lines[line-1]
	}
	return end
}

// scalar returns where a scalar is that is written on one line or in quotes.
func (s source) scalar(n *yaml.Node) (from, to int, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Line > len(s.lines) {
		return 0, 0, false
	}
	from = s.offset(n)
	rest := s.text[from:]
	switch {
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		length := quoted(rest)
		return from, from + length, length > 0
	case n.Style == 0 && n.Value != "" && bytes.HasPrefix(rest, []byte(n.Value)):
		return from, from + len(n.Value), true
	}
	return 0, 0, false
}

// quoted returns the length of the quoted scalar that the text starts with; 0 if
// it starts with none.
func quoted(text []byte) int {
	if text[0] != '\'' && text[0] != '"' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && text[0] == '"':
			i++
		case text[i] != text[0]:
		case text[0] == '\'' && i+1 < len(text) && text[i+1] == '\'':
			i++
		default:
			return i + 1
		}
	}
	return 0
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// inline returns a scalar on one line.
func inline(value any, inFlow bool) string {
	text := strings.TrimSuffix(YAML(value), "\n")
	if inFlow || strings.Contains(text, "\n") {
		return encodeJSON(value)
	}
	return text
}

func encodeJSON(value any) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err) // it was parsed from JSON
	}
	return strings.TrimSuffix(out.String(), "\n")
}
