package standin

import (
	"context"
	"slices"
	"sync"
	"time"
)

// load is what a scheduler has at one moment, and the tokens its last step made.
type load struct{ running, waiting, tokens int }

// metrics are an engine's families, told what the schedulers do. Each engine
// decides itself when a number reaches a gauge.
type metrics interface {
	// prefilled tells the load before and after a prefill's requests joined
	// the batch.
	prefilled(rank int, before, after load)
	decoded(rank int, after load)
	aborted(rank int, after load)
	ended(rank int, r *request)
	// idle is asked when there is nothing to do, and says after how long to be
	// asked again; 0 for never.
	idle(rank int) time.Duration
	handled(method, path string, status int, took time.Duration)
}

// The reasons of a request's end, in OpenAI's words.
const (
	finishLength = "length"
	finishAbort  = "abort"
)

// request is one generation inside a scheduler. Its fields belong to the
// scheduler's lock until finished is closed.
type request struct {
	id     string
	prompt int     // tokens
	limit  int     // tokens to generate
	rate   float64 // tokens per second
	stream bool

	arrived, scheduled, firstToken time.Time

	produced int
	credit   float64   // part of the next token
	credited time.Time // when credit was last counted
	finish   string
	progress chan struct{} // holds one when produced or finish changed
}

// scheduler is one engine: a queue, a batch, and a step that gives each running
// request its next tokens.
type scheduler struct {
	rank    int
	max     int
	prefill time.Duration
	metrics metrics
	wake    chan struct{}

	mu               sync.Mutex
	waiting, running []*request
}

func newScheduler(rank int, o Options, m metrics) *scheduler {
	return &scheduler{rank: rank, max: o.MaxRunning, prefill: o.PrefillTime, metrics: m, wake: make(chan struct{}, 1)}
}

// run steps until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.admit(ctx)
		pause, ok := s.pause()
		var timer <-chan time.Time
		if ok {
			timer = time.After(pause)
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-timer:
		}
		s.decode()
	}
}

// pause is how long the next step takes: until the fastest running request is
// due a token, or, with nothing to do, until the next idle report. Requests of
// one rate share their steps, as a batch does.
func (s *scheduler) pause() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) > 0 {
		fastest := s.running[0]
		for _, r := range s.running[1:] {
			if r.rate > fastest.rate {
				fastest = r
			}
		}
		due := fastest.credited.Add(time.Duration((1 - fastest.credit) / fastest.rate * float64(time.Second)))
		return time.Until(due), true
	}
	if len(s.waiting) > 0 {
		return 0, true
	}
	again := s.metrics.idle(s.rank)
	return again, again > 0
}

// admit prefills as many waiting requests as the batch has room for; each
// leaves it with its first token.
func (s *scheduler) admit(ctx context.Context) {
	s.mu.Lock()
	n := min(s.max-len(s.running), len(s.waiting))
	if n <= 0 {
		s.mu.Unlock()
		return
	}
	joining := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	before := load{running: len(s.running), waiting: len(s.waiting)}
	for _, r := range joining {
		r.scheduled = time.Now()
	}
	s.mu.Unlock()

	select {
	case <-ctx.Done():
	case <-time.After(s.prefill):
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range joining {
		if r.finish != "" {
			continue
		}
		r.firstToken = time.Now()
		r.credited = r.firstToken
		s.running = append(s.running, r)
		s.give(r, 1)
	}
	s.drop()
	s.metrics.prefilled(s.rank, before, s.load(len(joining)))
}

// decode gives every running request the tokens that fell due since its last.
func (s *scheduler) decode() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, tokens := time.Now(), 0
	for _, r := range s.running {
		// The margin is for rounding: a token due now is given now.
		r.credit += now.Sub(r.credited).Seconds()*r.rate + 1e-6
		r.credited = now
		due := int(r.credit)
		r.credit -= float64(due)
		s.give(r, due)
		tokens += due
	}
	if tokens == 0 {
		return
	}
	s.drop()
	s.metrics.decoded(s.rank, s.load(tokens))
}

// give hands out n tokens and finishes a request that has all of its own.
func (s *scheduler) give(r *request, n int) {
	if n == 0 {
		return
	}
	r.produced = min(r.produced+n, r.limit)
	if r.produced == r.limit {
		s.end(r, finishLength)
	}
	r.tell()
}

// drop frees the batch of what is finished, as an engine does the moment the
// last token is sampled, however slowly the client reads.
func (s *scheduler) drop() {
	finished := func(r *request) bool { return r.finish != "" }
	s.running = slices.DeleteFunc(s.running, finished)
	s.waiting = slices.DeleteFunc(s.waiting, finished)
}

func (s *scheduler) end(r *request, reason string) {
	r.finish = reason
	s.metrics.ended(s.rank, r)
}

func (s *scheduler) load(tokens int) load {
	return load{running: len(s.running), waiting: len(s.waiting), tokens: tokens}
}

// submit queues a request.
func (s *scheduler) submit(r *request) {
	s.mu.Lock()
	r.arrived = time.Now()
	s.waiting = append(s.waiting, r)
	s.mu.Unlock()
	s.nudge()
}

// abort ends a request that is not finished yet.
func (s *scheduler) abort(r *request) {
	s.mu.Lock()
	if r.finish == "" {
		s.end(r, finishAbort)
		s.drop()
		s.metrics.aborted(s.rank, s.load(0))
	}
	s.mu.Unlock()
	r.tell()
	s.nudge()
}

// progress returns how many tokens a request has and why it ended, if it did.
func (s *scheduler) progress(r *request) (produced int, finish string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.produced, r.finish
}

func (s *scheduler) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) + len(s.waiting)
}

func (s *scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (r *request) tell() {
	select {
	case r.progress <- struct{}{}:
	default:
	}
}
