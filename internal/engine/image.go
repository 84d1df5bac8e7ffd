package engine

import (
	"slices"
	"strings"
)

// notEngines are words in the names of images that carry an engine's name and
// run something else.
var notEngines = []string{
	"router", "gateway", "proxy", "sidecar", "runtime", "render", "exporter", "operator", "controller",
	"sim", "simulator", "bench", "benchmark", "stack", "client", "loadgen", "ui", "webui",
}

// imageEngine is the engine an image is named after: vllm/vllm-openai:v0.29.0,
// registry.example:5000/mirror/lmsysorg/sglang@sha256:..., rocm/vllm.
func imageEngine(image string) (engine Name, repository string, ok bool) {
	repository, _, _ = strings.Cut(image, "@")
	repository = repository[strings.LastIndexByte(repository, '/')+1:]
	repository, _, _ = strings.Cut(repository, ":")
	repository = strings.ToLower(repository)
	words := strings.FieldsFunc(repository, func(c rune) bool { return c == '-' || c == '_' || c == '.' })
	if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(notEngines, word) }) {
		return "", "", false
	}
	for _, e := range table {
		if slices.Contains(words, string(e.Name)) {
			return e.Name, repository, true
		}
	}
	return "", "", false
}

// imageInvocation is what an image runs where the command line does not name the
// program. An image is believed in two cases only:
//
//   - its own entrypoint runs: there is no command, and args are flags, or the
//     image is vllm-openai, whose entrypoint takes all args (a model first);
//   - the command line leaves a shell script running, which may start anything.
//
// Any other command names its program, and that program is no server lastcall
// knows: python batch.py on vLLM's image works offline, ray start waits for
// work, sleep is for debugging. The annotation says it where that is wrong.
func imageInvocation(c Container, argv []string, commands []simpleCommand) (invocation, bool) {
	name, repository, ok := imageEngine(c.Image)
	if !ok {
		return invocation{}, false
	}
	if len(c.Command) == 0 {
		switch {
		case len(argv) == 0:
			// SGLang's images have no entrypoint and would start a shell.
			return invocation{engine: name, flags: newFlags(nil)}, name == VLLM
		case strings.HasPrefix(argv[0], "-"), strings.Contains(repository, "vllm-openai"):
			return invocation{engine: name, flags: newFlags(argv)}, true
		}
	}
	args, ok := script(commands)
	return invocation{engine: name, flags: flags{words: args, partial: true}}, ok
}
