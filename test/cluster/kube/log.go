package kube

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Line is a line of a container's log.
type Line struct {
	Time time.Time // when the container runtime read it, to the nanosecond
	Text string
}

// Log is a container's log as it grows. It keeps what it has read when the Pod is gone.
type Log struct {
	mu    sync.Mutex
	lines []Line
	more  chan struct{} // closed when there is more, and replaced
	ended bool
	err   error // why it ended before the container did
}

// Follow reads a container's log from its first line until the container ends or ctx does. The container must have
// started.
func (c *Cluster) Follow(ctx context.Context, pod client.ObjectKey, container string) (*Log, error) {
	stream, err := c.Clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Follow: true, Timestamps: true,
	}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("following the log of Pod %s: %w", pod, err)
	}
	log := &Log{more: make(chan struct{})}
	go func() {
		defer stream.Close() //nolint:errcheck // only read
		scanner := bufio.NewScanner(stream)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			log.add(scanner.Text())
		}
		log.end(scanner.Err())
	}()
	return log, nil
}

func (l *Log) add(text string) {
	stamp, text, _ := strings.Cut(text, " ")
	when, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		text = stamp + " " + text // a line of the kubelet's own, such as a failure to read the file
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, Line{when, text})
	close(l.more)
	l.more = make(chan struct{})
}

func (l *Log) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended, l.err = true, err
	close(l.more)
}

// Lines returns what has been read so far.
func (l *Log) Lines() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// Find waits for the first line that contains text. It fails when ctx or the log ends before.
func (l *Log) Find(ctx context.Context, text string) (Line, error) {
	found := func(line Line) bool { return strings.Contains(line.Text, text) }
	lines, err := l.wait(ctx, func(lines []Line) bool { return slices.ContainsFunc(lines, found) })
	if at := slices.IndexFunc(lines, found); at >= 0 {
		return lines[at], nil
	}
	return Line{}, fmt.Errorf("no log line has %q (%w):\n%s", text, cmp.Or(err, errors.New("the container has ended")), join(lines))
}

// All waits until the log has ended and returns it whole.
func (l *Log) All(ctx context.Context) ([]Line, error) {
	return l.wait(ctx, func([]Line) bool { return false })
}

// wait returns the lines once they are enough or the log has ended; with an error when it was cut off.
func (l *Log) wait(ctx context.Context, enough func([]Line) bool) ([]Line, error) {
	for {
		l.mu.Lock()
		lines, more, ended, err := l.lines, l.more, l.ended, l.err
		l.mu.Unlock()
		if ended || enough(lines) {
			return lines, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return lines, context.Cause(ctx)
		}
	}
}

func join(lines []Line) string {
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "  %s %s\n", line.Time.Format("15:04:05.000"), line.Text)
	}
	return text.String()
}
