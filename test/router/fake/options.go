package fake

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Family is the router that is played.
type Family string

// The families.
const (
	VLLMRouter      Family = "vllm-router"
	SMG             Family = "smg"
	SGLModelGateway Family = "sgl-model-gateway"
	LLMD            Family = "llm-d" // the EPP, and the gateway that asks it
)

// Families are all of them.
var Families = []Family{VLLMRouter, SMG, SGLModelGateway, LLMD}

// How prefill and decode are apart.
const (
	// Sequential sends the request to the decode worker when the prefill worker has answered.
	Sequential = "sequential"
	// Dual sends it to both at once.
	Dual = "dual"
)

// Options say which router is played and how. The zero value of a field is the family's
// own default.
type Options struct {
	Family  Family
	Version string // such as "0.10.0"; "main" is newer than any release

	Listen  string // clients and the control API
	Metrics string
	Admin   string // llm-d: the gateway's Envoy admin port; none when empty

	Namespace       string // whose Pods are followed; empty follows all
	Selector        string // label selectors, with commas
	PrefillSelector string
	DecodeSelector  string
	Ports           []int  // of the workers; with several llm-d has a rank for each
	Pool            string // llm-d: name of the InferencePool
	EndpointFilter  string // llm-d: a label selector that every profile filters by
	RoleFilter      bool   // llm-d: every profile filters by role; prefill and decode always do

	Policy      string
	PD          string // Sequential or Dual; empty where prefill and decode are not apart
	Ranks       int    // data-parallel ranks of a worker, each listed as URL@RANK; 0 lists none
	Model       string
	DrainSettle time.Duration // SMG: how long a removed worker is Draining; negative is 0
	PrefillTime time.Duration // a prefill takes at least this long
	Timeout     time.Duration // of one attempt, from the sending to the last byte
	Retries     int           // attempts in all
	HealthEvery time.Duration

	Faults []Fault // that are on from the start
}

// Parse reads a command line. The program's name can be a family's, or epp for llm-d;
// --family says it under any other. Flags of the real routers are known where they change
// something here, and ignored elsewhere.
func Parse(argv []string) (Options, error) {
	var o Options
	name, args := path.Base(argv[0]), argv[1:]
	if name == "epp" {
		name = string(LLMD)
	}
	if slices.Contains(Families, Family(name)) {
		o.Family = Family(name)
	}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "--") {
			continue
		}
		name, value, joined := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		set, known := flags[name]
		if !known {
			continue
		}
		var values []string
		if joined {
			values = []string{value}
		}
		for !joined && len(args) > 0 && !strings.HasPrefix(args[0], "--") {
			values, args = append(values, args[0]), args[1:]
		}
		if len(values) == 0 && !slices.Contains(switches, name) {
			return o, fmt.Errorf("--%s: a value must follow", name)
		}
		if err := set(&o, strings.Join(values, ",")); err != nil {
			return o, fmt.Errorf("--%s: %w", name, err)
		}
	}
	return o.complete()
}

// switches are the flags that need no value.
var switches = []string{"vllm-pd-disaggregation", "pd-disaggregation", "role-filter"}

var flags = map[string]func(*Options, string) error{
	"family":  func(o *Options, v string) error { o.Family = Family(v); return nil },
	"version": text(func(o *Options) *string { return &o.Version }),
	"listen":  text(func(o *Options) *string { return &o.Listen }),
	"metrics": text(func(o *Options) *string { return &o.Metrics }),
	"admin":   text(func(o *Options) *string { return &o.Admin }),
	"policy":  text(func(o *Options) *string { return &o.Policy }),
	"model":   text(func(o *Options) *string { return &o.Model }),
	"pd":      text(func(o *Options) *string { return &o.PD }),

	"namespace":                   text(func(o *Options) *string { return &o.Namespace }),
	"service-discovery-namespace": text(func(o *Options) *string { return &o.Namespace }),
	"pool-namespace":              text(func(o *Options) *string { return &o.Namespace }),
	"pool-name":                   text(func(o *Options) *string { return &o.Pool }),
	"selector":                    text(func(o *Options) *string { return &o.Selector }),
	"endpoint-selector":           text(func(o *Options) *string { return &o.Selector }),
	"prefill-selector":            text(func(o *Options) *string { return &o.PrefillSelector }),
	"decode-selector":             text(func(o *Options) *string { return &o.DecodeSelector }),
	"endpoint-filter":             text(func(o *Options) *string { return &o.EndpointFilter }),
	"role-filter":                 func(o *Options, v string) error { o.RoleFilter = v != "false"; return nil },
	"vllm-pd-disaggregation":      apart, "pd-disaggregation": apart,

	"host":            text(func(o *Options) *string { return &o.Listen }),
	"port":            port(func(o *Options) *string { return &o.Listen }),
	"prometheus-host": text(func(o *Options) *string { return &o.Metrics }),
	"prometheus-port": port(func(o *Options) *string { return &o.Metrics }),
	"metrics-port":    port(func(o *Options) *string { return &o.Metrics }),

	"service-discovery-port": ports, "endpoint-target-ports": ports, "target-ports": ports,

	"dp-size":                       number(func(o *Options) *int { return &o.Ranks }, 0, 64),
	"intra-node-data-parallel-size": number(func(o *Options) *int { return &o.Ranks }, 0, 64),
	"retry-max-retries":             number(func(o *Options) *int { return &o.Retries }, 1, 100),
	"drain-settle":                  settle(duration(func(o *Options) *time.Duration { return &o.DrainSettle }, 0)),
	"drain-settle-secs":             settle(duration(func(o *Options) *time.Duration { return &o.DrainSettle }, time.Second)),
	"prefill-time":                  duration(func(o *Options) *time.Duration { return &o.PrefillTime }, 0),
	"request-timeout":               duration(func(o *Options) *time.Duration { return &o.Timeout }, 0),
	"request-timeout-secs":          duration(func(o *Options) *time.Duration { return &o.Timeout }, time.Second),
	"health-check-interval-secs":    duration(func(o *Options) *time.Duration { return &o.HealthEvery }, time.Second),
	"fault": func(o *Options, v string) error {
		for one := range strings.SplitSeq(v, ",") {
			name, value, _ := strings.Cut(one, "=")
			f := Fault{Name: name, Value: value}
			if err := f.check(); err != nil {
				return err
			}
			o.Faults = append(o.Faults, f)
		}
		return nil
	},
}

// apart leaves it to complete how the family does it.
func apart(o *Options, v string) error {
	if v != "false" && o.PD == "" {
		o.PD = "default"
	}
	return nil
}

// port puts a port behind the host that another flag gave, before it or after.
func port(field func(*Options) *string) func(*Options, string) error {
	return func(o *Options, v string) error {
		if n, err := strconv.Atoi(v); err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("%q is not a number from 0 to 65535", v)
		}
		*field(o) += ":" + v
		return nil
	}
}

func ports(o *Options, v string) error {
	for one := range strings.SplitSeq(v, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%q is not a number from 1 to 65535", one)
		}
		o.Ports = append(o.Ports, n)
	}
	return nil
}

func settle(set func(*Options, string) error) func(*Options, string) error {
	return func(o *Options, v string) error {
		err := set(o, v)
		if o.DrainSettle == 0 {
			o.DrainSettle = -1
		}
		return err
	}
}

func text(field func(*Options) *string) func(*Options, string) error {
	return func(o *Options, v string) error {
		// --port before --host
		if *field(o) != "" && strings.HasPrefix(*field(o), ":") && !strings.Contains(v, ":") {
			v += *field(o)
		}
		*field(o) = v
		return nil
	}
}

func number(field func(*Options) *int, low, high int) func(*Options, string) error {
	return func(o *Options, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", v, low, high)
		}
		*field(o) = n
		return nil
	}
}

// duration reads a number of units, or such as 30s where there is no unit.
func duration(field func(*Options) *time.Duration, unit time.Duration) func(*Options, string) error {
	return func(o *Options, v string) error {
		if unit > 0 {
			v += strings.TrimPrefix(unit.String(), "1")
		}
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 30s", v)
		}
		*field(o) = d
		return nil
	}
}

// complete fills in the family's own defaults and refuses what it cannot do.
func (o Options) complete() (Options, error) {
	if !slices.Contains(Families, o.Family) {
		return o, fmt.Errorf("--family %q: want one of %v", o.Family, Families)
	}
	listen, metrics, port, policy := "0.0.0.0:30000", "0.0.0.0:29000", 80, "cache_aware"
	switch o.Family {
	case VLLMRouter: // it listens on no other address unless it is told
		listen, metrics = "127.0.0.1:30000", "127.0.0.1:29000"
	case LLMD:
		listen, metrics, port, policy = "0.0.0.0:8081", "0.0.0.0:9090", 8000, "round_robin"
	}
	setDefault(&o.Listen, listen)
	setDefault(&o.Metrics, metrics)
	setDefault(&o.Policy, policy)
	setDefault(&o.Version, "main")
	setDefault(&o.Pool, "pool")
	setDefault(&o.Model, "unknown")
	setDefault(&o.DrainSettle, 5*time.Second)
	setDefault(&o.Timeout, 1800*time.Second)
	setDefault(&o.Retries, 5)
	setDefault(&o.HealthEvery, time.Minute)
	if len(o.Ports) == 0 {
		o.Ports = []int{port}
	}
	t, err := traitsOf(o)
	if err != nil {
		return o, err
	}
	if o.PD == "default" {
		o.PD = t.pd[0]
	}
	if o.PD != "" && !slices.Contains(t.pd, o.PD) {
		return o, fmt.Errorf("--pd %q: %s %s does it %s", o.PD, o.Family, o.Version, strings.Join(t.pd, " or "))
	}
	for name, selector := range map[string]string{
		"selector": o.Selector, "prefill-selector": o.PrefillSelector, "decode-selector": o.DecodeSelector, "endpoint-filter": o.EndpointFilter,
	} {
		if _, err := labels.Parse(selector); err != nil {
			return o, fmt.Errorf("--%s: %w", name, err)
		}
	}
	return o, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
