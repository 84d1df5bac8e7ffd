package probe

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// ReadLimit is the longest a read takes, connection included.
const ReadLimit = 5 * time.Second

// Target is what to read: one run of one engine.
type Target struct {
	Namespace, Name string
	UID             types.UID
	// Container is the engine's, and ContainerID the run that is meant, as the Pod's
	// status names it.
	Container, ContainerID string
	Engine                 engine.Engine
	// Endpoint is the metricsURL of the Pod's admission record. Its host is a
	// loopback address or one of the Pod's own.
	Endpoint string
	// Ports are the local ports whose connections are read too; none where that is
	// empty.
	Ports []uint16
}

// Result is what a read came to.
type Result struct {
	// SentAt is before anything was asked, and ReceivedAt after all was answered.
	SentAt, ReceivedAt time.Time
	// Started is when the container's first process was started, in the kernel's
	// ticks: equal in two reads of the same run. Empty where it was not read; the
	// verdict is Unknown then.
	Started string
	Verdict engine.Verdict
	// InFlight is how many requests the engine has, at least 1, where it is Busy.
	InFlight int64
	// Reason is why the verdict is Unknown, one of names.Held* and names.Read*; else
	// empty.
	Reason string
	// Message is for people: the gauges that are above zero, or what went wrong and,
	// where there is one, the way out.
	Message string
	// ConnectionsKnown is whether Connections is all there were. It does not depend on
	// the verdict.
	ConnectionsKnown bool
	// Connections are the remote ends of the established connections to
	// Target.Ports, without those from the container's own loopback address.
	Connections []netip.AddrPort
	// Gateway are the Pod's default gateways: addresses by which its node reaches it,
	// beside the node's own.
	Gateway []netip.Addr
}

// Reader reads members. It can be used by many goroutines at once.
type Reader struct {
	config *rest.Config
	exec   *rest.RESTClient
	live   client.Reader
	clock  clock.PassiveClock
	limit  time.Duration
}

// New makes a Reader that execs by way of the API server of config. live must read
// from the API server too: what a cache says of a Pod can be of the run before.
func New(config *rest.Config, live client.Reader, c clock.PassiveClock) (*Reader, error) {
	exec, err := execClient(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for pods/exec: %w", err)
	}
	return &Reader{config: config, exec: exec, live: live, clock: c, limit: ReadLimit}, nil
}

// Read reads a member once. It takes ReadLimit at most, and ends at once when ctx
// does.
func (r *Reader) Read(ctx context.Context, t Target) Result {
	sentAt := r.clock.Now()
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	result, err := r.read(ctx, t)
	if err != nil {
		f := r.asFailure(ctx, err)
		result.Verdict, result.InFlight, result.Reason, result.Message = engine.Unknown, 0, f.reason, f.message
	}
	result.SentAt, result.ReceivedAt = sentAt, r.clock.Now()
	return result
}

// read is a Result but for its times; of one that comes with an error, no verdict.
func (r *Reader) read(ctx context.Context, t Target) (Result, error) {
	if len(t.Engine.Gauges) == 0 {
		return Result{}, failed(names.HeldNoGaugeList, "the gauges of engine %q are not known", t.Engine.Name)
	}
	pod, err := r.check(ctx, t)
	if err != nil {
		return Result{}, err
	}
	at, err := endpoint(t.Endpoint, pod.Status)
	if err != nil {
		return Result{}, failed(names.HeldReadFailed, "the endpoint of the Pod's record, %q, %v", t.Endpoint, err)
	}
	output, err := r.run(ctx, t, command(at, t.Ports))
	if err != nil {
		return Result{}, err
	}
	a, err := parse(output)
	if err != nil {
		return Result{}, err
	}
	if _, err := r.check(ctx, t); err != nil {
		return Result{}, err
	}
	return a.result(t.Engine)
}

// result judges the answer. With an error it is what was read beside the gauges.
func (a answer) result(e engine.Engine) (Result, error) {
	result := Result{Started: a.Started}
	if a.Started == "" {
		return Result{}, failed(names.HeldReadFailed, "the start of the container's first process cannot be read in its /proc")
	}
	if a.Connections != nil {
		result.ConnectionsKnown, result.Connections, result.Gateway = true, a.remote(), a.Gateways
	}
	if err := a.failure(); err != nil {
		return result, err
	}
	reading := e.Read(a.body)
	result.Verdict, result.Reason = reading.Verdict, reading.Reason
	switch reading.Verdict {
	case engine.Busy:
		result.InFlight, result.Message = requests(reading.InFlight), inFlight(reading.Gauges)
	case engine.Unknown:
		result.Message = reading.Detail
	case engine.Idle:
	}
	return result, nil
}

// requests is a sum of gauges as a number of requests, at least 1.
func requests(sum float64) int64 {
	if sum >= math.MaxInt64 {
		return math.MaxInt64
	}
	return max(1, int64(math.Ceil(sum)))
}

// inFlight are the gauges above zero, "vllm:num_requests_running 3".
func inFlight(gauges []engine.GaugeValue) string {
	var parts []string
	for _, g := range gauges {
		if g.Value > 0 {
			parts = append(parts, fmt.Sprintf("%s %g", g.Name, g.Value))
		}
	}
	return strings.Join(parts, ", ")
}
