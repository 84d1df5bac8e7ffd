package router

import (
	"compress/gzip"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// answering asks a server that does something else than to answer properly.
func answering(t *testing.T, handler http.HandlerFunc) func(*stage) {
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return func(s *stage) { s.process.URL = server.URL }
}

func refusing(t *testing.T, status int) func(*stage) {
	return answering(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "token hunter2 is no good", status)
	})
}

// raw writes bytes as they are and closes.
func raw(t *testing.T, text string) func(*stage) {
	return answering(t, func(w http.ResponseWriter, _ *http.Request) { writes(t, w, text) })
}

func writes(t *testing.T, w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	assert.NoError(t, err)
	_, _ = conn.Write([]byte(text))
	_ = conn.Close()
}

// stages are one of each family, in which the replica is Absent as long as the answer
// is whole.
func stages(t *testing.T) map[v1alpha1.RouterName]*stage {
	all := map[v1alpha1.RouterName]*stage{
		v1alpha1.LLMDRouter: llmdStage(t, imageV10, "llmd-v0.10.txt"), v1alpha1.VLLMRouter: vllmStage(t, gone(t)), v1alpha1.SGLangGateway: smgStage(t, imageNew),
	}
	outOfPool(all[v1alpha1.LLMDRouter])
	gone(t)(all[v1alpha1.SGLangGateway])
	return all
}

func (s *stage) page() string {
	if s.workers != "" {
		return s.workers
	}
	return s.metrics
}

// silent is why a process has said nothing at all.
var silent = []string{"connection refused", "no answer in time", "its answer was cut", "what it answers is no HTTP", "its address is not valid"}

// What a process does instead of answering is never taken for an answer.
func TestFaultsOfAnyFamily(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for sentence, c := range map[string]struct {
		fault func(page string) func(*stage)
		why   string
	}{
		"nobody listens": {func(string) func(*stage) {
			return func(s *stage) { s.process.URL = "http://" + closed.Addr().String() }
		}, "connection refused"},
		"it hangs": {func(string) func(*stage) {
			return answering(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		}, "no answer in time"},
		"it hangs in the middle": {func(page string) func(*stage) {
			return answering(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(page))
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
		}, "no answer in time"},
		"it answers 401": {func(string) func(*stage) { return refusing(t, http.StatusUnauthorized) }, "it answers 401 and wants credentials"},
		"it answers 403": {func(string) func(*stage) { return refusing(t, http.StatusForbidden) }, "it answers 403 and wants credentials"},
		"it answers 204": {func(string) func(*stage) {
			return answering(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		}, "it answers 204"},
		"it answers 500 with a page": {func(page string) func(*stage) {
			return answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write([]byte(page))
			})
		}, "it answers 500"},
		"it sends elsewhere": {func(page string) func(*stage) {
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }))
			t.Cleanup(other.Close)
			return answering(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
			})
		}, "it answers 307"},
		"its answer is too large": {func(page string) func(*stage) {
			return answering(t, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(page + strings.Repeat("\n", maxBody)))
			})
		}, "more than 1048576 bytes"},
		"it is cut before its length": {func(page string) func(*stage) {
			return raw(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(page)+1, page))
		}, "its answer was cut"},
		"it is cut before its last chunk": {func(page string) func(*stage) {
			return raw(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(page), page))
		}, "its answer was cut"},
		"its end is that of the connection": {func(page string) func(*stage) {
			return raw(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+page)
		}, "does not say how long it is"},
		"it speaks something else": {func(string) func(*stage) { return raw(t, "SSH-2.0-hunter2\r\n") }, "what it answers is no HTTP"},
		"its URL is none": {func(string) func(*stage) {
			return func(s *stage) { s.process.URL = "http://user:hunter2@[::1" }
		}, "its address is not valid"},
	} {
		t.Run(sentence, func(t *testing.T) {
			for name, s := range stages(t) {
				require.Equal(t, withdraw.Absent, s.look(t, replica()).Membership, name)
				c.fault(s.page())(s)
				client := &http.Client{Timeout: time.Minute}
				if strings.HasPrefix(sentence, "it hangs") {
					client.Timeout = 100 * time.Millisecond
				}
				all := s.family.Look(t.Context(), client, s.process, []Backend{replica(), replica(uid("uid-2"))})
				require.Len(t, all, 2)
				for _, said := range all {
					assert.Contains(t, said.Why, c.why, name)
					assert.NotContains(t, said.Why, "hunter2", "what it answers is not for a status")
					assert.Equal(t, withdraw.Sighting{SentAt: began, ReceivedAt: began, Run: "containerd://1", Answered: !slices.Contains(silent, c.why), Why: said.Why}, said, "%s: nothing else is known", name)
				}
			}
		})
	}
}

// A process that answers well is seen as such by every client that the caller may have.
func TestAnAnswerIsWholeInEveryEncoding(t *testing.T) {
	for name, s := range stages(t) {
		for sentence, handler := range map[string]http.HandlerFunc{
			"a length": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s.page())) },
			"chunks": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(s.page()))
				w.(http.Flusher).Flush()
			},
			"HTTP/1.0 with a length": func(w http.ResponseWriter, _ *http.Request) {
				writes(t, w, fmt.Sprintf("HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.page()), s.page()))
			},
			"compressed": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				_, _ = z.Write([]byte(s.page()))
				_ = z.Close()
			},
		} {
			answering(t, handler)(s)
			assert.Equal(t, withdraw.Absent, s.look(t, replica()).Membership, "%s: %s", name, sentence)
		}
	}
}

// A sighting's times are those before the first request and after the last answer.
func TestTimesEncloseTheRequests(t *testing.T) {
	for name, s := range stages(t) {
		forward := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.clock.Step(time.Second)
			s.serve(w, r)
		})
		server := httptest.NewServer(forward)
		t.Cleanup(server.Close)
		s.process.URL = server.URL
		requests := time.Second
		if s.process.Metrics != "" {
			s.process.Metrics, requests = server.URL, 2*time.Second
		}
		said := s.look(t, replica())
		assert.Equal(t, began, said.SentAt, name)
		assert.Equal(t, began.Add(requests), said.ReceivedAt, name)
		assert.Equal(t, withdraw.Absent, said.Membership, name)
	}
}

// Backends are answered in their order, each for itself.
func TestManyBackendsAtOnce(t *testing.T) {
	backends := []Backend{replica(func(b *Backend) { b.Name, b.UID, b.Addrs = "qwen-server-2", "uid-2", addrs("10.0.0.2") }), replica(), {}}
	for name, s := range stages(t) {
		all := s.family.Look(t.Context(), http.DefaultClient, s.process, backends)
		require.Len(t, all, 3, name)
		assert.Equal(t, withdraw.Selectable, all[0].Membership, name)
		assert.Equal(t, withdraw.Absent, all[1].Membership, name)
		if name != v1alpha1.LLMDRouter { // which knows Pods by name
			assert.Equal(t, withdraw.MembershipUnknown, all[2].Membership, "%s: its address is not known", name)
		}
		assert.NotEqual(t, withdraw.No, all[2].Returns, "%s: its labels are not known", name)
		assert.Empty(t, s.family.Look(t.Context(), http.DefaultClient, s.process, nil), name)
	}
}

func TestWhereMetricsAre(t *testing.T) {
	for sentence, c := range map[string]struct {
		p    Process
		host string
		want string
	}{
		"where it is said":                {Process{URL: "http://10.1.0.1:30000", Metrics: "http://10.1.0.1:9"}, "127.0.0.1", "http://10.1.0.1:9"},
		"on loopback by default":          {Process{URL: "http://10.1.0.1:30000", Args: []string{"r"}}, "127.0.0.1", ""},
		"everywhere by default":           {Process{URL: "http://10.1.0.1:30000", Args: []string{"r"}}, "0.0.0.0", "http://10.1.0.1:29000"},
		"everywhere, as it was told":      {Process{URL: "http://10.1.0.1:30000", Args: []string{"r", "--prometheus-host=0.0.0.0"}}, "127.0.0.1", "http://10.1.0.1:29000"},
		"on loopback, as it was told":     {Process{URL: "http://10.1.0.1:30000", Args: []string{"r", "--prometheus-host", "127.0.0.1"}}, "0.0.0.0", ""},
		"on a port that it was told":      {Process{URL: "http://10.1.0.1:30000", Args: []string{"r", "--prometheus-port", "9100"}}, "0.0.0.0", "http://10.1.0.1:9100"},
		"of IPv6":                         {Process{URL: "http://[fd00::1]:30000", Args: []string{"r", "--prometheus-host", "::"}}, "127.0.0.1", "http://[fd00::1]:29000"},
		"nobody knows without its flags":  {Process{URL: "http://10.1.0.1:30000"}, "0.0.0.0", ""},
		"nobody knows behind a shell":     {Process{URL: "http://10.1.0.1:30000", Args: []string{"/bin/sh", "-c", "r"}}, "0.0.0.0", ""},
		"nobody knows of a URL like this": {Process{URL: "://", Args: []string{"r"}}, "0.0.0.0", ""},
	} {
		assert.Equal(t, c.want, metricsOf(c.p, startedWith(c.p), c.host), sentence)
	}
}
