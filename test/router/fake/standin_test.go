package fake

import (
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/test/engine/standin"
)

// The engine of the other suites behind each router: a stream comes whole, and while it
// runs the engine reads 1; while it is held for its prefill, 0.
func TestStandInEngines(t *testing.T) {
	for _, o := range []Options{vllm, smgMain, {Family: SGLModelGateway}, llmd("0.10.0")} {
		t.Run(string(o.Family), func(t *testing.T) {
			engine := standin.Start(t, standin.Options{Kind: standin.VLLM, TokensPerSecond: 500})
			o.Selector = "app=engine"
			r := &rig{Router: Start(t, behind(o, engine), NewScript(pod("pod-0", "127.0.0.1")), nil), t: t}
			res, err := r.post(t.Context(), `{"prompt":"x","stream":true,"max_tokens":20}`)
			require.NoError(t, err)
			text := readAll(t, res)
			assert.True(t, strings.HasSuffix(text, "data: [DONE]\n\n"), text)
			assert.Equal(t, 20, strings.Count(text, "token"))
			assert.Equal(t, 1, engine.State().Completed)
		})
	}
}

func TestAnEngineIsIdleWhileItsRequestIsHeld(t *testing.T) {
	decode := standin.Start(t, standin.Options{Kind: standin.VLLM})
	prefill := besides(t, "127.7.255.1", decode)
	o := vllm
	o.PD, o.PrefillSelector, o.DecodeSelector = Sequential, "role=prefill", "role=decode"
	script := NewScript(with(prefill.pod, label("role", "prefill")), with(pod("decode", "127.0.0.1"), label("role", "decode")))
	r := &rig{Router: Start(t, behind(o, decode), script, nil), t: t}
	r.fault(Fault{Name: PrefillHold})
	served := r.begin()
	r.eventually("the prefill", func() bool { return len(prefill.got()) == 1 })
	assert.Zero(t, running(t, decode))
	assert.Zero(t, decode.State().Started)
	r.fault(Fault{Name: PrefillHold, Off: true})
	<-served
	assert.Equal(t, 1, decode.State().Completed)
}

func behind(o Options, engine *standin.Engine) Options {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(engine.URL(), "http://"))
	n, _ := strconv.Atoi(port)
	o.Ports = []int{n}
	return o
}

func running(t *testing.T, engine *standin.Engine) float64 {
	t.Helper()
	res, err := http.Get(engine.URL() + "/metrics")
	require.NoError(t, err)
	text := readAll(t, res)
	require.True(t, bytes.Contains([]byte(text), []byte("vllm:num_requests_running")))
	return parseEngine(text).running
}

// besides is a small engine on the port of another.
func besides(t *testing.T, host string, other *standin.Engine) *engine {
	t.Helper()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(other.URL(), "http://"))
	e := listenAt(t, host, port)
	e.pod = pod("prefill", host)
	return e
}
