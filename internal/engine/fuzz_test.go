package engine

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
)

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(filepath.Join(fixtures, "*.prom"))
	require.NoError(f, err)
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, e := range All() {
			r := e.Read(body)
			switch r.Verdict {
			case Idle:
				requireIdle(t, e, string(body))
				require.Empty(t, r.Detail)
			case Busy:
				require.Positive(t, r.InFlight)
			case Unknown:
				require.NotEmpty(t, r.Reason)
				require.NotEmpty(t, r.Detail)
			}
			require.Equal(t, r.Verdict == Unknown, r.Reason != "")
			require.Equal(t, r.Verdict == Busy, r.InFlight > 0)
			require.Equal(t, r, e.Read(body), "the same body reads the same")
		}
	})
}

// requireIdle checks a body that was read as idle by other means than Read: of
// each expected gauge there is a line whose value is zero, and no line of a
// listed gauge is anything else, breakdowns apart.
func requireIdle(t *testing.T, e Engine, body string) {
	t.Helper()
	lines := strings.Split(body, "\n")
	for _, g := range e.Gauges {
		present := g.Optional
		for _, name := range append([]string{g.Name}, g.Formerly...) {
			for _, line := range lines {
				rest, listed := strings.CutPrefix(strings.Trim(line, " \t\r"), name)
				if !listed || rest != "" && !strings.ContainsAny(rest[:1], " \t{") {
					continue
				}
				breakdown := e.Name == SGLang && strings.Contains(rest, "priority")
				require.True(t, breakdown || endsInZero(rest), "line %q is not idle", line)
				present = true
			}
		}
		require.True(t, present, "%s is missing", g.Name)
	}
}

// endsInZero tries the end of every possible label set.
func endsInZero(rest string) bool {
	ends := []string{rest}
	for i, c := range rest {
		if c == '}' {
			ends = append(ends, rest[i+1:])
		}
	}
	return slices.ContainsFunc(ends, func(end string) bool {
		fields := strings.Fields(end)
		if len(fields) == 0 {
			return false
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		return err == nil && value == 0
	})
}

func FuzzRecognize(f *testing.F) {
	f.Add("vllm/vllm-openai:v0.29.0", "vllm serve x --port 8000 --host $(H)", "--ssl-keyfile k", "H", "10.0.0.1", "9090", false)
	f.Add("lmsysorg/sglang", "sh -c", "exec python3 -m sglang.launch_server --port ${P:-1} --host=\"$H\"", "H", "$(H)", "x", true)
	f.Add("", "bash -lc --", "cat <<E\nx\nE\nvllm serve x & wait", "", "", "", true)
	f.Fuzz(func(t *testing.T, image, command, arg, name, value, annotation string, operatorBuilt bool) {
		m, ok := Recognize(Container{
			Image:   image,
			Command: strings.Fields(command),
			Args:    []string{arg},
			Env:     map[string]string{name: value},
			Ports:   []Port{{name, 9000}},
		}, Source{
			OperatorBuilt: operatorBuilt,
			Annotations: map[string]string{
				names.AnnotationMetricsPort: annotation, names.AnnotationMetricsPath: annotation,
				names.AnnotationMetricsScheme: annotation, names.AnnotationPrometheusPort: annotation,
				names.AnnotationPrometheusPath: annotation, names.AnnotationEngine: annotation,
			},
		})
		if !ok {
			require.Empty(t, m)
			return
		}
		require.Contains(t, []string{"http", "https"}, m.Endpoint.Scheme)
		require.Positive(t, m.Endpoint.Port)
		require.LessOrEqual(t, m.Endpoint.Port, int32(65535))
		require.Regexp(t, `^/[!-~]*$`, m.Endpoint.Path)
		require.Equal(t, []string{"127.0.0.1", "::1"}, m.Endpoint.Hosts[:2])
		require.LessOrEqual(t, len(m.Endpoint.Hosts), 3)
		for _, host := range m.Endpoint.Hosts[2:] {
			addr, err := netip.ParseAddr(host)
			require.NoError(t, err)
			require.False(t, addr.IsLoopback() || addr.IsUnspecified())
			require.Contains(t, command+" "+arg+" "+value, "host", "nothing but --host names a host")
		}
		require.Contains(t, []string{FromAnnotation, FromCommand, FromImage}, m.From)
		require.Contains(t, []Role{RoleServer, RolePrefill, RoleDecode}, m.Role)
		require.Equal(t, m.Unmeasurable != "", m.Unmeasurable.Advice() != "")
	})
}

func FuzzShellWords(f *testing.F) {
	for _, text := range []string{
		"vllm serve x --port 8000 | tee /log &", "a 'b c' \"d $V\" e\\ f; # g", "cat <<E >>f\nx\nE\ny", "$(a (b)) ${V:-x} `c`",
	} {
		f.Add(text, "v w")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		params := []string{"p0", value}
		commands := splitShell(text, params, newEnvironment(map[string]string{"V": value}))
		size := 0
		for _, c := range commands {
			require.NotEmpty(t, c.words)
			for _, word := range c.words {
				size += len(word)
			}
		}
		// A backquote becomes a $( of one byte more.
		require.LessOrEqual(t, size, 3*len(text)+maxExpansion)

		quoted := "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		require.Equal(t, []simpleCommand{{words: []string{"echo", value}}}, splitShell("echo "+quoted, nil, newEnvironment(nil)), "a quoted word is itself")
		require.Equal(t, commands, splitShell(text, slices.Clone(params), newEnvironment(map[string]string{"V": value})), strconv.Quote(text))
	})
}
