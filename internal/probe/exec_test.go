package probe

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// through is how an exec goes: a server as it is, and behind a proxy that refuses
// to upgrade to a WebSocket.
var through = map[string]func(*testing.T, *httptest.Server) *httptest.Server{
	"by WebSocket": func(_ *testing.T, server *httptest.Server) *httptest.Server { return server },
	"by SPDY, past a proxy that refuses the upgrade": func(t *testing.T, server *httptest.Server) *httptest.Server {
		return proxy(t, server, http.StatusBadGateway, "no upgrades here")
	},
	"by SPDY, where get is not granted": func(t *testing.T, server *httptest.Server) *httptest.Server {
		return proxy(t, server, http.StatusForbidden, forbidden("get"))
	},
}

// eachWay runs a test for each way.
func eachWay(t *testing.T, answer func(*session), test func(*testing.T, *httptest.Server)) {
	for name, way := range through {
		t.Run(name, func(t *testing.T) { test(t, way(t, serve(t, answer))) })
	}
}

func TestAReadAsksTheContainerAndTellsWhatItSays(t *testing.T) {
	var mu sync.Mutex
	var asked []url.Values
	answer := func(s *session) {
		mu.Lock()
		asked = append(asked, s.request.URL.Query())
		mu.Unlock()
		saying(whole)(s)
	}
	eachWay(t, answer, func(t *testing.T, server *httptest.Server) {
		asked = nil
		result := read(t, server)
		require.Equal(t, engine.Idle, result.Verdict, result.Message)
		assert.Equal(t, "123", result.Started)
		assert.Empty(t, result.Reason)
		require.Len(t, asked, 1)
		command := asked[0]["command"]
		delete(asked[0], "command")
		assert.Equal(t, url.Values{"container": {"main"}, "stdout": {"true"}, "stderr": {"true"}}, asked[0], "no stdin, no terminal")
		assert.Equal(t, marker, command[3])
	})
}

func TestAWholeReadUnderARealPython(t *testing.T) {
	engineAt := overHTTP(text(idleBody))(t)
	eachWay(t, running, func(t *testing.T, server *httptest.Server) {
		run := target(t, engineAt.URL())
		run.Ports = []uint16{1}
		result := reader(t, at(server), inTurn(member(recorded(engineAt.URL())))).Read(t.Context(), run)
		require.Equal(t, engine.Idle, result.Verdict, result.Message)
		assert.NotEmpty(t, result.Started)
		assert.True(t, result.ConnectionsKnown)
		assert.Empty(t, result.Connections)
	})
}

func TestALargeBodyArrivesWhole(t *testing.T) {
	body := idleBody + strings.Repeat("\n", engine.MaxBody-len(idleBody))
	eachWay(t, saying(`{"started": "1", "length": 1048576}`+"\n"+body+endMark), func(t *testing.T, server *httptest.Server) {
		result := read(t, server)
		assert.Equal(t, engine.Idle, result.Verdict, result.Message)
	})
}

func TestAnExecThatFailsIsNeverIdle(t *testing.T) {
	notFound := metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: `container not found ("main")`}
	said := func(text string, code int) func(*session) {
		return func(s *session) {
			_, _ = io.WriteString(s.stderr, text)
			s.exits(code)
		}
	}
	for name, c := range map[string]struct {
		answer          func(*session)
		reason, message string
	}{
		"the stream is cut in the body": {func(s *session) {
			_, _ = io.WriteString(s.stdout, whole[:len(whole)/2])
			s.cut()
		}, names.HeldReadIncomplete, "the answer was cut after"},
		"the stream ends in the body, in good order": {saying(whole[:len(whole)/2]), names.HeldReadIncomplete, "the answer was cut after"},
		"nothing is said":                    {saying(""), names.HeldReadIncomplete, "the answer was cut after 0 bytes"},
		"the container is gone since":        {func(s *session) { s.ends(notFound) }, names.HeldReadFailed, `container not found ("main")`},
		"an image without python3":           {said("", noPython), names.HeldReadFailed, "the image of container main has no python3"},
		"a python3 that fails":               {said("ImportError: no\n", 1), names.HeldReadFailed, "the program in the container fails with exit code 1: ImportError: no"},
		"the program was ended by its bound": {said("", 142), names.HeldReadTimedOut, "the program in the container did not end in 4s"},
		"more than an answer can be": {func(s *session) {
			for range mostOutput/1024 + 2 {
				if _, err := s.stdout.Write(make([]byte, 1024)); err != nil {
					return
				}
			}
		}, names.ReadTooLarge, "the program in the container says more than"},
		"more complaints than are kept": {said(strings.Repeat("x", 1<<20), 1), names.HeldReadFailed, "exit code 1: xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, c.answer, func(t *testing.T, server *httptest.Server) {
				result := read(t, server)
				assert.Equal(t, engine.Unknown, result.Verdict)
				assert.Equal(t, c.reason, result.Reason, result.Message)
				assert.Contains(t, result.Message, c.message)
				assert.Less(t, len(result.Message), mostComplaint+200)
			})
		})
	}
}

func TestTheShellSaysThatThereIsNoPython(t *testing.T) {
	empty := t.TempDir()
	server := serve(t, func(s *session) {
		argv := s.request.URL.Query()["command"]
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = []string{"PATH=" + empty}
		_ = cmd.Run()
		s.exits(cmd.ProcessState.ExitCode())
	})
	result := read(t, server)
	assert.Equal(t, names.HeldReadFailed, result.Reason)
	assert.Equal(t, "the image of container main has no python3, by which its engine is asked", result.Message)
}

func TestAnAPIServerThatRefusesIsTold(t *testing.T) {
	refusing := func(webSocket, spdy int, ofWebSocket, ofSPDY string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				refuse(w, webSocket, ofWebSocket)
				return
			}
			refuse(w, spdy, ofSPDY)
		}
	}
	for name, c := range map[string]struct {
		handler         http.HandlerFunc
		reason, message string
	}{
		"neither verb is granted": {
			refusing(403, 403, forbidden("get"), forbidden("create")), names.HeldExecForbidden,
			`the retirer needs the verbs get and create on pods/exec in namespace team-a: by WebSocket: ` +
				`unable to upgrade streaming request: pods "qwen-server-3-0" is forbidden: User "retirer" cannot get resource "pods/exec"; by SPDY: ` +
				`unable to upgrade connection: pods "qwen-server-3-0" is forbidden: User "retirer" cannot create resource "pods/exec"`,
		},
		"get is not granted, and a proxy does not know SPDY": {
			refusing(403, 400, forbidden("get"), "no SPDY here"), names.HeldExecForbidden, `cannot get resource "pods/exec"`,
		},
		"create is not granted, and a proxy does not know WebSockets": {
			refusing(400, 403, "no WebSocket here", forbidden("create")), names.HeldExecForbidden, `cannot create resource "pods/exec"`,
		},
		"the container is gone since": {
			refusing(500, 500, `container not found ("main")`, `container not found ("main")`), names.HeldReadFailed,
			`unable to upgrade connection: container not found ("main")`,
		},
		"nobody is known by the credentials": {
			refusing(401, 401, "Unauthorized", "Unauthorized"), names.HeldReadFailed, "Unauthorized",
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := read(t, startServer(t, c.handler))
			assert.Equal(t, engine.Unknown, result.Verdict)
			assert.Equal(t, c.reason, result.Reason)
			assert.Contains(t, result.Message, c.message)
		})
	}
}

func TestNoAPIServerIsAFailedRead(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	require.NoError(t, l.Close())
	result := reader(t, &rest.Config{Host: "http://" + l.Addr().String()}, inTurn(member())).Read(t.Context(), target(t, somewhere))
	assert.Equal(t, engine.Unknown, result.Verdict)
	assert.Equal(t, names.HeldReadFailed, result.Reason)
	assert.Contains(t, result.Message, "connection refused")
}

func TestTheAPIServersCertificateAndTheTokenAreUsed(t *testing.T) {
	for name, mayWebSocket := range map[string]bool{"by WebSocket": true, "by SPDY": false} {
		t.Run(name, func(t *testing.T) {
			plain := serve(t, saying(whole))
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer secret" || !mayWebSocket && r.Method == http.MethodGet {
					refuse(w, http.StatusUnauthorized, "who?")
					return
				}
				plain.Config.Handler.ServeHTTP(w, r)
			}))
			server.Config.ConnContext = plain.Config.ConnContext
			server.StartTLS()
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			config := &rest.Config{Host: server.URL, BearerToken: "secret"}
			result := reader(t, config, inTurn(member())).Read(t.Context(), target(t, somewhere))
			assert.Contains(t, result.Message, "certificate", "an unknown authority")
			config.CAData = certificate(server)
			result = reader(t, config, inTurn(member())).Read(t.Context(), target(t, somewhere))
			assert.Equal(t, engine.Idle, result.Verdict, result.Message)
		})
	}
}

// hanging are the places where a read may get no answer.
func hanging(t *testing.T) map[string]*counting {
	silent := func(*session) {}
	talking := func(s *session) {
		for range time.Tick(10 * time.Millisecond) {
			if _, err := io.WriteString(s.stdout, "x"); err != nil {
				return
			}
		}
	}
	refusing := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				refuse(w, http.StatusBadGateway, "no upgrades here")
				return
			}
			if next == nil {
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	counted := func(handler http.Handler) *counting {
		server := httptest.NewUnstartedServer(handler)
		l := &counting{Listener: server.Listener}
		server.Listener = l
		server.Config.ConnContext = serve(t, silent).Config.ConnContext
		server.Start()
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		return l
	}
	return map[string]*counting{
		"an API server that takes the connection and no more": mute(t),
		"a WebSocket on which nothing comes":                  counted(serve(t, silent).Config.Handler),
		"a WebSocket on which it never ends":                  counted(serve(t, talking).Config.Handler),
		"no WebSocket, and no answer to SPDY":                 counted(refusing(nil)),
		"a SPDY connection on which nothing comes":            counted(refusing(serve(t, silent).Config.Handler)),
		"a SPDY connection on which it never ends":            counted(refusing(serve(t, talking).Config.Handler)),
	}
}

func TestAReadThatGetsNoAnswerEndsInTimeAndLeavesNothingBehind(t *testing.T) {
	const reads = 4
	before := clients()
	places := hanging(t)
	for name, l := range places {
		t.Run(name, func(t *testing.T) {
			r := reader(t, &rest.Config{Host: "http://" + l.Addr().String()}, inTurn(member()))
			r.limit = 200 * time.Millisecond
			for range reads {
				started := time.Now() //nolint:forbidigo // how long a read takes is what is tested
				result := r.Read(t.Context(), target(t, somewhere))
				assert.Less(t, time.Since(started), 3*time.Second)
				assert.Equal(t, engine.Unknown, result.Verdict)
				assert.Equal(t, names.HeldReadTimedOut, result.Reason, result.Message)
				assert.Equal(t, "no answer through the API server and the kubelet in 200ms", result.Message)
			}
			assert.GreaterOrEqual(t, l.taken.Load(), int32(reads))
		})
	}
	for name, l := range places {
		require.Eventually(t, func() bool { return l.open.Load() == 0 }, soon, 10*time.Millisecond, "connections to %s", name)
	}
	require.Eventually(t, func() bool { return clients() <= before }, soon, 50*time.Millisecond, "goroutines")
}

func TestAReadEndsAtOnceWhenItIsCalledOff(t *testing.T) {
	for name, l := range hanging(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			started := time.Now() //nolint:forbidigo // how long a read takes is what is tested
			result := reader(t, &rest.Config{Host: "http://" + l.Addr().String()}, inTurn(member())).Read(ctx, target(t, somewhere))
			assert.Less(t, time.Since(started), 3*time.Second)
			assert.Equal(t, names.HeldReadFailed, result.Reason)
			assert.Equal(t, "the read was called off", result.Message)
		})
	}
}

func TestReadsDoNotWaitForEachOther(t *testing.T) {
	const readers = 8
	var together sync.WaitGroup
	together.Add(readers)
	server := serve(t, func(s *session) {
		together.Done()
		together.Wait() // none is answered before all are asked
		saying(whole)(s)
	})
	r := reader(t, at(server), live(func(_ context.Context, pod *corev1.Pod) error { *pod = *member(); return nil }))
	var all sync.WaitGroup
	for range readers {
		all.Go(func() { assert.Equal(t, engine.Idle, r.Read(t.Context(), target(t, somewhere)).Verdict) })
	}
	all.Wait()
}

// clients is how many goroutines are at work in the client's side of an exec.
func clients() int {
	stacks := make([]byte, 4<<20)
	n := 0
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(stack, "tools/remotecommand") || strings.Contains(stack, filepath.Join("transport", "spdy")) {
			n++
		}
	}
	return n
}
