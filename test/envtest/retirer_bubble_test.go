package envtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// outsider runs what a bubble cannot have inside: in one, time stands still while
// anything waits for the network, and connections wait for ever.
type outsider struct {
	work chan func()
	done chan struct{}
}

var outsiders = sync.OnceValue(func() chan outsider {
	all := make(chan outsider, 16)
	for range cap(all) {
		o := outsider{make(chan func()), make(chan struct{})}
		go func() {
			for f := range o.work {
				f()
				o.done <- struct{}{}
			}
		}()
		all <- o
	}
	return all
})

// fromInside is a transport for bubbles: virtual time stands still while the API
// server works.
type fromInside struct {
	transport http.RoundTripper
	// writes counts the requests that may have changed something.
	writes *atomic.Int64
}

func (f fromInside) RoundTrip(request *http.Request) (response *http.Response, err error) {
	o := <-outsiders()
	defer func() {
		if request.Method != http.MethodGet {
			f.writes.Add(1)
		}
		outsiders() <- o
	}()
	o.work <- func() {
		if response, err = f.transport.RoundTrip(request.WithContext(context.Background())); err != nil {
			return
		}
		var body []byte
		body, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	<-o.done
	return response, err
}

// insideClient calls the API server from a bubble, with a token or as the admin.
func insideClient(token string, mapper meta.RESTMapper, writes *atomic.Int64) (client.WithWatch, error) {
	c := rest.CopyConfig(config)
	if token != "" {
		c = rest.AnonymousClientConfig(config)
		c.BearerToken = token
	}
	c.WarningHandlerWithContext, c.QPS = rest.NoWarnings{}, -1
	c.Wrap(func(transport http.RoundTripper) http.RoundTripper { return fromInside{transport, writes} })
	return client.NewWithWatch(c, client.Options{Mapper: mapper})
}

// kinds is what all of them know of the API server.
var kinds = sync.OnceValues(func() (meta.RESTMapper, error) {
	c, err := insideClient("", nil, &atomic.Int64{})
	if err != nil {
		return nil, err
	}
	return c.RESTMapper(), nil
})

// present is the API server's time, passing as it does in the bubble.
type present struct {
	clock.RealClock
	offset time.Duration
}

func (p present) Now() time.Time                  { return time.Now().Add(p.offset) }
func (p present) Since(t time.Time) time.Duration { return p.Now().Sub(t) }
