package router

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// picker is an endpoint picker, as its metrics show it.
type picker struct {
	args args
	// exact is whether it is the one release whose count of open requests outlives an
	// endpoint's removal.
	exact bool
	// fallbacks is whether it names more than one endpoint for a request.
	fallbacks withdraw.Tri
	// pools are its endpoints, in each generation of names that it has.
	pools           []pool
	inflight, picks endpointTallies
	// picking is whether it counts what it picks, by endpoint.
	picking bool
	whole   withdraw.Count
}

// pool are the endpoints of one family of series.
type pool struct {
	// names are those of the pools they are of.
	names map[string]bool
	// endpoints is how many there are of each Pod.
	endpoints map[string]int
	// nameless is whether a series does not say which endpoint it is of.
	nameless bool
}

func newPicker(p Process, pg page) *picker {
	v, ok := imageVersion(p.Image)
	e := &picker{
		args:     newArgs(p.Args),
		exact:    ok && v == version{0, 10, 0} && strings.HasPrefix(imageName(p.Image), "llm-d-router"),
		inflight: tallies(pg[llmdInFlight]),
		picks:    tallies(pg.first(llmdPicks...)),
		picking:  slices.ContainsFunc(pg.first(llmdPicks...), func(s sample) bool { return pickedEndpoint(&s) != "" }),
		whole:    wholeOf(pg[llmdRunning]),
	}
	e.fallbacks = fallbacks(e.args)
	for family, label := range llmdEndpoints {
		if len(pg[family]) > 0 {
			e.pools = append(e.pools, poolOf(pg[family], label))
		}
	}
	return e
}

func poolOf(all []sample, label string) pool {
	p := pool{names: make(map[string]bool), endpoints: make(map[string]int)}
	for i := range all {
		endpoint := all[i].label(label)
		p.nameless = p.nameless || endpoint == ""
		p.names[all[i].label("name")] = true
		for _, pod := range podsOf(endpoint) {
			p.endpoints[pod]++
		}
	}
	return p
}

var rank = regexp.MustCompile(`-rank-[0-9]+$`)

// podsOf are the Pods that an endpoint may be of: a-rank-0 is that of a, and of a Pod
// with this name where endpoints have the names of their Pods.
func podsOf(endpoint string) []string {
	if pod := rank.ReplaceAllString(endpoint, ""); pod != endpoint {
		return []string{endpoint, pod}
	}
	return []string{endpoint}
}

// membership is whether the replica is among the endpoints. None at all says that there
// is nothing to choose from, or that nothing was learned yet.
func (e *picker) membership(b *Backend) (withdraw.Membership, string) {
	for _, p := range e.pools {
		if p.endpoints[b.Name] > 0 {
			return withdraw.Selectable, ""
		}
	}
	if len(e.pools) == 0 { // nothing says how many there are, so they may as well be left out
		return withdraw.MembershipUnknown, "it lists no endpoint at all, so it may not know its pool yet"
	}
	for _, p := range e.pools {
		switch {
		case len(p.names) != 1:
			return withdraw.MembershipUnknown, "it lists endpoints of several pools"
		case p.nameless:
			return withdraw.MembershipUnknown, "it lists an endpoint without a name"
		}
	}
	return withdraw.Absent, ""
}

// endpointTallies are tallies by the Pod of an endpoint and its namespace, which is
// empty where the series has none.
type endpointTallies map[[2]string]tally

func tallies(all []sample) endpointTallies {
	by := make(endpointTallies)
	for i := range all {
		for _, pod := range podsOf(pickedEndpoint(&all[i])) {
			key := [2]string{pod, all[i].label("namespace")}
			t := by[key]
			t.add(all[i].value)
			by[key] = t
		}
	}
	return by
}

// pickedEndpoint is the endpoint that a series is of; pickers before 0.10 name its Pod.
func pickedEndpoint(s *sample) string { return cmp.Or(s.label("endpoint_name"), s.label("pod_name")) }

func (by endpointTallies) of(b *Backend) tally {
	t := by[[2]string{b.Name, ""}]
	if b.Namespace != "" {
		t.join(by[[2]string{b.Name, b.Namespace}])
	}
	return t
}

// wholeOf are all requests that are open. The gauge is known to leak and to miss some,
// so what it proves is not known.
func wholeOf(all []sample) withdraw.Count {
	var t tally
	for i := range all {
		t.add(all[i].value)
	}
	return withdraw.Count{Known: t.series > 0 && !t.broken, Value: int64(t.sum)}
}

var mostEndpoints = regexp.MustCompile(`maxNumOfEndpoints["']?\s*:\s*["']?([0-9]+)`)

// fallbacks is whether the picker is configured to name more than one endpoint for a
// request. A configuration in a file is not seen.
func fallbacks(a args) withdraw.Tri {
	text := strings.Join(a.words, "\n")
	for _, match := range mostEndpoints.FindAllStringSubmatch(text, -1) {
		if match[1] != "0" && match[1] != "1" {
			return withdraw.Yes
		}
	}
	if !a.known || !a.has("config-text") {
		return withdraw.Unknown
	}
	return withdraw.No
}
