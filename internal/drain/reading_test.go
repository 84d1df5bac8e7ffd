package drain

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/internal/engine"
)

// reader has the program of a hook, not run, judge bodies: four bytes of length
// and the body in, a line of JSON out.
const reader = `
import io, json, struct, sys
hook = {"__name__": "hook"}
exec(sys.argv[1], hook)
while True:
    header = sys.stdin.buffer.read(4)
    if not header:
        break
    body = sys.stdin.buffer.read(struct.unpack(">I", header)[0])
    response = io.BytesIO(body)
    response.length = 0
    try:
        kind, seen = hook["judge"](response)
    except hook["Unread"] as e:
        kind, seen = hook["BUSY"], str(e)
    verdict, in_flight = "Unknown", 0
    if len(body) <= hook["MAX_BODY"]:
        verdict, in_flight, _ = hook["reading"](body)
    print(json.dumps([kind, verdict, min(in_flight, sys.float_info.max), seen]))
`

type judged struct {
	kind, verdict string
	inFlight      float64
	seen          string
}

// judge is what the hook makes of each body.
func judge(t *testing.T, python string, e engine.Engine, bodies [][]byte) []judged {
	t.Helper()
	program := render(e, engine.Endpoint{Hosts: []string{}}, patient, "/nonexistent")
	var input, errors bytes.Buffer
	for _, body := range bodies {
		require.NoError(t, binary.Write(&input, binary.BigEndian, uint32(len(body))))
		input.Write(body)
	}
	cmd := exec.CommandContext(t.Context(), python, "-W", "error", "-I", "-S", "-c", reader, program)
	cmd.Stdin, cmd.Stderr = &input, &errors
	output, err := cmd.Output()
	require.NoError(t, err, errors.String())
	var all []judged
	for line := range strings.Lines(string(output)) {
		var j judged
		require.NoError(t, json.Unmarshal([]byte(line), &[]any{&j.kind, &j.verdict, &j.inFlight, &j.seen}))
		all = append(all, j)
	}
	require.Len(t, all, len(bodies))
	return all
}

// requireSameReading compares what the hook made of the bodies with
// engine.Read.
func requireSameReading(t *testing.T, python string, e engine.Engine, bodies [][]byte) map[engine.Verdict]int {
	t.Helper()
	verdicts := make(map[engine.Verdict]int)
	for i, got := range judge(t, python, e, bodies) {
		want := e.Read(bodies[i])
		verdicts[want.Verdict]++
		kind := "busy"
		if want.Verdict == engine.Idle {
			kind = "idle"
		}
		same := got.verdict == string(want.Verdict) && got.kind == kind &&
			(want.Verdict != engine.Busy || math.Abs(got.inFlight-want.InFlight) <= 1e-9*want.InFlight)
		require.True(t, same, "engine.Read says %s %v (%s %s), the hook says %s %v (%s: %s) of this %s body:\n%.2000q",
			want.Verdict, want.InFlight, want.Reason, want.Detail, got.verdict, got.inFlight, got.kind, got.seen, e.Name, bodies[i])
	}
	return verdicts
}

func fixtures(t *testing.T) [][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "engine", "testdata", "fixtures", "*.prom"))
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	var bodies [][]byte
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		bodies = append(bodies, body)
	}
	return bodies
}

func TestTheHookReadsEveryFixtureAsTheEngineTableDoes(t *testing.T) {
	bodies := fixtures(t)
	for _, python := range pythons(t) {
		t.Run(python, func(t *testing.T) {
			t.Parallel()
			for _, e := range engine.All() {
				verdicts := requireSameReading(t, python, e, bodies)
				for _, verdict := range []engine.Verdict{engine.Idle, engine.Busy, engine.Unknown} {
					assert.Positive(t, verdicts[verdict], "no fixture of %s is %s", e.Name, verdict)
				}
			}
		})
	}
}

func TestTheHookKeepsTheLimitOfABody(t *testing.T) {
	t.Parallel()
	e, _ := engine.Lookup(engine.VLLM)
	body := func(size int) []byte {
		return []byte(idleBody + strings.Repeat("#", size-len(idleBody)))
	}
	requireSameReading(t, "python3", e, [][]byte{body(engine.MaxBody), body(engine.MaxBody + 1)})
}

// TestTheHookReadsHostileBodiesAsTheEngineTableDoes makes bodies out of pieces
// that have broken parsers, and out of fixtures that are cut and spliced.
func TestTheHookReadsHostileBodiesAsTheEngineTableDoes(t *testing.T) {
	const seed, each = 20261129, 3000
	seeds := fixtures(t)
	for _, e := range engine.All() {
		t.Run(string(e.Name), func(t *testing.T) {
			t.Parallel()
			h := hostile{Rand: rand.New(rand.NewPCG(seed, 1)), engine: e}
			var bodies [][]byte
			for range each {
				bodies = append(bodies, []byte(h.body()), h.spliced(seeds))
			}
			verdicts := requireSameReading(t, "python3", e, bodies)
			for _, verdict := range []engine.Verdict{engine.Idle, engine.Busy, engine.Unknown} {
				assert.Greater(t, verdicts[verdict], each/20, "too few bodies are %s to mean much", verdict)
			}
		})
	}
}

type hostile struct {
	*rand.Rand
	engine engine.Engine
	calm   int  // how many times rarer odd things are in this body
	idle   bool // whether values that are not odd are zero
}

func (h *hostile) pick(from ...string) string { return from[h.IntN(len(from))] }

// oneIn is true once in n times, in a calm body less often.
func (h *hostile) oneIn(n int) bool { return h.IntN(n*h.calm) == 0 }

// body has few odd things, so that one of them can change the verdict.
func (h *hostile) body() string {
	h.calm, h.idle = 1+h.IntN(12), h.IntN(2) == 0
	var b strings.Builder
	if h.oneIn(30) {
		b.WriteString(h.pick("{", "\"", "<html>", "{}\n", "\n\n", " \t\r\n", "9a 1\n", "a\n", "a{", ":\t", "\x00", "\ufeff", "\xff"))
	}
	for _, g := range h.engine.Gauges {
		if h.oneIn(20) || g.Optional && h.IntN(2) == 0 {
			continue
		}
		name := g.Name
		if len(g.Formerly) > 0 && h.IntN(4) == 0 {
			name = g.Formerly[0]
		}
		lines := []string{h.typed(name)}
		for range 1 + h.IntN(2) {
			lines = append(lines, h.sample(name))
		}
		if h.oneIn(10) {
			lines = append(lines, h.pick("# HELP "+name+" a\\q", "#", "junk", "junk{ 1 2 3", name+"_by_reason{reason=\"capacity\"} 99",
				"x_"+name+" 7", "{\""+name+"\"} 7", "\""+name+"\" 7", "# EOF", strings.ToUpper(name)+" 3"))
		}
		h.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		for _, line := range lines {
			b.WriteString(line + h.oddly(12, "\n", "\r\n", " \n", "\n\n", "\r", "\t\r \n", "\v\n", "\u2028"))
		}
	}
	return b.String()
}

// oddly is the first choice, and once in n times any.
func (h *hostile) oddly(n int, from ...string) string {
	if h.oneIn(n) {
		return h.pick(from...)
	}
	return from[0]
}

func (h *hostile) typed(name string) string {
	return h.oddly(8, "#", "# ", "#\t", " #", "##", "") + h.oddly(20, " TYPE", "TYPE", " type", " TYPE\t", " TYPEX") +
		h.oddly(20, " ", "\t", "  ", "") + name +
		h.oddly(20, " gauge", " GAUGE", " counter", " untyped", " unknown", "", " gauge ", " gauge x", " histogram", " gau ge", "\tgauge", " un\u212anown")
}

func (h *hostile) sample(name string) string {
	return h.oddly(20, "", " ", "\t", "\r", "\v") + name + h.oddly(20, "", " ", "\t", "\u00a0") + h.labels() +
		h.oddly(20, " ", "\t", "  ", "", "\u00a0") + h.value() +
		h.oddly(10, "", " 1712345678", " 1712345678.5", " 1e3", " x", " 1 2", " # {a=\"b\"} 1", " #", " 1 # {} 2", " 1 #", " 1x", "\t-5",
			" NaN", " 1 2 # 3", " 1_000", " 0x1p4", " #{", "\u00a01", "\x1c1", "\x851", " 1e999")
}

func (h *hostile) labels() string {
	if h.oneIn(8) {
		return h.pick("", "{}", "{ }", "{,}", "{", "}", "{{}}", "{}{}", "{\"a\"}", "{=\"b\"}", "{a}", "{a=b}", "{a='b'}")
	}
	var pairs []string
	for i := range 1 + h.IntN(3) {
		label := fmt.Sprintf("l%d", i)
		if h.IntN(3) == 0 {
			label = h.pick("tp_rank", "priority", "engine", "pp_rank", "a", "le")
		}
		if h.oneIn(10) {
			label = h.pick("__name__", "\"priority\"", "\"tp_rank\"",
				"\"a}b\"", "\"\"", "x\"y\"", "\"x\\\"\"", "\"x\"y", "1a", "a:b", "é", "a-b", "_", "quantile")
		}
		value := h.pick("", "0", "1", "1")
		if h.oneIn(8) {
			value = h.pick("a \\\"b} c", "}", "{", ",", "=\\\\", "\\n", "\\t", "\\", "é", "\xff", "\xed\xa0\x80", " ", "\x00", "#", "a\"b", "\r", "\u2028")
		}
		pairs = append(pairs, h.oddly(20, "", " ", "\t")+label+h.oddly(20, "", " ")+h.oddly(40, "=", "", "==")+h.oddly(20, "", " ")+
			"\""+value+h.oddly(40, "\"", "", "'")+h.oddly(20, "", " ", "x"))
	}
	return "{" + strings.Join(pairs, h.oddly(40, ",", "", ";", ",,", ", ")) + h.oddly(20, "", ",", ", ", "}") + h.oddly(40, "}", "", "]")
}

func (h *hostile) value() string {
	if h.oneIn(12) {
		return h.pick("NaN", "nan", "-NaN", "+nan", "Inf", "-Inf", "+inf", "infinity", "infi", "-1", "-0", "-0.0", "+0", "1_0", "0x0", "0x1p2", "1e999", "-1e999",
			"1e-999", "-1e-999", ".5", "5.", ".", "e5", "1e", "1e+", "+", "", "x", "1.5e3", "٣", "1d", "0E0", "1,5", "0.0.0", "1e308", "1.7976931348623157e308",
			strings.Repeat("9", 400), "0."+strings.Repeat("0", 400)+"1", "\"0\"", "true", "None", "0f", "0 0")
	}
	if h.idle {
		return h.pick("0", "0.0", "0e+00")
	}
	return h.pick("0", "0.0", "1e+00", "3", "12.0", "0.5")
}

// spliced is a fixture with some bytes deleted, doubled, or taken from another.
func (h *hostile) spliced(seeds [][]byte) []byte {
	body := bytes.Clone(seeds[h.IntN(len(seeds))])
	for range h.IntN(4) {
		if len(body) < 2 {
			break
		}
		from := h.IntN(len(body))
		to := min(len(body), from+h.IntN(30))
		other := seeds[h.IntN(len(seeds))]
		start := h.IntN(len(other) + 1)
		piece := [][]byte{nil, body[from:to], other[start:min(len(other), start+h.IntN(200))], {byte(h.IntN(256))}}[h.IntN(4)]
		body = bytes.Join([][]byte{body[:from], piece, body[to:]}, nil)
	}
	return body
}

// alarmed reads a thousand times under a rain of alarms, none of which may
// leave a read.
const alarmed = `
import signal, sys, time
hook = {"__name__": "hook"}
exec(sys.argv[1], hook)
hook["LIMIT"], hook["END"] = 0.0002, 1e9

def fetch(hosts, path):
    while True:
        try:
            time.sleep(0)
        finally:
            str(hosts)
hook["fetch"] = fetch

setitimer = signal.setitimer
signal.setitimer = lambda which, first, repeat=0.0: setitimer(which, first, repeat and 0.00003)
signal.signal(signal.SIGALRM, hook["on_alarm"])
for _ in range(1000):
    kind, seen = hook["read"]()
    assert kind == "busy" and seen.startswith("no answer"), (kind, seen)
print("done")
`

func TestNoAlarmLeavesTheReadThatSetIt(t *testing.T) {
	t.Parallel()
	program := renderFor(t, engine.Endpoint{Hosts: []string{}}, patient, "/nonexistent")
	output, err := exec.CommandContext(t.Context(), "python3", "-I", "-S", "-c", alarmed, program).CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Equal(t, "done\n", string(output))
}
