package probe

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/lastcall-dev/lastcall/api/names"
)

// failure is why a read proves nothing.
type failure struct {
	reason  string // one of names.Held* and names.Read*
	message string
}

func (f *failure) Error() string { return f.message }

func failed(reason, format string, args ...any) error {
	return &failure{reason: reason, message: fmt.Sprintf(format, args...)}
}

// asFailure is err as the end of a read. Whatever is still waited for when the time
// is over fails in its own way: it is the time that counts.
func (r *Reader) asFailure(ctx context.Context, err error) *failure {
	var f *failure
	var timeout net.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(ctx.Err(), context.Canceled):
		return &failure{names.HeldReadFailed, "the read was called off"}
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &failure{names.HeldReadTimedOut, fmt.Sprintf("no answer through the API server and the kubelet in %s", r.limit)}
	}
	return &failure{names.HeldReadFailed, err.Error()}
}
