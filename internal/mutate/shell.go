package mutate

import (
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

var (
	quoted      = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	execs       = regexp.MustCompile(`(^|[\s;&|({])exec\s+[^\s<>0-9]`)
	nextCommand = regexp.MustCompile(`\n|;|&&`)
)

// keepsShell reports whether the engine's shell stays its parent. As PID 1 it
// ignores SIGTERM, and so the engine never hears of it. bash turns into the last
// command of its text where that is a plain one (tried with 5.2); dash, which is
// sh on Debian and Ubuntu, never does (0.5.12).
func keepsShell(c *corev1.Container) bool {
	shell, text := shellText(slices.Concat(c.Command, c.Args))
	text = strings.ReplaceAll(text, "\\\n", " ")
	plain := quoted.ReplaceAllString(text, "''")
	starts := func(text string) bool {
		_, ok := engine.Recognize(engine.Container{Command: []string{shell, "-c", text}}, engine.Source{})
		return ok
	}
	if shell == "" || execs.MatchString(plain) || !starts(text) {
		return false
	}
	commands := nextCommand.Split(strings.TrimSpace(plain), -1)
	last := commands[len(commands)-1]
	return shell != "bash" || !starts(last) || strings.ContainsAny(last, "|&<>")
}

// shellText returns the name of the shell and what it is told to run; empty where
// the command is no shell with a text.
func shellText(argv []string) (shell, text string) {
	if len(argv) == 0 {
		return "", ""
	}
	shell = path.Base(argv[0])
	if !slices.Contains([]string{"sh", "bash", "dash", "ash"}, shell) {
		return "", ""
	}
	option := slices.IndexFunc(argv, func(arg string) bool {
		return strings.HasPrefix(arg, "-") && !strings.HasPrefix(arg, "--") && strings.Contains(arg, "c")
	})
	if option < 0 {
		return "", ""
	}
	rest := slices.DeleteFunc(argv[option+1:], func(arg string) bool { return strings.HasPrefix(arg, "-") })
	if len(rest) == 0 {
		return "", ""
	}
	return shell, rest[0]
}
