package fake

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// loadCycles is after how many health checks the ancestors set every load to 0.
	loadCycles = 10
	// relayEvery is how often engines' gauges are read.
	relayEvery = time.Second
	// askWithin bounds a request to an engine that is not a client's.
	askWithin = 5 * time.Second
	mostText  = 4 << 20
)

// checkHealth asks every worker once.
func (p *process) checkHealth() {
	healthy := p.askAll("/health", func(w *worker) bool { return w.status != Draining }, func(string, []byte) {})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if ok, asked := healthy[w.base()]; asked {
			w.checked(ok)
		}
	}
	p.cycles++
	if p.traits.resetsLoad && p.cycles%loadCycles == 0 {
		p.books.reset(p.workers)
	}
}

// engineGauges are what an engine says of itself.
type engineGauges struct{ running, waiting float64 }

// readEngines reads the gauges of every worker's engine.
func (p *process) readEngines() {
	read := map[string]engineGauges{}
	var mu sync.Mutex
	p.askAll("/metrics", func(*worker) bool { return true }, func(url string, text []byte) {
		mu.Lock()
		defer mu.Unlock()
		read[url] = parseEngine(string(text))
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		if e, ok := read[w.base()]; ok && !p.faults.on(EngineGaugeLag, w.pod.name) {
			p.engines[w.base()] = e
		}
	}
}

func parseEngine(text string) (e engineGauges) {
	fields := map[string]*float64{
		"vllm:num_requests_running": &e.running, "vllm:num_requests_waiting": &e.waiting,
		"sglang:num_running_reqs": &e.running, "sglang:num_queue_reqs": &e.waiting,
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), "{")
		if sum := fields[name]; sum != nil {
			v, err := strconv.ParseFloat(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], 64)
			if err == nil {
				*sum += v
			}
		}
	}
	return e
}

// askAll gets a path of some workers, side by side, and reports who answered 200.
func (p *process) askAll(path string, some func(*worker) bool, answer func(url string, body []byte)) map[string]bool {
	p.mu.Lock()
	urls := map[string]bool{}
	for _, w := range p.workers {
		if some(w) {
			urls[w.base()] = false
		}
	}
	p.mu.Unlock()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, url := range slices.Collect(maps.Keys(urls)) {
		asked.Go(func() {
			body, ok := p.ask(url + path)
			if ok {
				answer(url, body)
			}
			mu.Lock()
			urls[url] = ok
			mu.Unlock()
		})
	}
	asked.Wait()
	return urls
}

func (p *process) ask(url string) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(p.ctx, askWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, false
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, false
	}
	defer res.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(res.Body, mostText))
	return body, err == nil && res.StatusCode == http.StatusOK
}
