package engine

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// maxShells bounds how many shells inside shells are opened.
const maxShells = 4

// startForm is one way to start an engine's server.
type startForm struct {
	engine Name
	// words are what stands in the command line; the first may have a path before
	// it.
	words []string
	// grpc servers have no HTTP.
	grpc bool
}

// startForms are matched anywhere in a simple command, so that wrappers (env,
// exec, nohup, tini, numactl ...) need no list. Routers, vllm launch, vllm
// run-batch and vllm bench are not among them.
var startForms = []startForm{
	{engine: VLLM, words: []string{"vllm", "serve"}},
	{engine: VLLM, words: []string{"-m", "vllm.entrypoints.openai.api_server"}},
	{engine: VLLM, words: []string{"-m", "vllm.entrypoints.api_server"}},
	{engine: VLLM, words: []string{"-m", "vllm.entrypoints.cli.main", "serve"}},
	{engine: VLLM, words: []string{"-m", "vllm.entrypoints.grpc_server"}, grpc: true},
	{engine: VLLM, words: []string{"vllm/entrypoints/openai/api_server.py"}},
	{engine: SGLang, words: []string{"sglang", "serve"}},
	{engine: SGLang, words: []string{"-m", "sglang.launch_server"}},
	{engine: SGLang, words: []string{"-m", "sglang.cli.main", "serve"}},
	{engine: SGLang, words: []string{"sglang/launch_server.py"}},
}

// speakers only talk about the words after them.
var speakers = []string{"echo", "printf", "grep", "pgrep", "pkill"}

// reserved are the words of a shell after which a command begins.
var reserved = []string{"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "exec", "nohup"}

var shells = []string{"sh", "bash", "dash", "ash", "zsh", "ksh"}

// invocation is an engine's start found in a command line.
type invocation struct {
	engine     Name
	flags      flags
	grpc       bool
	background bool
	// several: it is one of several servers that the command line leaves running.
	several bool
}

// servesNothing reports whether the process is a member of a replica that
// another member answers for. A rank that is not known at admission is that of a
// leader as likely as not, and is taken for one.
func (i invocation) servesNothing() bool {
	if i.engine == VLLM && i.flags.on("headless") {
		return true
	}
	rank, _ := i.flags.value("node-rank")
	return strings.Trim(rank, "0123456789") == "" && strings.Trim(rank, "0") != ""
}

// simpleCommands opens the shells in a container's command line.
func simpleCommands(argv []string, env *environment, depth int) []simpleCommand {
	text, params, isShell := shellText(argv)
	if !isShell || depth == maxShells {
		return []simpleCommand{{words: argv}}
	}
	var all []simpleCommand
	for _, c := range splitShell(text, params, env) {
		for _, inner := range simpleCommands(c.words, env, depth+1) {
			inner.background = inner.background || c.background
			inner.job = cmp.Or(inner.job, c.job)
			all = append(all, inner)
		}
	}
	return all
}

// shellText finds a shell's -c text and parameters in a command line: sh -c TEXT,
// bash -lc TEXT, bash -euo pipefail -c -- TEXT NAME ARG ..., also after wrappers.
func shellText(argv []string) (text string, params []string, found bool) {
	start := slices.IndexFunc(argv, func(word string) bool { return slices.Contains(shells, path.Base(word)) })
	if start < 0 {
		return "", nil, false
	}
	isText := false
	for i := start + 1; i < len(argv); i++ {
		word := argv[i]
		short := len(word) > 1 && (word[0] == '-' || word[0] == '+') && !strings.HasPrefix(word, "--")
		switch {
		case short:
			isText = isText || strings.Contains(word, "c")
			if strings.HasSuffix(word, "o") || strings.HasSuffix(word, "O") {
				i++
			}
		case word == "--rcfile" || word == "--init-file":
			i++
		case strings.HasPrefix(word, "--"):
		default:
			return word, argv[i+1:], isText
		}
	}
	return "", nil, false
}

// findInvocation returns the engine that a command line leaves running: of
// several the last one the shell waits for. Between branches of a condition that
// start a leader and a worker, the one that answers counts: for a worker Pod
// that is harmless, the other way round the leader would not be measured.
func findInvocation(commands []simpleCommand) (invocation, bool) {
	var best invocation
	found := false
	for _, c := range commands {
		i, ok := c.invocation()
		if !ok {
			continue
		}
		worse := i.background && !best.background ||
			i.background == best.background && i.servesNothing() && !best.servesNothing()
		if !found || !worse {
			best, found = i, true
		}
	}
	best.several = mostServers(commands) > 1
	return best, found
}

func (c simpleCommand) invocation() (invocation, bool) {
	words := c.program()
	if len(words) == 0 || slices.Contains(speakers, path.Base(words[0])) {
		return invocation{}, false
	}
	words = detachModules(words)
	for at := range words {
		for _, form := range startForms {
			if form.matches(words[at:]) {
				return invocation{
					engine:     form.engine,
					flags:      newFlags(words[at+len(form.words):]),
					grpc:       form.grpc,
					background: c.background,
				}, true
			}
		}
	}
	return invocation{}, false
}

// detachModules makes two words of -mvllm.x and -um vllm.x, as Python does.
func detachModules(words []string) []string {
	var all []string
	for _, word := range words {
		options, module, found := strings.Cut(word, "m")
		isModule := module == "" || strings.HasPrefix(module, "vllm.") || strings.HasPrefix(module, "sglang.")
		if !found || !isModule || !strings.HasPrefix(options, "-") || strings.HasPrefix(options, "--") {
			all = append(all, word)
			continue
		}
		all = append(all, "-m")
		if module != "" {
			all = append(all, module)
		}
	}
	return all
}

func (f startForm) matches(words []string) bool {
	if len(words) < len(f.words) || !slices.Equal(words[1:len(f.words)], f.words[1:]) {
		return false
	}
	return words[0] == f.words[0] || strings.HasSuffix(words[0], "/"+f.words[0])
}

// program is the command without the shell's words and assignments before it.
func (c simpleCommand) program() []string {
	words := c.words
	for len(words) > 0 {
		name, _, assigns := strings.Cut(words[0], "=")
		if !slices.Contains(reserved, words[0]) && (!assigns || !isVariable(name)) {
			break
		}
		words = words[1:]
	}
	return words
}

// script is the shell script that the command line leaves running, and its
// arguments; false where the last command is anything else. What a script starts
// is not known at admission.
func script(commands []simpleCommand) (args []string, ok bool) {
	if len(commands) == 0 {
		return nil, false
	}
	words := commands[len(commands)-1].program()
	if len(words) > 1 && (words[0] == "." || words[0] == "source" || slices.Contains(shells, path.Base(words[0]))) {
		words = words[1:]
		for len(words) > 1 && strings.HasPrefix(words[0], "-") {
			words = words[1:]
		}
		return words[1:], path.Base(words[0]) != rayScript
	}
	if len(words) == 0 {
		return nil, false
	}
	name := path.Base(words[0])
	return words[1:], name != rayScript && (strings.HasSuffix(name, ".sh") || strings.Contains(name, "entrypoint"))
}

// rayScript comes with vLLM and starts Ray alone.
const rayScript = "multi-node-serving.sh"
