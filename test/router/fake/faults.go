package fake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is something that a router gets wrong while it is on.
type Fault struct {
	Name string `json:"name"` // one of Known
	// Pod is the only one that the fault is about; empty is all. Some are about the process.
	Pod string `json:"pod,omitempty"`
	// Value is a duration or a number, where Known says so.
	Value string `json:"value,omitempty"`
	// Off ends the fault; with the name All, every fault.
	Off bool `json:"off,omitempty"`
}

// The faults.
const (
	LoseDeletes        = "lose-deletes"
	IgnoreLabels       = "ignore-labels"
	IgnoreReadiness    = "ignore-readiness"
	ResetLoad          = "reset-load"
	LoadAlwaysZero     = "load-always-zero"
	CollapseDrain      = "collapse-drain"
	GaugeZeroed        = "gauge-zeroed-at-removal"
	GaugeDeleted       = "gauge-deleted-at-removal"
	NegativeGauge      = "negative-gauge"
	AddAgain           = "add-again"
	SucceedForUnknown  = "succeed-for-unknown"
	AsyncRemoval       = "async-removal"
	TruncateList       = "truncate-list"
	Unauthorized       = "unauthorized"
	Forbidden          = "forbidden"
	Disagree           = "disagree"
	Restart            = "restart"
	StaleRetry         = "stale-retry"
	PrefillHold        = "prefill-hold"
	StalePick          = "stale-pick"
	FailOpen           = "fail-open"
	ReuseAddress       = "reuse-address"
	EngineGaugeLag     = "engine-gauge-lag"
	DataParallelRanks  = "data-parallel-ranks"
	DuplicateRequestID = "duplicate-request-id"

	// All names every fault when it is set Off.
	All = "all"
)

// once is what a fault takes that happens when it is set, and then is over.
const once = "once"

// Known are the faults, each with what its Value is and what it does.
var Known = map[string]struct{ Value, Does string }{
	LoseDeletes:        {"", "delete events do not arrive, nor do labels that stop to match where the API server applies the selector"},
	IgnoreLabels:       {"", "Pods keep the labels they were first seen with"},
	IgnoreReadiness:    {"", "a Pod that was Ready once stays Ready"},
	ResetLoad:          {once, "every count of open requests is set to 0, whatever is open"},
	LoadAlwaysZero:     {"", "open requests are shown as 0, as SMG up to 1.9.0 does under most policies"},
	CollapseDrain:      {"", "a removed worker is not Draining at all, as after a second DELETE"},
	GaugeZeroed:        {"", "a worker's gauges are 0 from its removal on"},
	GaugeDeleted:       {"", "a worker's gauges go with it"},
	NegativeGauge:      {"", "gauges of open requests are -1"},
	AddAgain:           {"duration", "a worker removed through the API is added again this much later while its Pod matches; 1s when empty"},
	SucceedForUnknown:  {"", "removing a worker that is not there, and asking for it, is answered 200"},
	AsyncRemoval:       {"duration", "a removal is answered 202 and done this much later; 5s when empty"},
	TruncateList:       {"number", "lists and per-endpoint series end after so many workers; 1 when empty"},
	Unauthorized:       {"", "the control API, and llm-d's metrics, answer 401"},
	Forbidden:          {"", "the control API, and llm-d's metrics, answer 403"},
	Disagree:           {"", "this process learns nothing more of Pods, and removes nothing through the API though it says so"},
	Restart:            {once, "the process ends and starts again: requests are cut, counters begin at 0, Pods are listed anew"},
	StaleRetry:         {"", "another attempt takes the next worker of the list of the first"},
	PrefillHold:        {"duration", "a request waits this long for its prefill, or until the fault is off; for ever when empty"},
	StalePick:          {"duration", "so much time passes between listing workers and choosing one of them; 400ms when empty"},
	FailOpen:           {"", "llm-d: the gateway takes any Ready Pod of the pool's selector without asking"},
	ReuseAddress:       {"", "another Pod, with another name and UID, appears at the address of the fault's Pod"},
	EngineGaugeLag:     {"", "SMG: the engines' gauges it relays stay as they were"},
	DataParallelRanks:  {"number", "workers are registered again as so many URL@RANK; 2 when empty"},
	DuplicateRequestID: {"", "every request has the same id"},
}

// ofProcess are those that are not about a Pod.
var ofProcess = []string{
	ResetLoad, TruncateList, Unauthorized, Forbidden, Disagree, Restart, StaleRetry, StalePick, FailOpen, DataParallelRanks, DuplicateRequestID,
}

func (f Fault) check() error {
	known, ok := Known[f.Name]
	if f.Name == All && f.Off {
		return nil
	}
	if !ok {
		return fmt.Errorf("fault %q is not known; want one of %s", f.Name, strings.Join(slices.Sorted(maps.Keys(Known)), ", "))
	}
	var err error
	switch {
	case f.Name == ReuseAddress && f.Pod == "" && !f.Off:
		return fmt.Errorf("fault %s: pod must say whose address it is", f.Name)
	case f.Pod != "" && slices.Contains(ofProcess, f.Name):
		return fmt.Errorf("fault %s: pod %q: it is about the whole process", f.Name, f.Pod)
	case f.Value == "":
	case known.Value == "duration":
		_, err = time.ParseDuration(f.Value)
	case known.Value == "number":
		_, err = strconv.Atoi(f.Value)
	default:
		return fmt.Errorf("fault %s: value %q: it takes none", f.Name, f.Value)
	}
	if err != nil {
		return fmt.Errorf("fault %s: value %q is not a %s", f.Name, f.Value, known.Value)
	}
	return nil
}

// faults are those that are on.
type faults struct{ set []Fault }

// put turns one on or off. Of the same name and Pod there is one at most.
func (f *faults) put(one Fault) {
	f.set = slices.DeleteFunc(f.set, func(was Fault) bool {
		return one.Off && one.Name == All || was.Name == one.Name && (was.Pod == one.Pod || one.Off && one.Pod == "")
	})
	if !one.Off && Known[one.Name].Value != once {
		f.set = append(f.set, one)
	}
}

// of returns the fault that is on for a Pod.
func (f *faults) of(name, pod string) (Fault, bool) {
	for _, one := range f.set {
		if one.Name == name && (one.Pod == "" || one.Pod == pod) {
			return one, true
		}
	}
	return Fault{}, false
}

func (f *faults) on(name, pod string) bool {
	_, on := f.of(name, pod)
	return on
}

// duration is a fault's, or what an empty one means.
func (f Fault) duration(empty time.Duration) time.Duration {
	if d, err := time.ParseDuration(f.Value); err == nil {
		return d
	}
	return empty
}

func (f Fault) number(empty int) int {
	if n, err := strconv.Atoi(f.Value); err == nil {
		return n
	}
	return empty
}
