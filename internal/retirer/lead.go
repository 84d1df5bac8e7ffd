package retirer

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// lead is the time for which this process leads, and what it does in the background
// meanwhile.
type lead struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// leading is done when this process stops to lead; nil before it does.
	leading context.Context
	// ledSince is when it began to.
	ledSince time.Time
	running  sync.WaitGroup
}

// Start lets work be begun until the context ends, and waits for what is under way.
func (l *lead) Start(ctx context.Context) error {
	l.mu.Lock()
	l.leading, l.ledSince = ctx, l.clock.Now()
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock() // whoever began before the end is under way by then
	l.leading = nil
	l.mu.Unlock()
	l.running.Wait()
	return nil
}

// since is when this process began to look. A round can come before that.
func (l *lead) since() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading == nil {
		return l.clock.Now()
	}
	return l.ledSince
}

// begin does something in the background, and reports whether it does: not where this
// process does not lead.
func (l *lead) begin(f func(ctx context.Context)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leading == nil || l.leading.Err() != nil {
		return false
	}
	ctx := l.leading
	l.running.Go(func() { f(ctx) })
	return true
}

// slots bound how much is under way at a time.
type slots chan struct{}

// await waits for a time and then for a slot, and reports whether it has one. What has
// a slot gives it back.
func (s slots) await(ctx context.Context, c clock.WithDelayedExecution, wait time.Duration) bool {
	if !pause(ctx, c, wait) {
		return false
	}
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) done() { <-s }

// pause waits for a time, and reports whether it has passed before the context ended.
func pause(ctx context.Context, c clock.WithDelayedExecution, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := c.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
