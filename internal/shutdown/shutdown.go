// Package shutdown lets an admission server leave without refusing anybody.
//
// A Pod gets its SIGTERM at the same time as the rest of the cluster hears that
// it is going. Until kube-proxy and the API servers have heard, they send
// requests to it, so it has to go on answering. See Delay and Handler.
package shutdown

import (
	"context"
	"net/http"
	"time"
)

// Delay returns a context that ends the given time after ctx does.
func Delay(ctx context.Context, delay time.Duration) context.Context {
	delayed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(delay, cancel) })
	return delayed
}

// Handler answers as next does and, once ctx has ended, closes each connection
// after its answer. An API server keeps its connections open for long, and only
// a new one leads it to another replica.
func Handler(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
