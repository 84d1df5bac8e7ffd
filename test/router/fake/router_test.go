package fake

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARouterReachesEnginesAsItsCallerSaysAndTellsOfRequests(t *testing.T) {
	o := vllm
	o.Listen, o.Metrics, o.Selector, o.Ports = "127.0.0.1:0", "127.0.0.1:0", "app=engine", []int{8000}
	r, err := New(o, NewScript(a), io.Discard, nil)
	require.NoError(t, err)
	reached := make(chan string, 1)
	r.ReachEngines(roundTrip(func(req *http.Request) (*http.Response, error) {
		reached <- req.URL.Host
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("done")), Request: req}, nil
	}))
	told := make(chan string, 1)
	r.TellRequests(func(req *http.Request) { told <- req.Method + " " + req.URL.Path })
	require.NoError(t, r.listen())
	ctx, cancel := context.WithCancel(t.Context())
	<-r.begin(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.serve(ctx, ctx) }()

	res, err := http.Post(r.URL()+"/v1/completions", "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	assert.Equal(t, "done", readAll(t, res))
	assert.Equal(t, "POST /v1/completions", <-told)
	assert.Equal(t, a.Status.PodIP+":8000", <-reached)
	cancel()
	require.NoError(t, <-ended)
}
