package shutdown

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pass lets time go by in a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble this waits for nothing
	synctest.Wait()
}

func TestTheDelayStartsWithTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signalled, signal := context.WithCancel(t.Context())
		delayed := Delay(signalled, 10*time.Second)

		pass(time.Hour)
		require.NoError(t, delayed.Err(), "before the signal")

		signal()
		pass(10*time.Second - time.Nanosecond)
		require.NoError(t, delayed.Err(), "within the delay")

		pass(time.Nanosecond)
		require.Error(t, delayed.Err(), "after the delay")
	})
}

func TestConnectionsCloseOnlyAfterTheSignal(t *testing.T) {
	signalled, signal := context.WithCancel(t.Context())
	server := httptest.NewServer(Handler(signalled, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})))
	defer server.Close()
	closes := func() bool {
		response, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusTeapot, response.StatusCode)
		return response.Close
	}

	assert.False(t, closes(), "before the signal")
	signal()
	assert.True(t, closes(), "after the signal")
}
