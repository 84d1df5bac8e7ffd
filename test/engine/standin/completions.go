package standin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RateHeader sets the tokens per second of one request, as the field
// "tokens_per_second" of its body does. max_tokens over the rate is how long
// the generation takes.
const RateHeader = "X-Tokens-Per-Second"

// hostname tells clients behind a Service which Pod answered.
var hostname, _ = os.Hostname()

// fastest bounds the tokens per second of a request.
const fastest = 1e5

type completionRequest struct {
	Model               string          `json:"model"`
	Prompt              json.RawMessage `json:"prompt"`
	Messages            json.RawMessage `json:"messages"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Stream              bool            `json:"stream"`
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	TokensPerSecond float64 `json:"tokens_per_second"`
}

// answer writes one generation in OpenAI's shape.
type answer struct {
	id, model string
	created   int64
	chat      bool
}

func (e *Engine) complete(w http.ResponseWriter, r *http.Request) {
	in, generation, err := e.parse(r)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errUnknownModel) {
			status = http.StatusNotFound
		}
		writeError(w, status, err.Error())
		return
	}
	generation.id = e.begin(r)
	chat := strings.HasSuffix(r.URL.Path, "/chat/completions")
	a := answer{id: "cmpl-" + generation.id, model: in.Model, created: time.Now().Unix(), chat: chat}
	if chat {
		a.id = "chatcmpl-" + generation.id
	}
	w.Header().Set("X-Request-Id", generation.id)
	w.Header().Set("X-Served-By", hostname)

	s := e.scheduler()
	if e.options.Kind == VLLM && e.leaving() {
		// A draining vLLM takes no new work: the request ends as aborted.
		generation.finish = finishAbort
	} else {
		s.submit(generation)
	}
	var tokens int
	var cutBy string
	if in.Stream {
		tokens, cutBy = e.stream(w, r, s, generation, a, in.StreamOptions.IncludeUsage)
	} else if tokens, cutBy = e.wait(r, s, generation, 0); cutBy == "" {
		_, finish := s.progress(generation)
		writeJSON(w, http.StatusOK, a.whole(generation.prompt, tokens, finish))
	}
	e.end(generation.id, tokens, cutBy)
	if cutBy != "" {
		panic(http.ErrAbortHandler) // closes the connection with the answer unfinished
	}
}

// stream sends the tokens as they come.
func (e *Engine) stream(w http.ResponseWriter, r *http.Request, s *scheduler, g *request, a answer, usage bool) (int, string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	out := http.NewResponseController(w)
	send := func(v any) {
		line, _ := json.Marshal(v)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", line)
	}
	if a.chat {
		send(a.chunk(map[string]any{"role": "assistant", "content": ""}, nil))
	}
	sent := 0
	for {
		produced, cutBy := e.wait(r, s, g, sent+1)
		if cutBy != "" {
			return sent, cutBy
		}
		for ; sent < produced; sent++ {
			send(a.chunk(a.delta(word(sent)), nil))
		}
		if _, finish := s.progress(g); finish != "" {
			send(a.chunk(a.delta(""), finish))
			if usage {
				send(a.usage(g.prompt, sent))
			}
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
			_ = out.Flush()
			return sent, ""
		}
		_ = out.Flush()
	}
}

// wait returns when the generation has n tokens (0: all of them) or has ended.
// Who cut it, if it was cut, is the second result.
func (e *Engine) wait(r *http.Request, s *scheduler, g *request, n int) (int, string) {
	for {
		produced, finish := s.progress(g)
		if finish != "" || n > 0 && produced >= n {
			return produced, ""
		}
		select {
		case <-g.progress:
		case <-e.cut:
			s.abort(g)
			return produced, "engine"
		case <-r.Context().Done():
			s.abort(g)
			return produced, "client"
		}
	}
}

var errUnknownModel = errors.New("the model does not exist")

func (e *Engine) parse(r *http.Request) (completionRequest, *request, error) {
	var in completionRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 16<<20)).Decode(&in); err != nil {
		return in, nil, fmt.Errorf("reading the request's JSON: %w", err)
	}
	if in.Model == "" {
		in.Model = e.options.Models[0]
	}
	if !slices.Contains(e.options.Models, in.Model) {
		return in, nil, fmt.Errorf("%w: %q, this server has %q", errUnknownModel, in.Model, e.options.Models)
	}
	g := &request{
		prompt: 1 + len(strings.Fields(string(in.Prompt)+string(in.Messages))),
		limit:  16, rate: e.options.TokensPerSecond, stream: in.Stream, progress: make(chan struct{}, 1),
	}
	for _, limit := range []*int{in.MaxTokens, in.MaxCompletionTokens} {
		if limit == nil {
			continue
		}
		if *limit < 1 {
			return in, nil, fmt.Errorf("max_tokens must be at least 1, got %d", *limit)
		}
		g.limit = *limit
	}
	if v := r.Header.Get(RateHeader); v != "" {
		rate, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return in, nil, fmt.Errorf("%s: %q is not a number", RateHeader, v)
		}
		in.TokensPerSecond = rate
	}
	if in.TokensPerSecond != 0 {
		g.rate = in.TokensPerSecond
	}
	if !(g.rate > 0 && g.rate <= fastest) {
		return in, nil, fmt.Errorf("tokens_per_second must be above 0 and at most %g, got %g", fastest, g.rate)
	}
	return in, g, nil
}

func writeError(w http.ResponseWriter, status int, message string) {
	kind := "BadRequestError"
	if status == http.StatusNotFound {
		kind = "NotFoundError"
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status}})
}

// word is the text of the n-th token.
func word(n int) string { return "token" + strconv.Itoa(n) + " " }

func (a answer) object(kind string, choice map[string]any) map[string]any {
	choice["index"] = 0
	choice["logprobs"] = nil
	return map[string]any{"id": a.id, "object": kind, "created": a.created, "model": a.model, "choices": []any{choice}}
}

func (a answer) delta(text string) map[string]any {
	if a.chat {
		return map[string]any{"content": text}
	}
	return map[string]any{"text": text}
}

func (a answer) chunk(delta map[string]any, finish any) map[string]any {
	if a.chat {
		return a.object("chat.completion.chunk", map[string]any{"delta": delta, "finish_reason": finish})
	}
	delta["finish_reason"] = finish
	return a.object("text_completion", delta)
}

func (a answer) usage(prompt, tokens int) map[string]any {
	kind := "text_completion"
	if a.chat {
		kind = "chat.completion.chunk"
	}
	return map[string]any{
		"id": a.id, "object": kind, "created": a.created, "model": a.model, "choices": []any{}, "usage": usage(prompt, tokens),
	}
}

func (a answer) whole(prompt, tokens int, finish string) map[string]any {
	var text strings.Builder
	for n := range tokens {
		text.WriteString(word(n))
	}
	choice := map[string]any{"text": text.String(), "finish_reason": finish}
	kind := "text_completion"
	if a.chat {
		choice = map[string]any{"message": map[string]any{"role": "assistant", "content": text.String()}, "finish_reason": finish}
		kind = "chat.completion"
	}
	whole := a.object(kind, choice)
	whole["usage"] = usage(prompt, tokens)
	return whole
}

func usage(prompt, tokens int) map[string]int {
	return map[string]int{"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
}
