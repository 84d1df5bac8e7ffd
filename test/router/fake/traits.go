package fake

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// traits are what a family and a version do, as far as a client can tell.
type traits struct {
	// follows is how Pods become workers, one of the discoveries.
	follows string
	// lists is how often it asks for all Pods or looks over what it knows; 0 is never.
	lists time.Duration
	// coalesces is how long it waits for more events before it looks over them.
	coalesces time.Duration

	pd          []string // how prefill and decode can be apart, the default first
	retries     bool
	retriesPair bool // whether that holds for a pair too
	resends     bool // once to the same worker when a connection broke before an answer

	drains       bool          // a removed worker is Draining for a while
	removesAfter time.Duration // how long a removal takes otherwise; 0 is done when the answer comes
	countsPlain  bool          // load is counted where prefill and decode are not apart
	resetsLoad   bool          // every ten health cycles
	countsTotals bool          // SMG: smg_worker_requests_total

	activePorts   []string // llm-d: annotations that can take an endpoint's ports away
	seriesNew     bool     // llm-d: llm_d_epp_ names
	seriesOld     bool     // llm-d: inference_extension_ names
	podNames      bool     // llm-d: those have pod_name where the new ones have endpoint_name
	countsFlights bool     // llm-d: the in-flight gauge
	dropsFlights  bool     // llm-d: its series goes with the endpoint
}

// The ways to follow Pods.
const (
	followsApplied  = "applied"   // whatever a watch says was applied; deletes are dropped
	followsListed   = "listed"    // the same, and a full list now and then
	followsLevel    = "level"     // what there is against what is registered
	followsEndpoint = "endpoints" // each Pod against the pool's selector
)

// release tells versions apart. What is not released is newer than all: what was read of
// SMG after 1.9.0, and of the EPP after 0.10.0, is taken for their next releases.
type release struct{ v *version.Version }

func parseRelease(text string) (release, error) {
	if text == "main" {
		return release{}, nil
	}
	v, err := version.ParseGeneric(text)
	if err != nil {
		return release{}, fmt.Errorf("--version %q: want main or such as 0.10.0", text)
	}
	return release{v}, nil
}

func (r release) since(first string) bool {
	return r.v == nil || r.v.AtLeast(version.MustParseGeneric(first))
}

func traitsOf(o Options) (traits, error) {
	r, err := parseRelease(o.Version)
	if err != nil {
		return traits{}, err
	}
	switch o.Family {
	case VLLMRouter:
		return traits{
			follows: followsApplied, pd: []string{Sequential}, retries: true,
			countsPlain: o.Policy == "cache_aware", resetsLoad: true,
		}, nil
	case SGLModelGateway:
		return traits{
			follows: followsApplied, pd: []string{Dual, Sequential}, retries: true, retriesPair: true,
			removesAfter: 100 * time.Millisecond, countsPlain: o.Policy == "cache_aware", resetsLoad: true,
		}, nil
	case SMG:
		return smgTraits(r, o), nil
	default:
		return llmdTraits(r), nil
	}
}

func smgTraits(r release, o Options) traits {
	t := traits{
		follows: followsListed, lists: time.Minute, pd: []string{Dual}, retries: true, retriesPair: true, drains: true,
		countsPlain: slices.Contains([]string{"cache_aware", "manual"}, o.Policy),
	}
	if r.since("1.10.0") {
		t.follows, t.coalesces = followsLevel, time.Second
		t.pd = []string{Sequential, Dual}
		t.countsPlain, t.resends, t.countsTotals = true, true, true
	}
	return t
}

func llmdTraits(r release) traits {
	t := traits{
		follows: followsEndpoint, pd: []string{Sequential},
		seriesNew: r.since("0.9.0"), seriesOld: !r.since("0.11.0"), podNames: !r.since("0.10.0"),
		countsFlights: r.since("0.10.0"), dropsFlights: r.since("0.11.0"),
	}
	if r.since("0.9.0") {
		t.activePorts = []string{activePorts, legacyActivePorts}
	}
	return t
}

// What llm-d reads of a Pod besides its readiness.
const (
	activePorts       = "llm-d.ai/active-ports"
	legacyActivePorts = "inference.networking.k8s.io/active-ports"
	roleLabel         = "llm-d.ai/role"
)
