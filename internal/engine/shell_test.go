package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// written is what splitShell returns, on one line: words in brackets, commands
// one after the other, & after those in the background.
func written(commands []simpleCommand) string {
	var all []string
	for _, c := range commands {
		text := "[" + strings.Join(c.words, "][") + "]"
		if c.background {
			text += "&"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestSplitShell(t *testing.T) {
	for _, r := range []struct{ why, text, want string }{
		{"nothing", "", ""},
		{"blanks", " \t\n ", ""},
		{"words", "a  b\tc", "[a][b][c]"},
		{"commands", "a; b && c || d\ne", "[a] [b] [c] [d] [e]"},
		{"a pipe", "a 2>&1 | b |& c", "[a] [b] [c]"},
		{"the background", "a & b", "[a]& [b]"},
		{"a list in the background", "a; b && c & d", "[a] [b]& [c]& [d]"},
		{"a group in the background", "(a && b) & c", "[a]& [b]& [c]"},
		{"single quotes", `'a "b" $V \n' c`, `[a "b" $V \n][c]`},
		{"double quotes", `"a 'b' \"c\" \\ \x"`, `[a 'b' "c" \ \x]`},
		{"quotes inside a word", `--port="80"'80'`, "[--port=8080]"},
		{"an empty word", `a "" ''`, "[a][][]"},
		{"quotes never closed", `a "b c`, "[a][b c]"},
		{"an escaped blank", `a\ b`, "[a b]"},
		{"an escaped end of line", "a \\\n b\\\nc", "[a][bc]"},
		{"an escaped end of line of Windows", "a \\\r\n b", "[a][b]"},
		{"a comment", "a # b\nc#d", "[a] [c#d]"},
		{"a comment that escapes nothing", "# a \\\nb", "[b]"},
		{"redirections", "a >b 2>>c <d &>e >|f 3<>g h", "[a][h]"},
		{"a closed descriptor", "a 2>&- b", "[a][b]"},
		{"a number is a word where a blank follows", "a 8080 > b", "[a][8080]"},
		{"a process substitution", "a > >(tee (b) c) d", "[a][d]"},
		{"a heredoc", "a <<E b\nc\nE\nd", "[a][b] [d]"},
		{"a quoted heredoc with tabs", "a <<-'E'\n\tc\n\tE\nd", "[a] [d]"},
		{"two heredocs", "a <<E <<F\n1\nE\n2\nF\nb", "[a] [b]"},
		{"a heredoc never closed", "a <<E\nb", "[a]"},
		{"a here-string", `a <<<"b c" d`, "[a][d]"},
		{"a variable", "$V ${V} x${V}y", "[v][v][xvy]"},
		{"an unknown variable", "$U ${U} x$U", "[$U][${U}][x$U]"},
		{"a variable of several words", `$W "$W"`, "[w1][w2][ w1  w2 ]"},
		{"an empty variable", `a $E "$E"`, "[a][]"},
		{"a default", "${U:-a} ${U-b} ${V:-c} ${E:-d} ${U:='e'}", "[a][b][v][d][e]"},
		{"other forms of variables", "${#V} ${V%x} $? $$", "[${#V}][${V%x}][$?][$$]"},
		{"an assignment", "A=1; B=$A export C=x; echo $A $C", "[B=1][export][C=x] [echo][1][$C]"},
		{"an export", `export A=1 B="x y"; echo $A "$B"`, "[echo][1][x y]"},
		{"parameters", `$0 $1 "$@" $*`, "[p0][p1][p1][p 2][p1][p 2]"},
		{"a parameter that is not there", "$9", "[$9]"},
		{"a command substitution", "a $(b \"c)\" ')' | d) e", "[a][$(b \"c)\" ')' | d)][e]"},
		{"backquotes", "a `b c` d", "[a][$(b c)][d]"},
		{"arithmetic", "a $((1 + 2)) b", "[a][$((1 + 2))][b]"},
		{"an ANSI string", `$'a b' $"c d"`, "[a b][c d]"},
		{"a lone dollar", `a $ "$"`, "[a][$][$]"},
	} {
		t.Run(r.why, func(t *testing.T) {
			e := newEnvironment(env("V", "v", "W", " w1  w2 ", "E", ""))
			assert.Equal(t, r.want, written(splitShell(r.text, []string{"p0", "p1", "p 2"}, e)))
		})
	}
}
