package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// A version manager's python3 is a shell script that takes longer to start than
	// Python itself: the program is run by the interpreter behind it.
	if path, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		if err := os.Setenv("PATH", filepath.Dir(string(path))+":"+os.Getenv("PATH")); err != nil {
			panic(err)
		}
	}
	// The server's side of a stream logs when the client's goes away, which is the
	// point of many a test.
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// patient are limits that a busy machine keeps, and hasty ones for engines that
// never finish answering.
const (
	patient = 20 * time.Second
	hasty   = 300 * time.Millisecond
)

// endpointOf is where something that listens on loopback serves its metrics.
func endpointOf(scheme string, address net.Addr) engine.Endpoint {
	return engine.Endpoint{Scheme: scheme, Hosts: []string{"127.0.0.1", "::1"}, Port: int32(address.(*net.TCPAddr).Port), Path: "/metrics"}
}

// runs runs the program as the kubelet would.
func runs(t *testing.T, at engine.Endpoint, ports []uint16, limit time.Duration, change ...string) answer {
	t.Helper()
	argv := command(at, ports)
	argv[4] = strings.NewReplacer(change...).Replace(program(at, ports, limit, 2*patient))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "http_proxy=http://127.0.0.1:1", "https_proxy=http://127.0.0.1:1")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	output, err := cmd.Output()
	require.NoError(t, err, complaint.String())
	require.Empty(t, complaint.String())
	a, err := parse(output)
	require.NoError(t, err)
	return a
}

func fixture(t *testing.T, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("..", "engine", "testdata", "fixtures", file))
	require.NoError(t, err)
	return body
}

func TestTheBodyArrivesAsItIsAndIsJudged(t *testing.T) {
	for file, want := range map[string]struct {
		engine   engine.Name
		verdict  engine.Verdict
		inFlight int64
		reason   string
		message  string
	}{
		"vllm_v0_idle.prom":                             {engine.VLLM, engine.Idle, 0, "", ""},
		"vllm_v1_by_reason_test_waiting6_running3.prom": {engine.VLLM, engine.Busy, 9, "", "vllm:num_requests_running 3, vllm:num_requests_waiting 6"},
		"rule_sglang_all_zero.prom":                     {engine.SGLang, engine.Idle, 0, "", ""},
		"sglang_plain_docs_162_2826.prom":               {engine.SGLang, engine.Busy, 2988, "", "sglang:num_running_reqs 162, sglang:num_queue_reqs 2826"},
		"rule_missing_family.prom":                      {engine.VLLM, engine.Unknown, 0, names.ReadGaugesMissing, "vllm:num_requests_waiting is missing"},
		"rule_body_html.prom":                           {engine.VLLM, engine.Unknown, 0, names.ReadNotMetrics, "the body is not Prometheus text"},
		"rule_nan.prom":                                 {engine.VLLM, engine.Unknown, 0, names.ReadInvalidValue, ""},
		"rule_hostile_labels.prom":                      {engine.VLLM, engine.Idle, 0, "", ""},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			body := fixture(t, file)
			server := httptest.NewServer(text(string(body)))
			defer server.Close()
			a := runs(t, endpointOf("http", server.Listener.Addr()), nil, patient)
			assert.Equal(t, body, a.body)
			e, _ := engine.Lookup(want.engine)
			result, err := a.result(e)
			require.NoError(t, err)
			assert.Equal(t, want.verdict, result.Verdict)
			assert.Equal(t, want.inFlight, result.InFlight)
			assert.Equal(t, want.reason, result.Reason)
			if want.reason != names.ReadInvalidValue {
				assert.Equal(t, want.message, result.Message)
			}
			assert.False(t, result.ConnectionsKnown, "nobody asked for them")
		})
	}
}

const idleBody = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n" +
	"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 0\n"

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// overHTTP is an engine that answers so.
func overHTTP(handler http.HandlerFunc) func(*testing.T) engine.Endpoint {
	return func(t *testing.T) engine.Endpoint {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return endpointOf("http", server.Listener.Addr())
	}
}

// overTLS is one with a certificate that nobody trusts.
func overTLS(handler http.HandlerFunc, config *tls.Config) func(*testing.T) engine.Endpoint {
	return func(t *testing.T) engine.Endpoint {
		server := httptest.NewUnstartedServer(handler)
		server.TLS = config
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // failing handshakes are the point
		server.StartTLS()
		t.Cleanup(server.Close)
		return endpointOf("https", server.Listener.Addr())
	}
}

// accepting hands every connection to talk, and closes it after.
func accepting(scheme string, talk func(net.Conn)) func(*testing.T) engine.Endpoint {
	return func(t *testing.T) engine.Endpoint {
		l := listen(t, "tcp", "127.0.0.1:0")
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() { talk(conn); _ = conn.Close() }()
			}
		}()
		return endpointOf(scheme, l.Addr())
	}
}

func raw(answer string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 4096))
		_, _ = io.WriteString(conn, answer)
	}
}

func drip(conn net.Conn) {
	raw("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")(conn)
	for range time.Tick(20 * time.Millisecond) {
		if _, err := io.WriteString(conn, "#"); err != nil {
			return
		}
	}
}

func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func redirect(where string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			http.Redirect(w, r, where, http.StatusTemporaryRedirect)
			return
		}
		text(idleBody)(w, r)
	}
}

func closedPort(t *testing.T) engine.Endpoint {
	l := listen(t, "tcp", "127.0.0.1:0")
	require.NoError(t, l.Close())
	return endpointOf("http", l.Addr())
}

func onlyIPv6(t *testing.T) engine.Endpoint {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback: %v", err)
	}
	server := &http.Server{Handler: text(idleBody)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return endpointOf("http", l.Addr())
}

func TestWhatAnEngineMayAnswer(t *testing.T) {
	large := strings.Repeat("# not a gauge of ours\n", engine.MaxBody/22+1)
	for name, c := range map[string]struct {
		engine  func(*testing.T) engine.Endpoint
		limit   time.Duration
		reason  string // empty for idle
		message string
	}{
		"idle over TLS that nobody trusts":     {overTLS(text(idleBody), nil), patient, "", ""},
		"idle on IPv6 only":                    {onlyIPv6, patient, "", ""},
		"a redirect within the origin":         {overHTTP(redirect("/metrics/")), patient, "", ""},
		"a redirect elsewhere":                 {overHTTP(redirect("http://192.0.2.1/metrics")), patient, names.HeldReadFailed, "the engine cannot be asked: the answer is 307"},
		"404":                                  {overHTTP(http.NotFound), patient, names.HeldReadFailed, "the engine cannot be asked: the answer is 404"},
		"500":                                  {overHTTP(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), patient, names.HeldReadFailed, "the engine cannot be asked: the answer is 500"},
		"204":                                  {overHTTP(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), patient, names.HeldReadFailed, "the engine cannot be asked: the answer is 204"},
		"no listener":                          {closedPort, patient, names.HeldReadFailed, "the engine cannot be asked: nothing listens on port"},
		"a client certificate is demanded":     {overTLS(text(idleBody), &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}), patient, names.HeldReadFailed, "the engine cannot be asked: TLS fails"},
		"no HTTP":                              {accepting("http", raw("SSH-2.0-x\r\n")), patient, names.HeldReadFailed, "the engine cannot be asked: the answer is not HTTP"},
		"closes before an answer":              {accepting("http", raw("")), patient, names.HeldReadFailed, "the engine cannot be asked: the connection ends before an answer"},
		"a body cut short of its length":       {accepting("http", raw("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"+idleBody)), patient, names.HeldReadIncomplete, "the engine's answer: the body is cut short"},
		"a body cut in a chunk":                {accepting("http", raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n100\r\n"+idleBody)), patient, names.HeldReadIncomplete, "the engine's answer: the body is cut short"},
		"a body over 1 MiB":                    {overHTTP(text(idleBody + large)), patient, names.ReadTooLarge, "the engine's answer: the body is over 1048576 bytes"},
		"a body of exactly 1 MiB":              {overHTTP(text(idleBody + strings.Repeat("\n", engine.MaxBody-len(idleBody)))), patient, "", ""},
		"never an answer":                      {accepting("http", hang), hasty, names.HeldReadTimedOut, "the engine does not finish answering in 2s"},
		"never the end of a handshake":         {accepting("https", hang), hasty, names.HeldReadTimedOut, "the engine does not finish answering in 2s"},
		"a drip that never ends":               {accepting("http", drip), hasty, names.HeldReadTimedOut, "the engine does not finish answering in 2s"},
		"a body that ends like our answer":     {overHTTP(text(idleBody + endMark)), patient, "", ""},
		"a listed gauge with a line that ends": {overHTTP(text(idleBody + "vllm:num_requests_running")), patient, names.ReadInvalidValue, "vllm:num_requests_running has a line that cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, _ := engine.Lookup(engine.VLLM)
			result, err := runs(t, c.engine(t), nil, c.limit).result(e)
			if err != nil {
				f := (&Reader{}).asFailure(t.Context(), err)
				result.Verdict, result.Reason, result.Message = engine.Unknown, f.reason, f.message
			}
			if c.reason == "" {
				require.Equal(t, engine.Idle, result.Verdict, result.Message)
				return
			}
			assert.Equal(t, engine.Unknown, result.Verdict)
			assert.Equal(t, c.reason, result.Reason)
			assert.Contains(t, result.Message, c.message)
		})
	}
}

func TestTheStartIsThatOfTheFirstProcessOfTheContainer(t *testing.T) {
	at := overHTTP(text(idleBody))(t)
	first, second := runs(t, at, nil, patient), runs(t, at, nil, patient)
	assert.NotEmpty(t, first.Started)
	assert.Equal(t, first.Started, second.Started, "two reads of one run")

	proc := t.TempDir()
	write := func(text string, path ...string) {
		file := filepath.Join(append([]string{proc}, path...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	const stat = "%d (a (b) c) S 0 1 1 0 -1 4194560 9 9 9 9 9 9 9 9 20 0 1 0 %d 99 99\n"
	write("0::/engine\n", "self", "cgroup")
	for pid, started := range map[int]int{31: 500, 30: 600, 1: 100} {
		cgroup := "0::/engine\n"
		if pid == 1 {
			cgroup = "0::/pause\n"
		}
		write(cgroup, fmt.Sprint(pid), "cgroup")
		write(fmt.Sprintf(stat, pid, started), fmt.Sprint(pid), "stat")
	}
	a := runs(t, at, nil, patient, `PROC = "/proc"`, fmt.Sprintf("PROC = %q", proc))
	assert.Equal(t, "500", a.Started, "PID 1 is another container's where the Pod shares its process namespace")

	a = runs(t, at, nil, patient, `PROC = "/proc"`, `PROC = "/nonexistent"`)
	e, _ := engine.Lookup(engine.VLLM)
	_, err := a.result(e)
	assert.EqualError(t, err, "the start of the container's first process cannot be read in its /proc")
}

func TestTheProgramEndsByItselfWhateverItWaitsFor(t *testing.T) {
	large := overHTTP(text(strings.Repeat("#", engine.MaxBody)))
	for name, c := range map[string]struct {
		engine func(*testing.T) engine.Endpoint
		change []string
	}{
		"nobody reads what it says": {large, nil},
		"a limit of the fetch that does not hold": {accepting("http", hang), []string{
			" signal.signal(signal.SIGALRM, on_alarm)\n", "", "signal.setitimer(signal.ITIMER_REAL, max(limit, 0.001), 0.1)", "pass",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			text := program(c.engine(t), nil, patient, time.Second)
			changed := strings.NewReplacer(c.change...).Replace(text)
			require.Equal(t, len(c.change) > 0, changed != text)
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", start, marker, changed)
			_, err := cmd.StdoutPipe() // a pipe that is full at 64 KiB
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			state, err := cmd.Process.Wait() // Wait of cmd would close the pipe
			require.NoError(t, err)
			assert.Equal(t, "signal: alarm clock", state.String())
		})
	}
}

func TestTheCommandIsSmallAndPlain(t *testing.T) {
	for _, ports := range [][]uint16{nil, {8000}} {
		at := engine.Endpoint{Scheme: "https", Hosts: []string{"127.0.0.1", "::1"}, Port: 65535, Path: "/metrics"}
		argv := command(at, ports)
		size := len(url.Values{"command": argv}.Encode())
		t.Logf("with the ports %v: %d bytes of program, %d of URL", ports, len(argv[4]), size)
		if ports == nil {
			assert.Less(t, size, 8000, "some proxies take 8 KiB of URL")
		}
		assert.Less(t, size, 10_000)
		assert.NotRegexp(t, `[^\n -~]`, argv[4], "something that is not printable ASCII")
		assert.NotContains(t, argv[4], "#:")
		out, err := exec.Command("python3", "-W", "error", "-c", "import ast, sys; ast.parse(sys.argv[1], feature_version=(3, 6))", argv[4]).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestEveryBoundLeavesTimeForTheOneAroundIt(t *testing.T) {
	assert.Less(t, drain.ReadLimit, programLimit)
	assert.Less(t, programLimit, ReadLimit)
	r := reader(t, &rest.Config{Host: "http://127.0.0.1:1"}, inTurn(member()))
	made, err := New(r.config, r.live, r.clock)
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, made.limit)
}
