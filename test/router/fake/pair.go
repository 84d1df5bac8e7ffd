package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// PrefillTimeHeader sets how long the prefill of one request takes at least, such as 3s.
const PrefillTimeHeader = "X-Prefill-Time"

// prefill sends the request to the prefill worker for one token, and returns when it has
// answered and the time that it must take has passed.
func (p *process) prefill(ctx context.Context, q *request, c *choice) error {
	begun := p.clock.Now()
	res, err := p.send(ctx, c.prefill, q.header, q.path, oneToken(q.body))
	if err != nil {
		return fmt.Errorf("prefill: %w", err)
	}
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, mostBody))
	_ = res.Body.Close()
	switch {
	case err != nil:
		return fmt.Errorf("prefill: %w", err)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("prefill: %s", res.Status)
	}
	takes := p.options.PrefillTime
	if d, err := time.ParseDuration(q.header.Get(PrefillTimeHeader)); err == nil {
		takes = d
	}
	if left := takes - p.clock.Since(begun); left > 0 && !p.wait(ctx, left) {
		return ctx.Err()
	}
	return nil
}

// oneToken is a request's body that asks for one token, in one piece.
func oneToken(body []byte) []byte {
	var fields map[string]any
	if json.Unmarshal(body, &fields) != nil {
		return body // the worker will say what is wrong with it
	}
	fields["max_tokens"], fields["stream"] = 1, false
	delete(fields, "max_completion_tokens")
	delete(fields, "stream_options")
	short, _ := json.Marshal(fields)
	return short
}

// hold keeps a request that has chosen its decode worker for as long as the fault says, or
// until that is off.
func (p *process) hold(ctx context.Context, c *choice) error {
	begun := p.clock.Now()
	for {
		p.mu.Lock()
		f, on := p.faults.of(PrefillHold, c.worker.pod.name)
		changed := p.changed
		p.mu.Unlock()
		if !on {
			return nil
		}
		const forEver = 1 << 62
		left := f.duration(forEver) - p.clock.Since(begun)
		if left <= 0 {
			return nil
		}
		timer := p.clock.NewTimer(left)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		case <-changed:
		}
		timer.Stop()
	}
}

// decodeHeader is what the worker that answers is told of the one that prefilled.
func (p *process) decodeHeader(q *request, c *choice) http.Header {
	header := q.header.Clone()
	header.Set("X-Request-Id", q.id)
	address := func(w *worker) string { return strings.TrimPrefix(w.base(), "http://") }
	switch {
	case p.options.Family == LLMD:
		header.Set("X-Gateway-Destination-Endpoint", address(c.worker))
		if c.prefill != nil {
			header.Set("X-Prefiller-Host-Port", address(c.prefill))
		}
	case c.prefill != nil:
		header.Set("X-Request-Id", "___prefill_addr_"+address(c.prefill)+"___decode_addr_"+address(c.worker)+"_"+q.id)
	}
	return header
}

func cutRank(url string) (base, rank string, has bool) { return strings.Cut(url, "@") }
