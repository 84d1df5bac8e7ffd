package standin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWayOut(t *testing.T) {
	const running = 60 * time.Second // a request that is in flight at SIGTERM takes this long
	for name, c := range map[string]struct {
		options  Options
		idle     bool          // nothing in flight at SIGTERM
		min, max time.Duration // from SIGTERM to the end
		whole    bool          // the request completes
		code     int
		reason   string
	}{
		"an idle vLLM ends at once":  {Options{Kind: VLLM}, true, 0, 0, true, 0, "terminated"},
		"a busy vLLM cuts what runs": {Options{Kind: VLLM}, false, 0, 0, false, 0, "terminated"},
		"a vLLM with --shutdown-timeout drains": {
			Options{Kind: VLLM, ShutdownTimeout: 2 * time.Minute}, false, 58 * time.Second, 60 * time.Second, true, 0, "terminated",
		},
		"a vLLM whose --shutdown-timeout is too short drains and then cuts": {
			Options{Kind: VLLM, ShutdownTimeout: 10 * time.Second}, false, 10 * time.Second, 10 * time.Second, false, 0, "shutdown timeout",
		},
		"an idle SGLang ends when its watchdog looks": {Options{Kind: SGLang}, true, 0, 5 * time.Second, true, 0, "drained"},
		"a busy SGLang drains without limit": {
			Options{Kind: SGLang}, false, 58 * time.Second, 65 * time.Second, true, 0, "drained",
		},
		"an idle SGLang decode server waits for its schedulers": {
			Options{Kind: SGLang, Role: Decode}, true, 15 * time.Second, 20 * time.Second, true, 0, "drained",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				c.options.Output = &out
				e := bubbled(t, c.options)
				var whole <-chan bool
				if !c.idle {
					whole = send(t, e, 601, 10)
				}
				time.Sleep(time.Second)
				began := time.Now()
				e.Terminate()
				assert.Equal(t, c.code, e.ExitCode())
				took := time.Since(began)
				assert.GreaterOrEqual(t, took, c.min)
				assert.LessOrEqual(t, took, c.max)
				if whole != nil {
					assert.Equal(t, c.whole, <-whole)
					assert.Equal(t, !c.whole, e.State().Aborted == 1)
				}
				events := journalOf(t, out.Bytes())
				last := events[len(events)-1]
				assert.Equal(t, Exiting, last.Event)
				assert.Equal(t, c.reason, last.Reason)
				assert.LessOrEqual(t, took, running+5*time.Second)
			})
		})
	}
}

func journalOf(t *testing.T, text []byte) []Event {
	t.Helper()
	var events []Event
	for line := range bytes.Lines(text) {
		var e Event
		require.NoError(t, json.Unmarshal(line, &e))
		assert.False(t, e.Time.IsZero())
		events = append(events, e)
	}
	return events
}

func TestSGLangServesNewRequestsWhileItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: SGLang})
		first := send(t, e, 101, 10)
		time.Sleep(time.Second)
		e.Terminate()
		time.Sleep(time.Second)
		second := send(t, e, 151, 10)
		w := httptest.NewRecorder()
		e.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.True(t, <-first)
		assert.True(t, <-second)
		assert.Equal(t, 0, e.ExitCode())
	})
}

func TestADrainingVLLMEndsNewRequestsAsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: VLLM, ShutdownTimeout: time.Minute})
		first := send(t, e, 51, 10)
		time.Sleep(time.Second)
		e.Terminate()
		synctest.Wait()
		w := httptest.NewRecorder()
		body := bytes.NewBufferString(`{"prompt": "x"}`)
		e.handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", body))
		assert.Contains(t, w.Body.String(), `"finish_reason":"abort"`)
		w = httptest.NewRecorder()
		e.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
		assert.Equal(t, http.StatusOK, w.Code, "health stays good during a drain")
		assert.True(t, <-first)
		assert.Equal(t, 0, e.ExitCode())
	})
}

func TestSIGTERMCanBeIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bubbled(t, Options{Kind: VLLM, IgnoreSIGTERM: true})
		whole := send(t, e, 101, 10)
		time.Sleep(time.Second)
		e.Terminate()
		assert.False(t, e.State().TerminatedAt.IsZero())
		assert.True(t, <-whole)
		time.Sleep(time.Hour)
		select {
		case <-e.Done():
			t.Error("the engine ended")
		default:
		}
	})
}
