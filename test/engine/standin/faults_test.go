package standin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// read is what a client sees that does not follow redirects.
func read(t *testing.T, url string) (status int, header http.Header, body string, err error) {
	t.Helper()
	return readFor(t, url, 20*time.Second)
}

func readFor(t *testing.T, url string, patience time.Duration) (status int, header http.Header, body string, err error) {
	t.Helper()
	c := client(t)
	c.Timeout = patience
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := c.Get(url)
	if err != nil {
		return 0, nil, "", err
	}
	defer r.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, r.Header, string(text), err
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestMetricsFaults(t *testing.T) {
	e := Start(t, Options{Kind: VLLM})
	url := e.URL() + "/metrics"
	tests := map[string]func(t *testing.T){
		"refuse": func(t *testing.T) {
			_, _, _, err := read(t, url)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			_, _, _, err = read(t, e.URL()+"/health")
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "the port is closed, not the path")
		},
		"hang": func(t *testing.T) {
			status, _, _, err := readFor(t, url, 300*time.Millisecond)
			assert.True(t, timedOut(err), "%v", err)
			assert.Zero(t, status)
		},
		"drip": func(t *testing.T) {
			status, _, body, err := readFor(t, url, 2*time.Second)
			assert.True(t, timedOut(err), "%v", err)
			assert.Equal(t, http.StatusOK, status)
			assert.NotEmpty(t, body)
		},
		"404": func(t *testing.T) {
			status, _, _, err := read(t, url)
			require.NoError(t, err)
			assert.Equal(t, http.StatusNotFound, status)
		},
		"503": func(t *testing.T) {
			for range 2 {
				status, _, _, err := read(t, url)
				require.NoError(t, err)
				assert.Equal(t, http.StatusServiceUnavailable, status)
			}
		},
		"503-once": func(t *testing.T) {
			for _, want := range []int{http.StatusServiceUnavailable, http.StatusOK} {
				status, _, _, err := read(t, url)
				require.NoError(t, err)
				assert.Equal(t, want, status)
			}
		},
		"garbage": func(t *testing.T) {
			status, _, body, err := read(t, url)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, status)
			assert.NotContains(t, body, "vllm:")
		},
		"missing-gauges": func(t *testing.T) {
			_, _, body, err := read(t, url)
			require.NoError(t, err)
			assert.NotContains(t, body, "vllm:num_requests")
			assert.Contains(t, body, "vllm:kv_cache_usage_perc")
		},
		"stale": func(t *testing.T) {
			_, _, before, err := read(t, url)
			require.NoError(t, err)
			post(t, e, `{"prompt": "x", "max_tokens": 1}`)
			_, _, after, err := read(t, url)
			require.NoError(t, err)
			assert.Equal(t, before, after)
		},
		"busy": func(t *testing.T) {
			require.Equal(t, 1.0, gauge(e, "vllm:num_requests_running"))
			require.Equal(t, 0.0, gauge(e, "vllm:num_requests_waiting"))
		},
		"redirect-same-origin": func(t *testing.T) {
			status, header, _, err := read(t, url)
			require.NoError(t, err)
			assert.Equal(t, http.StatusTemporaryRedirect, status)
			status, _, body, err := read(t, e.URL()+header.Get("Location"))
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, status)
			assert.Contains(t, body, "vllm:num_requests_running")
		},
		"redirect-elsewhere": func(t *testing.T) {
			status, header, _, err := read(t, url)
			require.NoError(t, err)
			assert.Equal(t, http.StatusTemporaryRedirect, status)
			assert.Equal(t, e.ControlURL()+"/metrics", header.Get("Location"))
			_, _, body, err := read(t, header.Get("Location"))
			require.NoError(t, err)
			assert.Contains(t, body, `vllm:num_requests_running{engine="0",model_name="Qwen/Qwen2.5-7B-Instruct"} 1.0`)
		},
		"short-body": func(t *testing.T) {
			status, header, body, err := read(t, url)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			assert.Equal(t, http.StatusOK, status)
			assert.NotEmpty(t, body)
			length, err := strconv.Atoi(header.Get("Content-Length"))
			require.NoError(t, err)
			assert.Less(t, len(body), length)
		},
		"huge": func(t *testing.T) {
			assert.Greater(t, len(e.metricsText()), 2<<20)
		},
		"close": func(t *testing.T) {
			_, _, _, err := read(t, url)
			require.ErrorIs(t, err, io.EOF)
		},
	}
	for name := range MetricsFaults {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, tests, name)
			require.NoError(t, e.SetFaults(Faults{Metrics: name}))
			tests[name](t)
			require.NoError(t, e.SetFaults(Faults{}))
			status, _, body, err := read(t, url)
			require.NoError(t, err)
			assert.Equal(t, http.StatusOK, status)
			assert.Contains(t, body, "vllm:num_requests_running")
			assert.Equal(t, 0.0, gauge(e, "vllm:num_requests_running"))
		})
	}
}

func TestRefuseLetsAnOpenStreamLive(t *testing.T) {
	e := Start(t, Options{Kind: VLLM})
	answer, err := client(t).Post(e.URL()+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt": "x", "stream": true, "max_tokens": 50, "tokens_per_second": 100}`))
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // read to its end
	require.NoError(t, e.SetFaults(Faults{Metrics: "refuse"}))
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.True(t, bytes.HasSuffix(text, []byte("data: [DONE]\n\n")))
}

func TestControlPort(t *testing.T) {
	e := Start(t, Options{Kind: VLLM})
	change := func(body string) (int, string) {
		r, err := client(t).Post(e.ControlURL()+"/faults", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close() //nolint:errcheck // read to its end
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}

	status, body := change(`{"metrics": "explode"}`)
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, body, "want one of 404, 503, 503-once")
	status, body = change(`{"metric": "hang"}`)
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, body, `unknown field`)

	status, _ = change(`{"gauges": {"vllm:num_requests_waiting": 7}, "ignoreSIGTERM": true}`)
	assert.Equal(t, http.StatusOK, status)
	status, _ = change(`{"health": "503"}`)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, Faults{Health: "503", IgnoreSIGTERM: true, Gauges: map[string]float64{"vllm:num_requests_waiting": 7}}, e.Faults(),
		"a field that is not sent keeps its value")
	assert.Equal(t, 7.0, gauge(e, "vllm:num_requests_waiting"))
	status, _, _, err := read(t, e.URL()+"/health")
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, status)

	r, err := client(t).Post(e.ControlURL()+"/sigterm", "", nil)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	post(t, e, `{"prompt": "x", "max_tokens": 1}`)
	_, _, body, err = read(t, e.ControlURL()+"/state")
	require.NoError(t, err)
	var state State
	require.NoError(t, json.Unmarshal([]byte(body), &state))
	assert.False(t, state.TerminatedAt.IsZero())
	assert.Equal(t, 1, state.Completed)
	assert.False(t, state.LastRequestEnd.IsZero())

	remove, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, e.ControlURL()+"/faults", nil)
	require.NoError(t, err)
	r, err = client(t).Do(remove)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	assert.Equal(t, Faults{}, e.Faults())
}

func TestCrashCutsEverything(t *testing.T) {
	e := Start(t, Options{Kind: SGLang})
	answer, err := client(t).Post(e.URL()+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt": "x", "stream": true, "max_tokens": 100000}`))
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // read to its end
	e.Crash()
	_, err = io.ReadAll(answer.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, 1, e.ExitCode())
	assert.Equal(t, 1, e.State().Aborted)
}
