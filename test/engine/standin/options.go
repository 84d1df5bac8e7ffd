package standin

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the engine that is played.
type Kind string

const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
)

// Role is SGLang's --disaggregation-mode; empty when one server does both.
type Role string

const (
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

// Options say which engine is played and how. The first block is the engine's
// own flags, the second is the stand-in's.
type Options struct {
	Kind              Kind
	Models            []string // names served; the first one is the label of the gauges
	Host              string   // empty listens on every address
	Port              int      // 0 takes a free one
	KeyFile, CertFile string   // PEM files; KeyFile "auto" makes a self-signed pair
	CAFile            string   // PEM of who signs client certificates
	DemandClientCert  bool
	DisableLogStats   bool          // vLLM: no vllm: family in /metrics
	EnableMetrics     bool          // SGLang: without it /metrics is 404
	EnableLoRA        bool          // vLLM: vllm:lora_requests_info, whose value is a clock
	Multiprocess      bool          // vLLM: no samples before an engine's first step, no python_ families
	ShutdownTimeout   time.Duration // vLLM: how long SIGTERM drains; 0 cuts at once
	Role              Role
	DataParallel      int  // engines behind the server, one series each; 1 when 0
	DecodeLogInterval int  // SGLang: decode steps between two reports; 40 when 0
	SkipWarmup        bool // SGLang: no series before the first request or idle report
	MaxRunning        int  // requests run at once, in each engine; 256 when 0

	ControlPort     int           // 0 takes a free one, -1 opens none
	StartDelay      time.Duration // time before the port opens
	TokensPerSecond float64       // for a request that does not say; 20 when 0
	PrefillTime     time.Duration // time to the first token; 20 ms when 0
	IdleReportNow   bool          // SGLang: report idleness at once (since July 2026), not 30 s after the last report
	MetricsBytes    int           // pad /metrics to at least this many bytes
	IgnoreSIGTERM   bool
	Output          io.Writer // journal, one JSON Event a line; discarded when nil
}

// Parse reads a command line as the engine's own would be read. The name it
// was called by says which engine it is: "vllm" with "serve MODEL",
// "sglang" with "serve", "sglang.launch_server",
// "vllm.entrypoints.openai.api_server"; under any other name --engine says it.
//
// Flags of an engine that change nothing here are ignored, as are their
// values. Each of the stand-in's own flags can also be given in the environment
// as STANDIN_ and its name, so that a test's command line stays the one a user
// would write.
func Parse(argv []string, getenv func(string) string) (Options, error) {
	o := Options{ControlPort: 9901, Port: -1}
	args := argv[1:]
	switch path.Base(argv[0]) {
	case "vllm":
		if len(args) == 0 || args[0] != "serve" {
			return o, fmt.Errorf("vllm %s: only \"vllm serve MODEL\" is played", strings.Join(args, " "))
		}
		o.Kind, args = VLLM, args[1:]
		if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			o.Models, args = []string{args[0]}, args[1:]
		}
	case "vllm.entrypoints.openai.api_server":
		o.Kind = VLLM
	case "sglang.launch_server":
		o.Kind = SGLang
	case "sglang":
		if len(args) == 0 || args[0] != "serve" {
			return o, fmt.Errorf("sglang %s: only \"sglang serve\" is played", strings.Join(args, " "))
		}
		o.Kind, args = SGLang, args[1:]
	}
	for _, name := range ownFlags {
		key := "STANDIN_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if v := getenv(key); v != "" {
			if err := setFlag(&o, name, v); err != nil {
				return o, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	if getenv("PROMETHEUS_MULTIPROC_DIR") != "" {
		o.Multiprocess = true
	}
	if err := parseFlags(&o, args); err != nil {
		return o, err
	}
	return o.forCommandLine()
}

// forCommandLine fills in what the engine of a command line would default to.
func (o Options) forCommandLine() (Options, error) {
	switch o.Kind {
	case VLLM:
		if o.Port < 0 {
			o.Port = 8000
		}
	case SGLang:
		if o.Port < 0 {
			o.Port = 30000
		}
		if o.Host == "" {
			o.Host = "127.0.0.1"
		}
	default:
		return o, fmt.Errorf("--engine %q: want vllm or sglang", o.Kind)
	}
	return o, nil
}

func (o Options) withDefaults() Options {
	if len(o.Models) == 0 {
		o.Models = []string{"Qwen/Qwen2.5-7B-Instruct"}
	}
	o.DataParallel = max(o.DataParallel, 1)
	if o.DecodeLogInterval == 0 {
		o.DecodeLogInterval = 40
	}
	if o.MaxRunning == 0 {
		o.MaxRunning = 256
	}
	if o.TokensPerSecond == 0 {
		o.TokensPerSecond = 20
	}
	if o.PrefillTime == 0 {
		o.PrefillTime = 20 * time.Millisecond
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	return o
}

// ownFlags are the flags no engine has.
var ownFlags = []string{
	"control-port", "start-delay", "tokens-per-second", "prefill-time", "sglang-idle-report", "metrics-bytes", "ignore-sigterm",
}

// switches are the flags without a value.
var switches = []string{"disable-log-stats", "enable-metrics", "enable-lora", "skip-server-warmup", "ignore-sigterm"}

func parseFlags(o *Options, args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "--") {
			continue
		}
		name, value, joined := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		name = strings.ReplaceAll(name, "_", "-")
		if _, known := setters[name]; !known {
			continue
		}
		if !joined && slices.Contains(switches, name) {
			value, joined = "true", true
		}
		if !joined {
			if len(args) == 0 {
				return fmt.Errorf("--%s: a value must follow", name)
			}
			value, args = args[0], args[1:]
		}
		if err := setFlag(o, name, value); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
		for name == "served-model-name" && len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			o.Models, args = append(o.Models, args[0]), args[1:]
		}
	}
	return nil
}

func setFlag(o *Options, name, value string) error { return setters[name](o, value) }

var setters = map[string]func(*Options, string) error{
	"engine": func(o *Options, v string) error { o.Kind = Kind(strings.ToLower(v)); return nil },
	"model":  setModel, "model-path": setModel,
	"served-model-name": func(o *Options, v string) error { o.Models = []string{v}; return nil },
	"host":              text(func(o *Options) *string { return &o.Host }),
	"port":              number(func(o *Options) *int { return &o.Port }, 0, 65535),
	"ssl-keyfile":       text(func(o *Options) *string { return &o.KeyFile }),
	"ssl-certfile":      text(func(o *Options) *string { return &o.CertFile }),
	"ssl-ca-certs":      text(func(o *Options) *string { return &o.CAFile }),
	"ssl-cert-reqs":     func(o *Options, v string) error { o.DemandClientCert = v == "2"; return nil },
	"disable-log-stats": truth(func(o *Options) *bool { return &o.DisableLogStats }),
	"enable-metrics":    truth(func(o *Options) *bool { return &o.EnableMetrics }),
	"enable-lora":       truth(func(o *Options) *bool { return &o.EnableLoRA }),
	"api-server-count": func(o *Options, v string) error {
		o.Multiprocess = o.Multiprocess || (v != "" && v != "1")
		return nil
	},
	"shutdown-timeout": func(o *Options, v string) error {
		seconds, err := strconv.ParseFloat(v, 64)
		if err != nil || seconds < 0 {
			return fmt.Errorf("%q is not a number of seconds", v)
		}
		o.ShutdownTimeout = time.Duration(seconds * float64(time.Second))
		return nil
	},
	"disaggregation-mode": func(o *Options, v string) error {
		roles := map[string]Role{"null": "", "prefill": Prefill, "decode": Decode}
		role, known := roles[v]
		if !known {
			return fmt.Errorf("%q: want one of %v", v, slices.Sorted(maps.Keys(roles)))
		}
		o.Role = role
		return nil
	},
	"data-parallel-size": number(func(o *Options) *int { return &o.DataParallel }, 1, 64),
	"dp-size":            number(func(o *Options) *int { return &o.DataParallel }, 1, 64),
	"decode-log-interval": number(
		func(o *Options) *int { return &o.DecodeLogInterval }, 1, 1_000_000),
	"skip-server-warmup":   truth(func(o *Options) *bool { return &o.SkipWarmup }),
	"max-num-seqs":         number(func(o *Options) *int { return &o.MaxRunning }, 1, 100_000),
	"max-running-requests": number(func(o *Options) *int { return &o.MaxRunning }, 1, 100_000),

	"control-port": number(func(o *Options) *int { return &o.ControlPort }, -1, 65535),
	"start-delay":  duration(func(o *Options) *time.Duration { return &o.StartDelay }),
	"prefill-time": duration(func(o *Options) *time.Duration { return &o.PrefillTime }),
	"tokens-per-second": func(o *Options, v string) error {
		rate, err := strconv.ParseFloat(v, 64)
		if err != nil || rate <= 0 {
			return fmt.Errorf("%q is not a rate above 0", v)
		}
		o.TokensPerSecond = rate
		return nil
	},
	"sglang-idle-report": func(o *Options, v string) error {
		if v != "now" && v != "30s" {
			return fmt.Errorf("%q: want now or 30s", v)
		}
		o.IdleReportNow = v == "now"
		return nil
	},
	"metrics-bytes":  number(func(o *Options) *int { return &o.MetricsBytes }, 0, 64<<20),
	"ignore-sigterm": truth(func(o *Options) *bool { return &o.IgnoreSIGTERM }),
}

// setModel does not override a name given by --served-model-name.
func setModel(o *Options, v string) error {
	if len(o.Models) == 0 {
		o.Models = []string{v}
	}
	return nil
}

func text(field func(*Options) *string) func(*Options, string) error {
	return func(o *Options, v string) error { *field(o) = v; return nil }
}

func truth(field func(*Options) *bool) func(*Options, string) error {
	return func(o *Options, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*field(o) = b
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

func duration(field func(*Options) *time.Duration) func(*Options, string) error {
	return func(o *Options, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 30s", v)
		}
		*field(o) = d
		return nil
	}
}
