package router

import (
	"path"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// codebase is which program a gateway of SGLang is.
type codebase uint8

const (
	// either is one of the two; whatever is wrong with one of them is assumed.
	either codebase = iota
	smg
	modelGateway
)

// gateway is what is known of a gateway of SGLang, which decides what it means.
type gateway struct {
	base codebase
	// version is SMG's; zero where it is not known.
	version version
	args    args
}

var (
	firstSMG  = version{1, 5, 0} // the first that was read
	pairedSMG = version{1, 6, 0} // the first to count all requests of a pair
	lastOld   = version{1, 9, 0} // the last that looks at labels once a minute, and counts for some policies only
	newSMG    = version{1, 10, 0}
)

func newGateway(p Process) gateway {
	g := gateway{args: startedWith(p)}
	byImage, byArgs := imageBase(imageName(p.Image)), argsBase(p.Args)
	switch {
	case byImage == byArgs || byArgs == either:
		g.base = byImage
	case byImage == either:
		g.base = byArgs
	}
	if v, ok := imageVersion(p.Image); ok && g.base == smg && byImage == smg {
		g.version = v
	}
	return g
}

func imageBase(name string) codebase {
	switch name {
	case "smg", "shepherd-model-gateway":
		return smg
	case "sgl-model-gateway", "sglang-router", "sgl-router":
		return modelGateway
	}
	return either
}

// argsBase looks at the program, and at the module that Python runs.
func argsBase(argv []string) codebase {
	for i, word := range argv {
		if i > 0 && argv[i-1] == "-m" {
			word, _, _ = strings.Cut(word, ".")
			return imageBase(strings.ReplaceAll(word, "_", "-"))
		}
		if i == 0 {
			if base := imageBase(path.Base(word)); base != either {
				return base
			}
		}
	}
	return either
}

// answering is what is known after an answer: only workers of SMG have a status. An
// answer that is not like the program it should be of makes it either.
func (g gateway) answering(r *roster) gateway {
	if len(r.workers) == 0 {
		return g
	}
	answers := modelGateway
	switch {
	case !r.has(func(w *worker) bool { return w.status == "" }):
		answers = smg
	case r.has(func(w *worker) bool { return w.status != "" }):
		answers = either
	}
	switch {
	case g.base == answers:
	case g.base == either && answers == smg:
		g.base = smg
	default:
		g.base, g.version = either, version{}
	}
	return g
}

func (g gateway) told() bool {
	if g.args.has(pairingFlags...) { // see vllm.Told
		return false
	}
	return g.base == modelGateway || g.base == smg && g.version != version{} && g.version.compare(lastOld) <= 0
}

// holds is whether a request can wait for its prefill when its decode worker has been
// chosen. Where both are sent to at once nothing waits, which SMG over HTTP did until
// 1.9.0; what the others do depends on their engines.
func (g gateway) holds(r *roster) (withdraw.Tri, string) {
	switch pairs(g.args, r) {
	case withdraw.No:
		return withdraw.No, ""
	case withdraw.Unknown:
		return withdraw.Unknown, "its command line is not known, so it may hold requests while others prefill"
	}
	if g.base == smg && g.version.compare(firstSMG) >= 0 && g.version.compare(lastOld) <= 0 && r.http {
		return withdraw.No, ""
	}
	return withdraw.Yes, "it may hold a request for a decode worker while another prefills"
}

// inFlight is the load of a worker, which is the number of its open requests where it
// is counted at all. Each counts from the moment that its worker was chosen to the end
// of the answer, by a guard that goes with the answer. WebSockets have none; they are
// at the engine as soon as they are sent.
func (g gateway) inFlight(own []*worker) (withdraw.Count, string) {
	var n int64
	for _, w := range own {
		switch why := g.uncounted(w); {
		case why != "":
			return withdraw.Count{}, "its load does not count what is in flight: " + why
		case w.load == nil || *w.load < 0:
			return withdraw.Count{}, "its load is no number of requests"
		}
		n += *w.load
	}
	return withdraw.Count{
		Known: true, Value: n,
		BeforeChoice: withdraw.No, HeldToEnd: withdraw.Yes, NeverReset: withdraw.Yes, AllPaths: withdraw.Yes, UniqueIDs: withdraw.Yes,
		SurvivesRemoval: withdraw.No,
	}, ""
}

// uncounted is why a worker's load may leave out requests; empty where it does not.
func (g gateway) uncounted(w *worker) string {
	switch {
	case g.base != smg:
		return "only SMG's does"
	case g.version.compare(firstSMG) < 0:
		return "its release is not known from its image"
	case !w.http():
		return "over gRPC it begins late"
	}
	switch w.kind {
	case "prefill", "decode":
		if g.version.compare(pairedSMG) < 0 {
			return "in this release not for streams of a pair"
		}
		return ""
	case "regular":
		if g.version.compare(newSMG) < 0 && !g.guarded(w) {
			return "in this release only under the policies cache_aware and manual"
		}
		return ""
	}
	return "not for workers of this type"
}

// guarded reports whether requests are counted in releases where that depends on the
// policy, which a worker can have one of its own of.
func (g gateway) guarded(w *worker) bool {
	counts := func(policy string) bool { return slices.Contains([]string{"cache_aware", "manual"}, policy) }
	own, has := w.labels["policy"]
	return g.args.known && !g.args.has("enable-igw") && counts(g.args.value("policy")) && (!has || counts(own))
}
