package retire

import (
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// probe starts a read, if none is under way and the last one is long enough ago.
func (h *host) probe(a Probe) {
	uid := a.Pod.UID
	last, ok := h.started[uid]
	if ok && h.tick < last+int(ReadInterval/time.Second) || slices.ContainsFunc(h.reading, func(r reading) bool { return r.Pod.UID == uid }) {
		return
	}
	p := h.byUID(uid)
	if p == nil {
		return
	}
	h.started[uid] = h.tick
	r := reading{Probe: a, sent: h.tick, at: h.tick + 1, until: h.tick + 1}
	if h.faulty && h.chance(4) {
		r.at += h.random.IntN(2)
		r.until = r.at + h.random.IntN(3)
	}
	r.read = Read{SentAt: h.clock(), ContainerID: a.Pod.ContainerID, Reason: names.HeldReadFailed}
	r.sample = withdraw.Sample{SentAt: r.read.SentAt, ContainerID: a.Pod.ContainerID}
	if !h.bound(p, a.Pod) {
		r.read.Reason, r.at = names.HeldContainerRestarted, -1
	}
	h.reading = append(h.reading, r)
}

// bound reports whether a Pod runs what was bound, as far as the API server knows.
func (h *host) bound(p *pod, ref PodRef) bool {
	same := p.ContainerID == ref.ContainerID || h.bug == "counts a read from another container"
	return same && p.Running && !p.leaving()
}

// receive goes on with the reads under way.
func (h *host) receive() {
	open := h.reading[:0]
	for _, r := range h.reading {
		p := h.byUID(r.Pod.UID)
		if r.at == h.tick && p != nil {
			h.ask(p, &r)
		}
		if h.tick < r.until {
			open = append(open, r)
			continue
		}
		h.due = true
		if p == nil || !h.bound(p, r.Pod) {
			r.read.Verdict, r.read.Reason, r.sample.Known = ReadFailed, names.HeldContainerRestarted, false
		}
		h.keep(r)
	}
	h.reading = open
}

// ask is the moment in which an engine answers.
func (h *host) ask(p *pod, r *reading) {
	if p.run == 0 || p.NodeUnreachable {
		return
	}
	if h.faulty && h.chance(12) {
		r.read.Reason = []string{names.HeldReadTimedOut, names.HeldReadIncomplete, names.HeldExecForbidden}[h.random.IntN(3)]
		r.until = r.sent + 5
		return
	}
	r.read.Started = strconv.Itoa(p.run)
	r.read.Message = r.read.Started // the run it was really made in, for checkDecision
	r.sample.Known, r.sample.Established = true, p.established()
	r.sample.From = read
	r.dropped = p.in>>p.slow&1 == 0 && p.Withdrawn
	switch {
	case p.noGauges && h.bug != "reads an absent gauge as zero":
		r.read.Reason = names.ReadGaugesMissing
	case p.noGauges || p.gauge == 0:
		r.read.Verdict = ReadIdle
	default:
		r.read.Verdict, r.read.InFlight = ReadBusy, int64(p.gauge)
	}
}

// keep hands a read over, in the order in which reads were sent.
func (h *host) keep(r reading) {
	r.read.ReceivedAt, r.sample.ReceivedAt = h.clock(), h.clock()
	uid := r.Pod.UID
	reads := h.seen.Reads[uid]
	if len(reads) >= 48 {
		reads = slices.Clone(reads[24:])
	}
	h.seen.Reads[uid] = append(reads, r.read)
	if !r.Clients {
		return
	}
	d := h.seen.Direct[uid]
	if !r.dropped && r.sample.Known {
		d = withdraw.Direct{In: []string{"all"}}
	} else if d.DroppedAt.IsZero() && r.dropped {
		d = withdraw.Direct{DroppedAt: r.sample.SentAt}
	}
	if h.bug == "takes an unread connection for none" {
		r.sample.Known = true
	}
	if len(d.Samples) >= 48 {
		d.Samples = slices.Clone(d.Samples[24:])
	}
	d.Samples = append(d.Samples, r.sample)
	h.seen.Direct[uid] = d
}
