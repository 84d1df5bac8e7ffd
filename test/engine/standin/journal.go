package standin

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// The events of the journal. Listening, RequestStarted and RequestEnded say
// what their fields say; Terminated is written when SIGTERM arrives and Exiting
// right before the process ends.
const (
	Listening      = "listening"
	RequestStarted = "request-started"
	RequestEnded   = "request-ended"
	Terminated     = "sigterm"
	Exiting        = "exiting"
)

// Event is one line of the journal on standard output, as JSON. Time is written
// with nanoseconds.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Address string    `json:"address,omitempty"` // Listening: scheme and address
	ID      string    `json:"id,omitempty"`      // of the request; the client's x-request-id if it sent one
	Tokens  int       `json:"tokens,omitempty"`  // RequestEnded: tokens generated
	Aborted bool      `json:"aborted,omitempty"` // RequestEnded: cut, by either side
	Reason  string    `json:"reason,omitempty"`  // Exiting: why; RequestEnded: who cut it
	Code    int       `json:"code,omitempty"`    // Exiting: exit code
}

type journal struct {
	mu  sync.Mutex
	out io.Writer
}

// write stamps and writes an event, and returns its time. A journal nobody
// reads must not stop the engine, so errors are dropped.
func (j *journal) write(e Event) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Time = time.Now().UTC()
	line, _ := json.Marshal(e)
	_, _ = j.out.Write(append(line, '\n'))
	return e.Time
}
