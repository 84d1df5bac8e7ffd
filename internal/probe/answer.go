package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// mostOutput is the largest answer, in bytes: a body, and a line with the most
// connections.
const mostOutput = engine.MaxBody + mostConnections*64 + 4096

// answer is what the program says.
type answer struct {
	Started string `json:"started"`
	// Failed is the Python exception that ended the fetch, and Saying what it says;
	// empty where there is a body.
	Failed string `json:"failed"`
	Saying string `json:"saying"`
	// Length is the body's, in bytes.
	Length int `json:"length"`
	// Connections are nil where they were not read.
	Connections []remote     `json:"connections"`
	Gateways    []netip.Addr `json:"gateways"`

	body []byte
}

// remote is the other end of a connection, as the program writes it: an address
// and a port.
type remote netip.AddrPort

func (r *remote) UnmarshalJSON(text []byte) error {
	var pair [2]json.RawMessage
	var addr netip.Addr
	var port uint16
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if err := errors.Join(json.Unmarshal(pair[0], &addr), json.Unmarshal(pair[1], &port)); err != nil {
		return err
	}
	*r = remote(netip.AddrPortFrom(addr.Unmap(), port))
	return nil
}

// parse takes the program's output apart.
func parse(output []byte) (answer, error) {
	rest, whole := bytes.CutSuffix(output, []byte(endMark))
	if !whole {
		return answer{}, failed(names.HeldReadIncomplete, "the answer was cut after %d bytes", len(output))
	}
	header, body, _ := bytes.Cut(rest, []byte{'\n'})
	var a answer
	if err := json.Unmarshal(header, &a); err != nil {
		return answer{}, failed(names.HeldReadFailed, "the program in the container says something else than an answer: %v", err)
	}
	if a.Length != len(body) {
		return answer{}, failed(names.HeldReadIncomplete, "the answer has %d of %d bytes of the body", len(body), a.Length)
	}
	a.body = body
	return a, nil
}

// failure is why the engine's answer is not a body.
func (a answer) failure() error {
	switch a.Failed {
	case "":
		return nil
	case "Overrun":
		return failed(names.HeldReadTimedOut, "the engine does not finish answering in %s", drain.ReadLimit)
	case "Cut":
		return failed(names.HeldReadIncomplete, "the engine's answer: %s", a.Saying)
	case "TooLarge":
		return failed(names.ReadTooLarge, "the engine's answer: %s", a.Saying)
	case "NothingToMeasure", "Unread":
		return failed(names.HeldReadFailed, "the engine cannot be asked: %s", a.Saying)
	}
	return failed(names.HeldReadFailed, "asking the engine fails: %s: %s", a.Failed, a.Saying)
}

// remote are the connections that are not from the container's own loopback address.
// Istio hands on what clients send from another one, 127.0.0.6.
func (a answer) remote() []netip.AddrPort {
	var all []netip.AddrPort
	for _, r := range a.Connections {
		if r := netip.AddrPort(r); r.Addr() != ownLoopback && r.Addr() != netip.IPv6Loopback() {
			all = append(all, r)
		}
	}
	return all
}

var ownLoopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
