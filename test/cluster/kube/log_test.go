package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogFindsALineThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &Log{more: make(chan struct{})}
		go func() {
			log.add("2026-11-29T10:00:00.123456789Z starting")
			time.Sleep(time.Second)
			log.add("2026-11-29T10:00:01.5Z received SIGTERM")
			log.add("unable to retrieve container logs")
			log.end(nil)
		}()
		line, err := log.Find(t.Context(), "SIGTERM")
		require.NoError(t, err)
		assert.Equal(t, Line{time.Date(2026, 11, 29, 10, 0, 1, 5e8, time.UTC), "received SIGTERM"}, line)

		lines, err := log.All(t.Context())
		require.NoError(t, err)
		require.Len(t, lines, 3)
		assert.Equal(t, Line{Text: "unable to retrieve container logs"}, lines[2], "a line without a time")

		_, err = log.Find(t.Context(), "never said")
		require.ErrorContains(t, err, `no log line has "never said" (the container has ended)`)
		assert.ErrorContains(t, err, "10:00:01.500 received SIGTERM", "what was said helps whoever reads the failure")
	})
}

func TestLogTellsACutStreamFromAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &Log{more: make(chan struct{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := log.All(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cut := errors.New("connection reset")
		log.end(cut)
		_, err = log.All(t.Context())
		require.ErrorIs(t, err, cut)
	})
}
