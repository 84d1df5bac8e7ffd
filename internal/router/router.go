package router

import (
	"context"
	"net/http"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// Process is one process of a router, and how it is asked.
type Process struct {
	withdraw.Process
	// URL is where it is asked, with scheme, host and port; Metrics where its metrics
	// are, if that is elsewhere; empty where they are not known.
	URL, Metrics string
	// Image is what its container runs, and Args its whole command line: they say which
	// version it is and what it was told to do.
	Image string
	Args  []string
}

// Backend is a replica as routers know it: the member that answers for it.
type Backend struct {
	Namespace, Name string
	UID             types.UID
	Addrs           []netip.Addr
	Port            uint16
	// Labels are those of its Pod now, and Ready whether that is.
	Labels map[string]string
	Ready  bool
}

// Family is what routers of one family can be asked and told.
type Family interface {
	// Look asks one process about replicas, in the fewest requests that this takes, and
	// returns one sighting for each of them, in their order. What could not be learned is
	// unknown in it, and Why says why. The client bounds each request; a body is at most
	// 1 MiB.
	Look(ctx context.Context, client *http.Client, p Process, backends []Backend) []withdraw.Sighting
	// Told is withdraw.Process.Told and Drains of a process: whether it has to be told to
	// leave a replica alone, and before that is marked, and whether that begins a drain.
	Told(p Process) (told, drains bool)
	// Withdraw tells a process to choose the replica no more. It returns when that was
	// accepted, which is not when it has come true.
	Withdraw(ctx context.Context, client *http.Client, p Process, b Backend) error
	// Restore tells a process that it may choose the replica again. Whether it does is
	// for Look to say.
	Restore(ctx context.Context, client *http.Client, p Process, b Backend) error
}
