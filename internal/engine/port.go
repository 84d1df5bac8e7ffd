package engine

// PortFlag is the port that args tell the engine to serve on: the last --port.
// It is false where there is none, and where its value is not known at admission.
// The environment holds literal values, as Container.Env does.
func PortFlag(args []string, env map[string]string) (int32, bool) {
	known := newEnvironment(env)
	var words []string
	for _, arg := range args {
		words = append(words, known.expand(arg))
	}
	written, _ := newFlags(words).value("port")
	port := parsePort(written)
	return port, port != 0
}
