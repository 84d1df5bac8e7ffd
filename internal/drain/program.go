package drain

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// The programs without their constants, with all their comments.
var (
	//go:embed fetch.py
	fetchSource string
	//go:embed hook.py
	hookSource string
)

// The programs as they are run.
var (
	fetchBody = WithoutComments(fetchSource)
	hookBody  = WithoutComments(hookSource)
)

// marker starts the argument by which a command is known as a hook of lastcall's.
const marker = names.Group + "/drain-hook:"

// start runs the program in $1 with the image's own python3, isolated from the
// environment (-I) and from site-packages (-S). Without a python3 that works, the
// engine still gets the settle. A hook that fails would be an event and no
// settle, so it never does.
const start = `P=$(command -v python3) || { sleep 5; exit 0; }; "$P" -I -S -c "$1" || sleep 5; exit 0`

// Command is the argv of the preStop exec that runs Program.
func Command(e engine.Engine, at engine.Endpoint, graceSeconds int64) []string {
	return command(Program(e, at, graceSeconds))
}

func command(program string) []string {
	return []string{"/bin/sh", "-c", start, marker + HookVersion, program}
}

// IsHook reports whether a preStop command is a hook of lastcall's, of this or
// any other version.
func IsHook(command []string) bool {
	return slices.ContainsFunc(command, func(argument string) bool { return strings.HasPrefix(argument, marker) })
}

// Program is the text of the hook for this engine, listener and grace period. A
// grace period outside the range is read as the nearest one inside.
func Program(e engine.Engine, at engine.Endpoint, graceSeconds int64) string {
	return render(e, at, timesFor(graceSeconds), "/proc")
}

// times are when the hook does what, from its own start.
type times struct {
	settle   time.Duration // the first read starts
	last     time.Duration // the moment from which no read starts
	end      time.Duration // the latest moment a read may end
	interval time.Duration // between the starts of two reads
	limit    time.Duration // the longest one read may take
	logEvery time.Duration // the longest silence in the log
}

func timesFor(graceSeconds int64) times {
	grace := Grace(graceSeconds)
	return times{
		settle:   Settle,
		last:     grace.ReadsUntil(),
		end:      grace.SignalBy(),
		interval: ReadInterval,
		limit:    ReadLimit,
		logEvery: LogInterval,
	}
}

func render(e engine.Engine, at engine.Endpoint, t times, proc string) string {
	var gauges [][]string
	optional := []string{}
	for _, g := range e.Gauges {
		gauges = append(gauges, append([]string{g.Name}, g.Formerly...))
		if g.Optional {
			optional = append(optional, g.Name)
		}
	}
	var b strings.Builder
	constant := func(name string, value any) { b.WriteString(Constant(name, value)) }
	constant("GAUGES", gauges)
	constant("OPTIONAL", optional)
	constant("BREAKDOWN", append([]string{}, e.BreakdownLabels...))
	constant("COPY", append([]string{}, e.CopyLabels...))
	b.WriteString(fetchConstants(at, proc))
	constant("SETTLE", t.settle.Seconds())
	constant("LAST", t.last.Seconds())
	constant("END", t.end.Seconds())
	constant("INTERVAL", t.interval.Seconds())
	constant("LIMIT", t.limit.Seconds())
	constant("LOG_EVERY", t.logEvery.Seconds())
	constant("IN_A_ROW", IdleReads)
	return b.String() + fetchBody + hookBody
}

// FetchProgram is the part of a program that asks the engine for its metrics, for
// whatever reads them: fetch.py and its constants. The Python behind it defines
// judge, and calls fetch_within.
func FetchProgram(at engine.Endpoint) string { return fetchConstants(at, "/proc") + fetchBody }

func fetchConstants(at engine.Endpoint, proc string) string {
	return Constant("SCHEME", at.Scheme) +
		Constant("HOSTS", append([]string{}, at.Hosts...)) +
		Constant("PORT", at.Port) +
		Constant("PATH", at.Path) +
		Constant("MAX_BODY", engine.MaxBody) +
		Constant("PROC", proc)
}

// Constant is a line of Python that gives a name to a string, a number or a list
// of those, which mean in Python what they mean in JSON.
func Constant(name string, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("rendering %s: %v", name, err))
	}
	return fmt.Sprintf("%s = %s\n", name, text)
}

// WithoutComments drops what a container need not carry: empty lines, and
// everything from "#:" on.
func WithoutComments(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		code, _, _ := strings.Cut(line, "#:")
		if code = strings.TrimRight(code, " \n"); code != "" {
			b.WriteString(code + "\n")
		}
	}
	return b.String()
}
