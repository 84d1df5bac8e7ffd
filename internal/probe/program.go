package probe

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// The program's parts, without constants and without fetch.py.
var (
	//go:embed probe.py
	probeSource string
	//go:embed connections.py
	connectionsSource string
	//go:embed main.py
	mainSource string
)

const (
	// programLimit is the longest the program runs. It is over before the read is, so
	// that what it says still counts.
	programLimit = 4 * time.Second
	// mostConnections is how many connections an answer names at most.
	mostConnections = 4096
	// endMark ends an answer. One without it was cut.
	endMark = "\nlastcall: end of the answer\n"
	// marker is the argument by which a command is known as a read of lastcall's, to
	// whoever looks into an audit log or a list of processes.
	marker = names.Group + "/probe"
	// noPython is the exit code of the shell where there is no python3.
	noPython = 86
)

// start runs the program in $1 with the image's own python3, as the drain hook does.
// It becomes the program, so that nothing outlives it.
var start = fmt.Sprintf(`P=$(command -v python3) || exit %d; exec "$P" -I -S -c "$1"`, noPython)

// command is what is run in the engine's container.
func command(at engine.Endpoint, ports []uint16) []string {
	return []string{"/bin/sh", "-c", start, marker, program(at, ports, drain.ReadLimit, programLimit)}
}

// program asks the engine at this endpoint, for so long, and ends by bound.
func program(at engine.Endpoint, ports []uint16, limit, bound time.Duration) string {
	text := drain.Constant("LIMIT", limit.Seconds()) +
		drain.Constant("BOUND", bound.Seconds()) +
		drain.Constant("MARK", endMark) +
		drain.FetchProgram(at) +
		drain.WithoutComments(probeSource)
	if len(ports) > 0 {
		text += drain.Constant("PORTS", ports) +
			drain.Constant("MOST", mostConnections) +
			drain.WithoutComments(connectionsSource)
	}
	return squeeze(text + drain.WithoutComments(mainSource))
}

var indentation = regexp.MustCompile(`(?m)^( {4})+`)

// squeeze indents by one blank instead of four. A command travels in the URL of an
// exec, where some proxies take 8 KiB at the most, and into every audit log.
func squeeze(program string) string {
	return indentation.ReplaceAllStringFunc(program, func(blanks string) string {
		return strings.Repeat(" ", len(blanks)/4)
	})
}
