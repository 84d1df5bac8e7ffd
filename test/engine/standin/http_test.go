package standin

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// client trusts the stand-in's self-signed certificate and opens a connection
// per request.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // loopback, self-signed
		DisableKeepAlives: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func post(t *testing.T, e *Engine, body string) (int, string) {
	t.Helper()
	r, err := client(t).Post(e.URL()+"/v1/completions", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // read to its end
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

func TestChatCompletionStreamsInOpenAIShape(t *testing.T) {
	e := Start(t, Options{Kind: VLLM, Models: []string{"m"}})
	body := `{"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": true, "max_tokens": 3,
		"stream_options": {"include_usage": true}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL()+"/v1/chat/completions", strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set(RateHeader, "1000")
	r.Header.Set("X-Request-Id", "mine")
	answer, err := client(t).Do(r)
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // read to its end
	assert.Equal(t, "text/event-stream; charset=utf-8", answer.Header.Get("Content-Type"))

	type chunk struct {
		ID, Object, Model string
		Choices           []struct {
			Delta        struct{ Role, Content string }
			FinishReason *string `json:"finish_reason"`
		}
		Usage *struct {
			CompletionTokens int `json:"completion_tokens"`
		}
	}
	var content, finish string
	var tokens int
	var lines []string
	scanner := bufio.NewScanner(answer.Body)
	for scanner.Scan() {
		if scanner.Text() == "" {
			continue
		}
		line, found := strings.CutPrefix(scanner.Text(), "data: ")
		require.True(t, found, scanner.Text())
		if lines = append(lines, line); line == "[DONE]" {
			continue
		}
		var c chunk
		require.NoError(t, json.Unmarshal([]byte(line), &c))
		assert.Equal(t, "chatcmpl-mine", c.ID)
		assert.Equal(t, "chat.completion.chunk", c.Object)
		assert.Equal(t, "m", c.Model)
		for _, choice := range c.Choices {
			content += choice.Delta.Content
			if choice.FinishReason != nil {
				finish = *choice.FinishReason
			}
		}
		if c.Usage != nil {
			tokens = c.Usage.CompletionTokens
		}
	}
	require.NoError(t, scanner.Err())
	assert.Equal(t, "[DONE]", lines[len(lines)-1])
	assert.Equal(t, "token0 token1 token2 ", content)
	assert.Equal(t, "length", finish)
	assert.Equal(t, 3, tokens)
}

func TestCompletionWithoutStreaming(t *testing.T) {
	e := Start(t, Options{Kind: SGLang, Models: []string{"m"}, TokensPerSecond: 1000})
	status, body := post(t, e, `{"model": "m", "prompt": "one two", "max_tokens": 2}`)
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, `"text":"token0 token1 "`)
	assert.Contains(t, body, `"usage":{"completion_tokens":2,"prompt_tokens":3,"total_tokens":5}`)
}

func TestBadRequestsAreRefused(t *testing.T) {
	e := Start(t, Options{Kind: VLLM, Models: []string{"m"}})
	for name, c := range map[string]struct {
		body    string
		status  int
		message string
	}{
		"no JSON":         {`{`, http.StatusBadRequest, "JSON"},
		"another model":   {`{"model": "n", "prompt": "x"}`, http.StatusNotFound, "does not exist"},
		"no tokens":       {`{"prompt": "x", "max_tokens": 0}`, http.StatusBadRequest, "max_tokens"},
		"a negative rate": {`{"prompt": "x", "tokens_per_second": -1}`, http.StatusBadRequest, "tokens_per_second"},
		"an endless rate": {`{"prompt": "x", "tokens_per_second": 1e99}`, http.StatusBadRequest, "tokens_per_second"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := post(t, e, c.body)
			assert.Equal(t, c.status, status)
			assert.Contains(t, body, c.message)
		})
	}
	assert.Zero(t, e.State().Started)
}

func TestAClientThatLeavesAbortsItsRequest(t *testing.T) {
	e := Start(t, Options{Kind: VLLM, DataParallel: 1})
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL()+"/v1/completions",
		strings.NewReader(`{"prompt": "x", "stream": true, "max_tokens": 100000, "tokens_per_second": 50}`))
	require.NoError(t, err)
	answer, err := client(t).Do(r)
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // cut below
	_, err = bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, 1.0, gauge(e, "vllm:num_requests_running"))
	cancel()
	require.Eventually(t, func() bool { return e.State().Aborted == 1 }, 10*time.Second, 5*time.Millisecond)
	assert.Equal(t, 0.0, gauge(e, "vllm:num_requests_running"))
	assert.Zero(t, e.State().InFlight)
}

func TestSIGTERMCutsAVLLMStream(t *testing.T) {
	e := Start(t, Options{Kind: VLLM})
	answer, err := client(t).Post(e.URL()+"/v1/completions", "application/json",
		strings.NewReader(`{"prompt": "x", "stream": true, "max_tokens": 100000, "tokens_per_second": 50}`))
	require.NoError(t, err)
	defer answer.Body.Close() //nolint:errcheck // read to its end
	body := bufio.NewReader(answer.Body)
	_, err = body.ReadString('\n')
	require.NoError(t, err)
	e.Terminate()
	_, err = io.Copy(io.Discard, body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, 0, e.ExitCode())
	_, err = client(t).Get(e.URL() + "/health")
	require.Error(t, err)
}

func TestModelsAreListed(t *testing.T) {
	e := Start(t, Options{Kind: VLLM, Models: []string{"a", "b"}})
	r, err := client(t).Get(e.URL() + "/v1/models")
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // read to its end
	var list struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	require.NoError(t, json.NewDecoder(r.Body).Decode(&list))
	assert.Equal(t, "list", list.Object)
	require.Len(t, list.Data, 2)
	assert.Equal(t, "b", list.Data[1].ID)
}

func TestSGLangServesMetricsOnlyWhenTold(t *testing.T) {
	for told, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		e := Start(t, Options{Kind: SGLang, EnableMetrics: told})
		r, err := client(t).Get(e.URL() + "/metrics")
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		assert.Equal(t, want, r.StatusCode)
	}
}

func TestTLS(t *testing.T) {
	e := Start(t, Options{Kind: VLLM, KeyFile: "auto"})
	require.True(t, strings.HasPrefix(e.URL(), "https://127.0.0.1:"))
	r, err := client(t).Get(e.URL() + "/metrics")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	assert.Equal(t, http.StatusOK, r.StatusCode)

	require.NoError(t, e.SetFaults(Faults{ClientCert: true}))
	_, err = client(t).Get(e.URL() + "/metrics")
	require.ErrorContains(t, err, "certificate required")

	withCertificate := client(t)
	pair, err := selfSigned()
	require.NoError(t, err)
	withCertificate.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
	r, err = withCertificate.Get(e.URL() + "/metrics")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())

	_, err = New(Options{Kind: VLLM, KeyFile: "/nonexistent/key.pem", CertFile: "/nonexistent/cert.pem"})
	require.ErrorContains(t, err, "--ssl-keyfile /nonexistent/key.pem")
}

func TestThePortOpensAfterTheStartDelay(t *testing.T) {
	e, err := New(Options{Kind: VLLM, Host: "127.0.0.1", StartDelay: time.Hour})
	require.NoError(t, err)
	ended := make(chan int, 1)
	go func() {
		code, _ := e.Run(t.Context())
		ended <- code
	}()
	e.Terminate()
	assert.Equal(t, 143, <-ended, "SIGTERM while the model loads")
}
