package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// A Call is one that the API server has answered. A watch counts when it ends.
type Call struct {
	User, Verb string
	// Resource is with the subresource, such as pods/status.
	Resource string
	// Namespace and Name are of the object; a create has no Name.
	Namespace, Name string
	Code            int32
	// Answered is the API server's clock, to the microsecond.
	Answered time.Time
}

// Standing tells whether a client makes the call whatever happens: the renewal of
// its Lease, or a watch.
func (c Call) Standing() bool { return c.Verb == "watch" || c.Resource == "leases" }

// Calls are those of the audited users, as far as they were read.
type Calls struct {
	file *os.File
	rest []byte // a line that is not whole yet
	all  []Call
}

func openCalls(log string) (*Calls, error) {
	file, err := os.Open(log)
	return &Calls{file: file}, err
}

// Read reads what was added to the log.
func (c *Calls) Read() error {
	added, err := io.ReadAll(c.file)
	if err != nil {
		return err
	}
	more, rest, err := parseCalls(append(c.rest, added...))
	c.all, c.rest = append(c.all, more...), rest
	return err
}

// Between are the calls of a user that were answered from begin on and before end.
func (c *Calls) Between(user string, begin, end time.Time) []Call {
	return slices.DeleteFunc(slices.Clone(c.all), func(call Call) bool {
		return call.User != user || call.Answered.Before(begin) || !call.Answered.Before(end)
	})
}

// parseCalls reads whole lines of an audit log and returns what is left.
func parseCalls(log []byte) (calls []Call, rest []byte, err error) {
	for {
		line, after, whole := bytes.Cut(log, []byte("\n"))
		if !whole {
			return calls, log, nil
		}
		log = after
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return calls, log, fmt.Errorf("reading the audit log: %w", err)
		}
		call := Call{User: event.User.Username, Verb: event.Verb, Resource: event.RequestURI, Answered: event.StageTimestamp.UTC()}
		if o := event.ObjectRef; o != nil {
			call.Resource, call.Namespace, call.Name = o.Resource, o.Namespace, o.Name
			if o.Subresource != "" {
				call.Resource += "/" + o.Subresource
			}
		}
		if event.ResponseStatus != nil {
			call.Code = event.ResponseStatus.Code
		}
		calls = append(calls, call)
	}
}
