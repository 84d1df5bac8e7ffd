package engine

import "strings"

// simpleCommand is one command of a shell text: its words after quoting,
// expansion and redirections, assignments before it included.
type simpleCommand struct {
	words []string
	// background: the shell does not wait for it.
	background bool
	// job tells the lists in the background apart: of one only a command at a time
	// runs. 0 in the foreground.
	job int
}

// shell splits a shell text into its simple commands. It knows what people write
// in a Pod's args and is no shell: conditions are not decided, functions not
// called, and what a command substitution prints is not known.
type shell struct {
	text string
	pos  int
	env  *environment
	// params are $0, $1 and so on.
	params []string
	// assigned are variables the text itself set.
	assigned map[string]string

	commands []simpleCommand
	words    []string
	word     strings.Builder
	inWord   bool
	// list is where the and-or list began that an & would put in the background.
	list int
	// heredocs are the delimiters whose text begins after this line.
	heredocs []string
}

// splitShell returns the simple commands of text, in order. Unknown variables
// and command substitutions stay as they are written, so a word that begins with
// $ is not known.
func splitShell(text string, params []string, env *environment) []simpleCommand {
	s := &shell{text: text, params: params, env: env, assigned: make(map[string]string)}
	for s.pos < len(s.text) {
		s.step()
	}
	s.endCommand()
	return s.commands
}

// step reads one character outside quotes, or the construct that it opens.
func (s *shell) step() {
	c := s.text[s.pos]
	s.pos++
	switch c {
	case ' ', '\t', '\r':
		s.endWord()
	case '\n':
		s.endCommand()
		s.list = len(s.commands)
		s.skipHeredocs()
	case ';':
		s.endCommand()
		s.list = len(s.commands)
	case '(', ')':
		s.endCommand()
	case '|':
		s.accept("|")
		s.accept("&")
		s.endCommand()
	case '&':
		s.ampersand()
	case '<', '>':
		s.redirection(c)
	case '#':
		if s.inWord {
			s.add("#")
			return
		}
		s.skipLine()
	case '\'':
		s.add(s.until('\''))
	case '"':
		s.doubleQuoted()
	case '\\':
		s.escape()
	case '$':
		s.dollar(false)
	case '`':
		s.add("$(" + s.until('`') + ")")
	default:
		s.add(s.text[s.pos-1 : s.pos])
	}
}

func (s *shell) ampersand() {
	if s.accept("&") {
		s.endCommand()
		return
	}
	if s.accept(">") {
		s.endWord()
		s.redirection('>')
		return
	}
	s.endCommand()
	s.env.jobs++
	for i := s.list; i < len(s.commands); i++ {
		s.commands[i].background, s.commands[i].job = true, s.env.jobs
	}
	s.list = len(s.commands)
}

// redirection drops the operator, a descriptor before it and the target.
func (s *shell) redirection(operator byte) {
	if strings.Trim(s.word.String(), "0123456789") == "" {
		s.word.Reset()
		s.inWord = false
	}
	s.endWord()
	heredoc := operator == '<' && s.accept("<") && !s.accept("<")
	if heredoc {
		s.accept("-")
	} else {
		s.accept(">")
		s.accept("|")
		s.accept("&")
	}
	for s.pos < len(s.text) && (s.text[s.pos] == ' ' || s.text[s.pos] == '\t') {
		s.pos++
	}
	if s.accept(">(") || s.accept("<(") {
		s.parenthesized()
		return
	}
	if target := s.target(); heredoc {
		s.heredocs = append(s.heredocs, target)
	}
}

// target reads the word that a redirection is about and takes it out of the
// command's words.
func (s *shell) target() string {
	before := len(s.words)
	for s.pos < len(s.text) && !strings.ContainsRune(" \t\r\n;&|<>()", rune(s.text[s.pos])) {
		s.step()
	}
	s.endWord()
	target := strings.Join(s.words[before:], " ")
	s.words = s.words[:before]
	return target
}

func (s *shell) skipHeredocs() {
	for _, delimiter := range s.heredocs {
		for s.pos < len(s.text) {
			line := s.text[s.pos:]
			if end := strings.IndexByte(line, '\n'); end >= 0 {
				line = line[:end]
			}
			s.pos = min(s.pos+len(line)+1, len(s.text))
			if strings.TrimLeft(line, "\t") == delimiter {
				break
			}
		}
	}
	s.heredocs = nil
}

func (s *shell) skipLine() {
	for s.pos < len(s.text) && s.text[s.pos] != '\n' {
		s.pos++
	}
}

func (s *shell) doubleQuoted() {
	s.add("")
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case '"':
			return
		case '\\':
			if s.pos < len(s.text) && strings.IndexByte("$`\"\\\n", s.text[s.pos]) >= 0 {
				s.escape()
			} else {
				s.add(`\`)
			}
		case '$':
			s.dollar(true)
		case '`':
			s.add("$(" + s.until('`') + ")")
		default:
			s.add(s.text[s.pos-1 : s.pos])
		}
	}
}

// escape reads what follows a backslash; before a line's end it joins the lines.
func (s *shell) escape() {
	if s.accept("\n") || s.accept("\r\n") || s.pos == len(s.text) {
		return
	}
	s.pos++
	s.add(s.text[s.pos-1 : s.pos])
}

// until reads up to the character c and past it.
func (s *shell) until(c byte) string {
	rest := s.text[s.pos:]
	end := strings.IndexByte(rest, c)
	if end < 0 {
		s.pos = len(s.text)
		return rest
	}
	s.pos += end + 1
	return rest[:end]
}

// parenthesized reads up to the parenthesis that closes one already open.
func (s *shell) parenthesized() string {
	start, depth, quoted := s.pos, 1, false
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case '\'':
			if !quoted {
				s.until('\'')
			}
		case '"':
			quoted = !quoted
		case '\\':
			s.pos = min(s.pos+1, len(s.text))
		case '(', ')':
			switch {
			case quoted:
			case c == '(':
				depth++
			case depth == 1:
				return s.text[start : s.pos-1]
			default:
				depth--
			}
		}
	}
	return s.text[start:]
}

// accept moves past prefix if it is next.
func (s *shell) accept(prefix string) bool {
	if !strings.HasPrefix(s.text[s.pos:], prefix) {
		return false
	}
	s.pos += len(prefix)
	return true
}

func (s *shell) add(text string) {
	s.word.WriteString(text)
	s.inWord = true
}

func (s *shell) endWord() {
	if s.inWord {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.inWord = false
}

// endCommand closes a simple command; one that only assigns sets variables for
// the commands after it.
func (s *shell) endCommand() {
	s.endWord()
	words := s.words
	s.words = nil
	if len(words) == 0 {
		return
	}
	assignments := words
	if words[0] == "export" {
		assignments = words[1:]
	}
	for _, word := range assignments {
		name, _, assigns := strings.Cut(word, "=")
		if !assigns || !isVariable(name) {
			s.commands = append(s.commands, simpleCommand{words: words})
			return
		}
	}
	for _, word := range assignments {
		name, value, _ := strings.Cut(word, "=")
		s.assigned[name] = value
	}
}
