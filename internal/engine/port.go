package engine

import (
	"slices"
	"strings"
)

// PortFlag is the port that args tell the engine to serve on: the last --port.
// It is false where there is none, and where its value is not known at admission.
// The environment holds literal values, as Container.Env does.
func PortFlag(args []string, env map[string]string) (int32, bool) {
	written, _ := newFlags(expandAll(args, env)).value("port")
	port := parsePort(written)
	return port, port != 0
}

// HasFlag reports whether args have the flag --name, whatever its value: also
// with _ for -, as --name=value, and in the dotted form --name.key that sets a
// part of it. The environment holds literal values, as Container.Env does.
func HasFlag(args []string, env map[string]string, name string) bool {
	for _, word := range expandAll(args, env) {
		flag, _, _ := CutFlag(word)
		if whole, _, _ := strings.Cut(flag, "."); whole == name {
			return true
		}
	}
	return false
}

// CommandLine is the command and the args of a container, as the kubelet expands them.
// What is not known stays as it is.
func (c *Container) CommandLine() []string { return expandAll(slices.Concat(c.Command, c.Args), c.Env) }

func expandAll(args []string, env map[string]string) []string {
	known := newEnvironment(env)
	var words []string
	for _, arg := range args {
		words = append(words, known.expand(arg))
	}
	return words
}
