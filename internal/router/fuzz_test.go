package router

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// bodies answers with a page, and then ends it or breaks off.
type bodies struct {
	workers, metrics []byte
	broken           bool
}

func (b bodies) RoundTrip(r *http.Request) (*http.Response, error) {
	body := b.workers
	if r.URL.Path == "/metrics" {
		body = b.metrics
	}
	response := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	if b.broken {
		response.ContentLength, response.TransferEncoding = -1, []string{"chunked"}
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), &broken{}))
	}
	return response, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// processes are one of each family, asked without a network.
func processes() map[v1alpha1.RouterName]Process {
	return map[v1alpha1.RouterName]Process{
		v1alpha1.LLMDRouter:    {Process: withdraw.Process{Run: "1"}, URL: "http://r", Image: imageV10, Args: []string{"epp"}},
		v1alpha1.VLLMRouter:    {Process: withdraw.Process{Run: "1"}, URL: "http://r", Metrics: "http://r", Args: vllmArgs},
		v1alpha1.SGLangGateway: {Process: withdraw.Process{Run: "1"}, URL: "http://r", Metrics: "http://r", Image: imageNew, Args: []string{"smg", "--selector", "lastcall.dev/serving=true"}},
	}
}

func lookAt(t testing.TB, name v1alpha1.RouterName, pages bodies, backends ...Backend) []withdraw.Sighting {
	family, _ := of(name, clocktesting.NewFakePassiveClock(began))
	return family.Look(t.Context(), &http.Client{Transport: pages}, processes()[name], backends)
}

func out(s withdraw.Sighting) bool {
	return s.Membership == withdraw.Absent || s.Membership == withdraw.Unselectable
}

// mayBeOut is what a page must at least be for a family to say that a replica is out of
// it, written apart from the code that it checks.
func mayBeOut(name v1alpha1.RouterName, page []byte) error {
	if name == v1alpha1.LLMDRouter {
		if !bytes.HasSuffix(page, []byte("\n")) {
			return fmt.Errorf("it does not end with a line")
		}
		others := false
		for line := range strings.Lines(string(page)) {
			if fields := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' || r == '\t' }); len(fields) > 0 {
				others = others || fields[0] == "llm_d_epp_per_endpoint_queue_size" || fields[0] == "inference_pool_per_pod_queue_size"
			}
		}
		if !others {
			return fmt.Errorf("it lists nobody")
		}
		return nil
	}
	var list struct {
		Workers []json.RawMessage
		Total   *int
	}
	switch err := json.Unmarshal(page, &list); {
	case err != nil:
		return err
	case len(list.Workers) == 0 || list.Total == nil || *list.Total != len(list.Workers):
		return fmt.Errorf("it is not whole")
	}
	return nil
}

// FuzzLook: no page, and no part of a page, makes a family panic or say that a replica is
// out where the page cannot say that.
func FuzzLook(f *testing.F) {
	for _, file := range []string{"vllm-workers.json", "vllm-metrics.txt", "smg-workers.json", "smg-metrics.txt", "sgl-model-gateway-workers.json", "llmd-v0.10.txt", "gaie-v1.5.txt"} {
		text := read(f, file)
		f.Add([]byte(text), uint32(len(text)))
		f.Add([]byte(strings.ReplaceAll(text, "10.0.0.1", "10.0.0.9")), uint32(100))
		f.Add([]byte(outOf(text)), uint32(300))
		f.Add([]byte(strings.ReplaceAll(strings.ReplaceAll(text, `"ready"`, `"draining"`), "not_ready", "draining")), uint32(1000))
	}
	f.Fuzz(func(t *testing.T, page []byte, end uint32) {
		for name := range processes() {
			said := lookAt(t, name, bodies{workers: page, metrics: page}, replica())[0]
			if out(said) {
				require.NoError(t, mayBeOut(name, page), name)
			}
			whyUnknown(t, said)
			cut := page[:min(int(end), len(page))]
			require.False(t, out(lookAt(t, name, bodies{workers: cut, metrics: cut, broken: true}, replica())[0]), "%s: it broke off", name)
			if said = lookAt(t, name, bodies{workers: cut, metrics: cut}, replica())[0]; out(said) {
				require.NoError(t, mayBeOut(name, cut), name)
			}
		}
	})
}

// TestNoPartOfAPageIsTheWhole cuts pages in which the replica is out at every byte.
func TestNoPartOfAPageIsTheWhole(t *testing.T) {
	for name, s := range stages(t) {
		page := strings.TrimSpace(s.page())
		if name == v1alpha1.LLMDRouter {
			page += "\n"
		}
		require.True(t, out(lookAt(t, name, bodies{workers: []byte(page), metrics: []byte(page)}, replica())[0]), name)
		for end := range len(page) {
			cut := []byte(page[:end])
			require.False(t, out(lookAt(t, name, bodies{workers: cut, metrics: cut, broken: true}, replica())[0]), "%s: %d", name, end)
			if name == v1alpha1.LLMDRouter && strings.HasSuffix(page[:end], "\n") {
				continue // lines are all that a page is made of: that one is missing shows in how it is sent
			}
			require.False(t, out(lookAt(t, name, bodies{workers: cut, metrics: cut}, replica())[0]), "%s: %d", name, end)
		}
	}
}

func BenchmarkLook(b *testing.B) {
	backends := make([]Backend, 100)
	for i := range backends {
		backends[i] = replica(func(r *Backend) {
			r.Name, r.UID, r.Addrs = fmt.Sprintf("qwen-server-%d", i), "", addrs(fmt.Sprintf("10.0.%d.1", i))
		})
	}
	for name := range processes() {
		b.Run(string(name), func(b *testing.B) {
			pages := largest(name)
			require.Greater(b, max(len(pages.workers), len(pages.metrics)), maxBody*9/10)
			b.ReportAllocs()
			for b.Loop() {
				assert.Equal(b, withdraw.Selectable, lookAt(b, name, pages, backends...)[99].Membership)
			}
		})
	}
}

// largest are pages just below the limit, of nothing but what is read.
func largest(name v1alpha1.RouterName) (pages bodies) {
	var metrics, workers strings.Builder
	for i := 0; metrics.Len() < maxBody-400; i++ {
		pod, addr := fmt.Sprintf("qwen-server-%d", i), fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff)
		if name == v1alpha1.LLMDRouter {
			fmt.Fprintf(&metrics, "llm_d_epp_per_endpoint_queue_size{model_server_endpoint=%q,name=\"qwen\"} 0\n", pod+"-rank-0")
			fmt.Fprintf(&metrics, "llm_d_epp_inflight_requests{endpoint_name=%q,fairness_id=\"\",namespace=\"team-a\",priority=\"0\",producer_name=\"p\"} 0\n", pod+"-rank-0")
			continue
		}
		fmt.Fprintf(&metrics, "vllm_router_processed_requests_total{worker=\"http://%s:8000\"} 0\n", addr)
	}
	n := 0
	for ; workers.Len() < maxBody-400; n++ {
		fmt.Fprintf(&workers, `,{"id":"%d","url":"http://10.%d.%d.1:8000","model_id":"Qwen/Qwen2.5-7B-Instruct","worker_type":"regular","status":"ready","load":0,"connection_mode":"http"}`, n, n>>8, n&0xff)
	}
	list := fmt.Sprintf(`{"workers":[%s],"total":%d}`, workers.String()[1:], n)
	return bodies{workers: []byte(list), metrics: []byte(metrics.String())}
}
