// Package load sends streaming chat completions to an engine and records what
// became of each. The suites and the demo run it as a Pod of the cluster under
// test, so that requests take the way a user's take: through a Service.
package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Outcome is what became of a request, as the client saw it.
type Outcome string

const (
	// Completed: the stream ended with [DONE].
	Completed Outcome = "completed"
	// Cut: an answer had begun and broke off.
	Cut Outcome = "cut"
	// Refused: no answer had begun. A client may send such a request again.
	Refused Outcome = "refused"
)

// Request is one request's record.
type Request struct {
	Client  int       `json:"client"`
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Tokens  int       `json:"tokens"`
	Outcome Outcome   `json:"outcome"`
	Error   string    `json:"error,omitempty"`
	// ServedBy is the Pod that answered; empty where none did.
	ServedBy string `json:"servedBy,omitempty"`
}

// Options say how much is sent. Each client sends one request after another.
type Options struct {
	URL     string        // of the engine or its Service, without a path
	Model   string        // as the engine calls it
	Clients int           // requests in flight at once
	For     time.Duration // no request starts later than this
	// MinTokens and MaxTokens bound a request's length, drawn from Seed.
	MinTokens, MaxTokens int
	TokensPerSecond      float64
	// Pause is waited after a refusal before the client's next request.
	Pause time.Duration
	// Think is waited after an answer before the client's next request.
	Think time.Duration
	// KeepAlive reuses connections. Without it every request opens one, and so
	// meets the Service's endpoints as they are now.
	KeepAlive bool
	Seed      uint64
}

// Run sends requests until Options.For has passed or ctx is done, waits for
// those in flight to end by themselves, and hands each record to report, one at a
// time.
func Run(ctx context.Context, o Options, report func(Request)) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives:   !o.KeepAlive,
		MaxIdleConnsPerHost: o.Clients,
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
	}}
	stop := time.Now().Add(o.For)
	records := make(chan Request)
	var clients sync.WaitGroup
	for i := range o.Clients {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(o.Seed, uint64(i)))
			for time.Now().Before(stop) && ctx.Err() == nil {
				r := Send(context.WithoutCancel(ctx), client, o, o.MinTokens+random.IntN(o.MaxTokens-o.MinTokens+1))
				r.Client = i
				records <- r
				wait := o.Think
				if r.Outcome == Refused {
					wait = o.Pause
				}
				if wait == 0 {
					continue
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			}
		})
	}
	go func() { clients.Wait(); close(records) }()
	for r := range records {
		report(r)
	}
}

// Send sends one request for this many tokens and reads its answer to the end.
func Send(ctx context.Context, client *http.Client, o Options, tokens int) (r Request) {
	r = Request{Start: time.Now(), Outcome: Refused}
	err := stream(ctx, client, o, tokens, &r)
	r.End = time.Now()
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

func stream(ctx context.Context, client *http.Client, o Options, tokens int, r *Request) error {
	body, err := json.Marshal(map[string]any{
		"model":             o.Model,
		"stream":            true,
		"max_tokens":        tokens,
		"tokens_per_second": o.TokensPerSecond,
		"messages":          []map[string]string{{"role": "user", "content": "Count to " + fmt.Sprint(tokens)}},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", answer.Status)
	}
	r.ServedBy = answer.Header.Get("X-Served-By")
	r.Outcome = Cut
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			r.Outcome = Completed
			// Read to the end, so that a connection that is kept alive can be reused.
			_, err = io.Copy(io.Discard, answer.Body)
			return err
		default:
			r.Tokens++
		}
	}
	return errors.Join(lines.Err(), errors.New("the stream ended before [DONE]"))
}
