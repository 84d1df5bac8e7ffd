package drain

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
)

// A row of the table of listeners: what a listener does at every read, and how
// the hook ends because of it.
type row struct {
	listener func(t *testing.T) *listener
	says     string // part of the last line
}

func TestNothingToMeasureEndsAtTheSecondSuchReadInARow(t *testing.T) {
	demanding := func(t *testing.T, version uint16) *tls.Config {
		config := untrusted(t)
		config.ClientAuth, config.MinVersion, config.MaxVersion = tls.RequireAnyClientCert, version, version
		return config
	}
	rows := map[string]row{
		"refuses the connection": {closedPort, "nothing listens on port"},
		"answers 404":            {func(t *testing.T) *listener { return serving(t, status(404)) }, "the answer is 404"},
		"answers 401":            {func(t *testing.T) *listener { return serving(t, status(401)) }, "the answer is 401"},
		"answers 500":            {func(t *testing.T) *listener { return serving(t, status(500)) }, "the answer is 500"},
		"answers 503":            {func(t *testing.T) *listener { return serving(t, status(503)) }, "the answer is 503"},
		"redirects to another port": {
			func(t *testing.T) *listener { return serving(t, redirect("http://127.0.0.1:1/idle")) }, "the answer is 307"},
		"redirects to another host": {
			func(t *testing.T) *listener { return serving(t, redirect("//example.com/idle")) }, "the answer is 307"},
		"redirects to another scheme on its own port": {
			func(t *testing.T) *listener {
				return serving(t, func(w http.ResponseWriter, r *http.Request) {
					redirect("https://"+r.Host+"/idle")(w, r)
				})
			}, "the answer is 307"},
		"redirects nowhere": {func(t *testing.T) *listener { return serving(t, status(302)) }, "the answer is 302"},
		"redirects to what is no URL": {
			func(t *testing.T) *listener { return serving(t, redirect("http://[::1")) }, "the answer is 307"},
		"closes before a request": {
			func(t *testing.T) *listener { return accepting(t, "http", func(net.Conn) {}) }, "the connection ends before an answer"},
		"closes before a status line": {
			func(t *testing.T) *listener { return accepting(t, "http", raw("")) }, "the connection ends before an answer"},
		"resets before a status line": {
			func(t *testing.T) *listener { return accepting(t, "http", reset("")) }, "the connection ends before an answer"},
		"speaks something else, as gRPC does": {
			func(t *testing.T) *listener {
				return accepting(t, "http", raw("\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"))
			}, "the answer is not HTTP"},
		"speaks TLS where http is asked, and closes as uvicorn does": {
			func(t *testing.T) *listener { return accepting(t, "http", raw("")) }, "the connection ends before an answer"},
		"speaks TLS where http is asked, and says so": {
			func(t *testing.T) *listener {
				l := servingTLS(t, nil, text(idleBody))
				l.Scheme = "http"
				return l
			}, "the answer is 400"},
		"speaks http where TLS is asked": {
			func(t *testing.T) *listener {
				l := serving(t, text(idleBody))
				l.Scheme = "https"
				return l
			}, "TLS fails: WRONG_VERSION_NUMBER"},
		"closes in the TLS handshake": {
			func(t *testing.T) *listener { return accepting(t, "https", raw("")) }, ""},
		"resets in the TLS handshake": {
			func(t *testing.T) *listener { return accepting(t, "https", reset("")) }, ""},
		"demands a client certificate over TLS 1.2": {
			func(t *testing.T) *listener { return servingTLS(t, demanding(t, tls.VersionTLS12), text(idleBody)) }, ""},
		"demands a client certificate over TLS 1.3": {
			func(t *testing.T) *listener { return servingTLS(t, demanding(t, tls.VersionTLS13), text(idleBody)) }, ""},
		"drops a client without a certificate after the TLS 1.3 handshake, as uvicorn does": {
			func(t *testing.T) *listener {
				return accepting(t, "https", overTLS(untrusted(t), func(net.Conn) {}))
			}, ""},
		"resets a client without a certificate after the TLS 1.3 handshake": {
			func(t *testing.T) *listener {
				inner := untrusted(t)
				return accepting(t, "https", func(conn net.Conn) {
					if tls.Server(conn, inner).Handshake() == nil {
						_ = conn.(*net.TCPConn).SetLinger(0)
					}
				})
			}, ""},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := row.listener(t)
			ended := run{endpoint: l.Endpoint, times: patient}.hook(t)
			assert.Equal(t, names.EndNothingToMeasure, endOf(t, ended))
			assert.Contains(t, ended.last().text, row.says)
			if reads := l.reads.Load(); reads > 0 {
				assert.Equal(t, int32(2), reads)
			}
			assert.GreaterOrEqual(t, ended.last().at, patient.settle+patient.interval)
			assert.Less(t, ended.last().at, patient.last)
		})
	}
}

func TestASecondRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	l := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Path+"/more")
		w.WriteHeader(http.StatusMovedPermanently)
	})
	ended := run{endpoint: l.Endpoint, times: patient}.hook(t)
	assert.Equal(t, names.EndNothingToMeasure, endOf(t, ended))
	assert.Contains(t, ended.last().text, "the answer is 301")
	assert.Equal(t, int32(4), l.reads.Load(), "two reads of two requests")
}

func TestAnAnswerThatProvesNothingKeepsTheHookUntilTheDeadline(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	chunk := "10\r\nvllm:num_request\r\n"
	huge := idleBody + strings.Repeat("vllm:prompt_tokens_total 1\n", 2<<20/27)
	answers := func(answer string) func(*testing.T) *listener {
		return func(t *testing.T) *listener { return accepting(t, "http", raw(answer)) }
	}
	rows := map[string]row{
		"requests in flight": {
			func(t *testing.T) *listener { return serving(t, text(busyBody)) },
			"4 in flight: vllm:num_requests_running 3, vllm:num_requests_waiting 1"},
		"a gauge is missing": {
			func(t *testing.T) *listener { return serving(t, text(missingBody)) }, "vllm:num_requests_waiting is missing"},
		"an empty body":     {func(t *testing.T) *listener { return serving(t, text("")) }, "unknown"},
		"a body of JSON":    {func(t *testing.T) *listener { return serving(t, text(`"vllm:num_requests_running 0\n"`)) }, "unknown"},
		"a body of 2 MiB":   {func(t *testing.T) *listener { return serving(t, text(huge)) }, "over 1048576 bytes"},
		"a length of 2 MiB": {answers(withLength(len(huge), huge)), "over 1048576 bytes"},
		"a length of 2 MiB and a body that is cut": {
			answers(withLength(2<<20, idleBody)), "cut short"},
		"a body cut short of its length":          {answers(withLength(1000, idleBody)), "cut short"},
		"a chunked body cut after a chunk":        {answers(chunked + chunk), "cut short"},
		"a chunked body cut in a chunk":           {answers(chunked + "100\r\n" + idleBody), "cut short"},
		"a chunked body with a bad chunk":         {answers(chunked + chunk + "zz\r\n"), "cut short"},
		"a reset in the body":                     {func(t *testing.T) *listener { return accepting(t, "http", reset(withLength(1000, idleBody))) }, "cut short"},
		"a reset in the headers":                  {func(t *testing.T) *listener { return accepting(t, "http", reset("HTTP/1.1 200 OK\r\nServer: ")) }, "the read failed"},
		"no end to the headers":                   {answers("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 200) + "\r\n"), "the read failed"},
		"204 and no body":                         {func(t *testing.T) *listener { return serving(t, status(204)) }, "the answer is 204"},
		"a TLS body cut short of its length":      {tlsAnswers(withLength(1000, idleBody)), "cut short"},
		"a body in an encoding nobody asked for":  {answers("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00junk"), "unknown"},
		"an answer in a version nobody asked for": {answers("HTTP/2.0 200 OK\r\n\r\n" + idleBody), "the read failed"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := row.listener(t)
			ended := run{endpoint: l.Endpoint, times: brief}.hook(t)
			assert.Equal(t, names.EndDeadline, endOf(t, ended))
			assert.Contains(t, ended.last().text, row.says)
			assert.Contains(t, ended.last().text, "the same in every read")
			assert.GreaterOrEqual(t, ended.last().at, brief.last)
			assert.Less(t, ended.last().at, brief.last+slack)
			assert.Greater(t, l.reads.Load(), int32(2))
		})
	}
}

func tlsAnswers(answer string) func(*testing.T) *listener {
	return func(t *testing.T) *listener { return accepting(t, "https", overTLS(untrusted(t), raw(answer))) }
}

func TestAListenerThatDoesNotFinishAnsweringIsBusy(t *testing.T) {
	rows := map[string]func(t *testing.T) *listener{
		"accepts and never answers": func(t *testing.T) *listener { return accepting(t, "http", hang) },
		"never accepts":             neverAccepting,
		"stalls in the TLS handshake": func(t *testing.T) *listener {
			return accepting(t, "https", hang)
		},
		"stalls after the TLS handshake": func(t *testing.T) *listener {
			return accepting(t, "https", overTLS(untrusted(t), hang))
		},
		"drips a status line": func(t *testing.T) *listener { return accepting(t, "http", drip("HTTP/1.1 200 ", "O")) },
		"drips headers": func(t *testing.T) *listener {
			return accepting(t, "http", drip("HTTP/1.1 200 OK\r\nServer: ", "x"))
		},
		"drips interim answers": func(t *testing.T) *listener {
			return accepting(t, "http", drip("", "HTTP/1.1 100 Continue\r\n\r\n"))
		},
		"drips a body byte by byte for ever": func(t *testing.T) *listener {
			return accepting(t, "http", drip(withLength(1<<19, idleBody), " "))
		},
		"drips a body that has no length": func(t *testing.T) *listener {
			return accepting(t, "http", drip("HTTP/1.1 200 OK\r\n\r\n"+idleBody, "\n"))
		},
		"drips a body over TLS": func(t *testing.T) *listener {
			return accepting(t, "https", overTLS(untrusted(t), drip(withLength(1<<19, idleBody), " ")))
		},
		"drips chunks": func(t *testing.T) *listener {
			return accepting(t, "http", drip("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n\n\r\n"))
		},
		"drips the second answer of a redirect": func(t *testing.T) *listener {
			return serving(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/metrics" {
					redirect("/drip")(w, r)
					return
				}
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
		},
		"hangs at one address while another is idle": func(t *testing.T) *listener {
			// The limit holds for the read, not for each address.
			l := accepting(t, "http", hang)
			l.Hosts = []string{"127.0.0.1", "127.0.0.1"}
			return l
		},
	}
	for name, start := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := start(t)
			ended := run{endpoint: l.Endpoint, times: hasty}.hook(t)
			assert.Equal(t, names.EndDeadline, endOf(t, ended))
			assert.Contains(t, ended.last().text, "no answer in 0.2 s")
			assert.GreaterOrEqual(t, ended.last().at, hasty.last)
			assert.Less(t, ended.last().at, hasty.end+slack)
		})
	}
}

// neverAccepting is a listener whose queue of connections is full.
func neverAccepting(t *testing.T) *listener {
	l := accepting(t, "http", hang)
	socket := fullQueue(t)
	l.Endpoint = at("http", socket, "127.0.0.1")
	return l
}

func TestTwoIdleReadsInARowDrain(t *testing.T) {
	version := func(version uint16) func(*testing.T) *listener {
		return func(t *testing.T) *listener {
			return servingTLS(t, &tls.Config{MinVersion: version, MaxVersion: version}, text(idleBody))
		}
	}
	rows := map[string]func(t *testing.T) *listener{
		"over http":                            func(t *testing.T) *listener { return serving(t, text(idleBody)) },
		"over TLS 1.2, self-signed":            version(tls.VersionTLS12),
		"over TLS 1.3, self-signed":            version(tls.VersionTLS13),
		"with a length":                        answersRaw(withLength(len(idleBody), idleBody)),
		"until the connection closes":          answersRaw("HTTP/1.1 200 OK\r\n\r\n" + idleBody),
		"as HTTP/1.0":                          answersRaw("HTTP/1.0 200 OK\r\n\r\n" + idleBody),
		"after an interim answer":              answersRaw("HTTP/1.1 100 Continue\r\n\r\n" + withLength(len(idleBody), idleBody)),
		"after a relative redirect":            func(t *testing.T) *listener { return serving(t, redirect("/metrics/")) },
		"after a redirect with its own origin": func(t *testing.T) *listener { return serving(t, toOwnOrigin("http")) },
		"after a redirect over TLS":            func(t *testing.T) *listener { return servingTLS(t, nil, toOwnOrigin("https")) },
		"in chunks": func(t *testing.T) *listener {
			return serving(t, func(w http.ResponseWriter, _ *http.Request) {
				for line := range strings.Lines(idleBody) {
					say(w, line)
					w.(http.Flusher).Flush()
				}
			})
		},
		"at the third address": func(t *testing.T) *listener {
			l := onlyAt(t, "127.0.0.2")
			l.Hosts = []string{"127.0.0.1", "::1", "127.0.0.2"}
			return l
		},
		"at the IPv6 loopback": func(t *testing.T) *listener { return onlyAt(t, "::1") },
	}
	for name, start := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := run{endpoint: start(t).Endpoint, times: patient}.hook(t)
			assert.Equal(t, names.EndDrained, endOf(t, ended))
			assert.Len(t, ended.lines, 3)
			assert.GreaterOrEqual(t, ended.last().at, patient.settle+patient.interval)
			assert.Less(t, ended.last().at, patient.last)
		})
	}
}

func answersRaw(answer string) func(*testing.T) *listener {
	return func(t *testing.T) *listener { return accepting(t, "http", raw(answer)) }
}

func toOwnOrigin(scheme string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { redirect(scheme+"://"+r.Host+"/metrics/")(w, r) }
}

func TestWhatCountsInARow(t *testing.T) {
	busy, idle, gone, unknown := text(busyBody), text(idleBody), status(503), text(missingBody)
	stories := map[string]struct {
		answers []http.HandlerFunc
		end     string
		reads   int32 // 0 where the deadline decides
	}{
		"busy, then idle":                         {[]http.HandlerFunc{busy, busy, idle}, names.EndDrained, 4},
		"idle once, then busy, then idle":         {[]http.HandlerFunc{idle, busy, idle}, names.EndDrained, 4},
		"idle once, then unknown, then idle":      {[]http.HandlerFunc{idle, unknown, idle}, names.EndDrained, 4},
		"idle once, then a 503, then idle":        {[]http.HandlerFunc{idle, gone, idle}, names.EndDrained, 4},
		"one 503 between busy answers":            {[]http.HandlerFunc{busy, gone, busy}, names.EndDeadline, 0},
		"a 503 once, then idle, then 503":         {[]http.HandlerFunc{gone, idle, gone}, names.EndNothingToMeasure, 4},
		"a 503 once, then busy, then 503":         {[]http.HandlerFunc{gone, busy, gone}, names.EndNothingToMeasure, 4},
		"a 503 once, then a 404":                  {[]http.HandlerFunc{gone, status(404)}, names.EndNothingToMeasure, 2},
		"idle and 503 by turns":                   {[]http.HandlerFunc{idle, gone, idle, gone, idle, gone, busy}, names.EndDeadline, 0},
		"never two in a row":                      {[]http.HandlerFunc{idle, busy, gone, busy, idle, busy}, names.EndDeadline, 0},
		"three 503 after work: the engine is off": {[]http.HandlerFunc{busy, gone}, names.EndNothingToMeasure, 3},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := serving(t, inTurn(story.answers...))
			scale := patient
			if story.reads == 0 {
				scale = brief
			}
			ended := run{endpoint: l.Endpoint, times: scale}.hook(t)
			assert.Equal(t, story.end, endOf(t, ended), ended.texts())
			if story.reads > 0 {
				assert.Equal(t, story.reads, l.reads.Load())
			}
		})
	}
}

func TestTheEngineGoneMidHookLeavesNothingToMeasure(t *testing.T) {
	t.Parallel()
	ended := run{endpoint: goneAfter(t, 2).Endpoint, times: patient}.hook(t)
	assert.Equal(t, names.EndNothingToMeasure, endOf(t, ended))
	assert.Contains(t, strings.Join(ended.texts(), "\n"), "4 in flight")
	assert.Contains(t, ended.last().text, "nothing listens on port")
}

func TestProxiesInTheEnvironmentAreIgnored(t *testing.T) {
	t.Parallel()
	proxy := serving(t, text(busyBody))
	for scheme, l := range map[string]*listener{
		"http":  serving(t, text(idleBody)),
		"https": servingTLS(t, nil, text(idleBody)),
	} {
		var env []string
		for _, name := range []string{"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
			env = append(env, name+"="+strings.TrimSuffix(proxy.URL(), "/metrics"))
		}
		ended := run{endpoint: l.Endpoint, times: patient, env: append(env, "no_proxy=", "NO_PROXY=")}.hook(t)
		assert.Equal(t, names.EndDrained, endOf(t, ended), scheme)
		assert.Equal(t, int32(2), l.reads.Load(), scheme)
	}
	assert.Zero(t, proxy.reads.Load())
}

func TestTheEnvironmentCannotChangeThePython(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, dir, "sitecustomize.py", "raise SystemExit(7)")
	writeFile(t, dir, "http.py", "raise SystemExit(7)")
	l := serving(t, text(idleBody))
	ended := run{endpoint: l.Endpoint, times: patient, env: []string{
		"PYTHONPATH=" + dir, "PYTHONSTARTUP=" + dir + "/http.py", "PYTHONWARNINGS=error", "PYTHONHASHSEED=0",
		"SSL_CERT_FILE=/nonexistent", "LC_ALL=C", "PYTHONIOENCODING=ascii",
	}}.hook(t)
	assert.Equal(t, names.EndDrained, endOf(t, ended))
}

func TestAtFullScale(t *testing.T) {
	full := timesFor(MinGraceSeconds)
	stories := map[string]struct {
		listener *listener
		end      string
		at       time.Duration
	}{
		"idle":    {serving(t, text(idleBody)), names.EndDrained, 6 * time.Second},
		"refused": {closedPort(t), names.EndNothingToMeasure, 6 * time.Second},
		"busy":    {serving(t, text(busyBody)), names.EndDeadline, 10 * time.Second},
		// Reads that start at 5, 7 and 9 s, and none at 11 s.
		"hanging": {accepting(t, "http", hang), names.EndDeadline, 11 * time.Second},
	}
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := run{endpoint: story.listener.Endpoint, times: full}.hook(t)
			assert.Equal(t, story.end, endOf(t, ended))
			assert.GreaterOrEqual(t, ended.last().at, story.at)
			assert.Less(t, ended.last().at, story.at+time.Second)
			if name == "busy" {
				assert.InDelta(t, 6, story.listener.reads.Load(), 1, "one read a second from 5 s to 10 s")
			}
		})
	}
}

// endOf is the first word of the last line.
func endOf(t *testing.T, e ended) string {
	t.Helper()
	require.NotEmpty(t, e.lines, "the hook wrote no line")
	word, _, found := strings.Cut(e.last().text, ":")
	require.True(t, found, "the line %q", e.last().text)
	return word
}
