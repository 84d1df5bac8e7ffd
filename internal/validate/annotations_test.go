package validate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// Odd grace periods, as in https://github.com/kserve/kserve/pull/5496: those that
// leave no time to drain, those the API server resets, those the kubelet overflows
// on.
func TestGrace(t *testing.T) {
	for seconds, ok := range map[int64]bool{
		-1: false, 0: false, 1: false, 14: false, 15: true, 30: true, 3600: true, 3601: false, 9999999999: false,
	} {
		if ok {
			require.Empty(t, Grace(seconds), seconds)
		} else {
			require.Equal(t, graceMessage, Grace(seconds), seconds)
		}
	}
}

// The message is prose; its numbers are those of the drain window.
func TestTheGraceMessageHasTheNumbersOfTheDrainWindow(t *testing.T) {
	require.Equal(t, 15, drain.MinGraceSeconds)
	require.Equal(t, 3600, drain.MaxGraceSeconds)
	require.Equal(t, 30, drain.DefaultGraceSeconds)
	require.EqualValues(t, 5, drain.Settle.Seconds())
	require.EqualValues(t, 10, (drain.Settle + drain.ExitReserve).Seconds())
}

func TestPodAnnotations(t *testing.T) {
	const (
		digits = `must be a whole number of seconds in digits, 15 to 3600, such as "120"`
		port   = `must be a port number in digits, 1 to 65535: the one on which the engine itself serves its metrics`
		path   = `must be an absolute path of at most 255 plain URL characters, such as "/metrics": it is read from the engine's own container, never from another host`
	)
	tests := map[string]struct{ key, value, want string }{
		"an engine lastcall knows":             {"engine", "sglang", ""},
		"an engine it does not":                {"engine", "tgi", `Unsupported value: "tgi": supported values: "vllm", "sglang"`},
		"an engine by the API's spelling":      {"engine", "vLLM", `Unsupported value: "vLLM": supported values: "vllm", "sglang"`},
		"the shortest grace":                   {"grace-seconds", "15", ""},
		"the longest grace":                    {"grace-seconds", "3600", ""},
		"a grace with a unit":                  {"grace-seconds", "30s", `Invalid value: "30s": ` + digits},
		"a fraction of a second":               {"grace-seconds", "30.5", `Invalid value: "30.5": ` + digits},
		"an empty grace":                       {"grace-seconds", "", `Invalid value: "": ` + digits},
		"a grace with a space":                 {"grace-seconds", " 30", `Invalid value: " 30": ` + digits},
		"a grace below the range":              {"grace-seconds", "14", `Invalid value: "14": ` + graceMessage},
		"a negative grace":                     {"grace-seconds", "-1", `Invalid value: "-1": ` + graceMessage},
		"a grace no integer holds":             {"grace-seconds", "99999999999999999999", `Invalid value: "99999999999999999999": ` + graceMessage},
		"a port":                               {"metrics-port", "9000", ""},
		"port 0":                               {"metrics-port", "0", `Invalid value: "0": ` + port},
		"a port above the range":               {"metrics-port", "65536", `Invalid value: "65536": ` + port},
		"a port by name":                       {"metrics-port", "http", `Invalid value: "http": ` + port},
		"https":                                {"metrics-scheme", "https", ""},
		"a scheme the hook does not speak":     {"metrics-scheme", "grpc", `Unsupported value: "grpc": supported values: "http", "https"`},
		"a path":                               {"metrics-path", "/metrics", ""},
		"the root":                             {"metrics-path", "/", ""},
		"a path with a query":                  {"metrics-path", "/v1/metrics?format=text&all=1", ""},
		"a relative path":                      {"metrics-path", "metrics", `Invalid value: "metrics": ` + path},
		"an empty path":                        {"metrics-path", "", `Invalid value: "": ` + path},
		"another host":                         {"metrics-path", "//evil/metrics", `Invalid value: "//evil/metrics": ` + path},
		"another host by user":                 {"metrics-path", "@evil/metrics", `Invalid value: "@evil/metrics": ` + path},
		"an at sign in the path":               {"metrics-path", "/@evil", `Invalid value: "/@evil": ` + path},
		"a URL":                                {"metrics-path", "http://evil/", `Invalid value: "http://evil/": ` + path},
		"another header":                       {"metrics-path", "/m\r\nHost: evil", `Invalid value: "/m\r\nHost: evil": ` + path},
		"a line feed at the end":               {"metrics-path", "/metrics\n", `Invalid value: "/metrics\n": ` + path},
		"a space":                              {"metrics-path", "/metrics HTTP/1.0", `Invalid value: "/metrics HTTP/1.0": ` + path},
		"a quote":                              {"metrics-path", `/"`, `Invalid value: "/\"": ` + path},
		"take-over":                            {"take-over", "true", ""},
		"take-over by another word":            {"take-over", "yes", `Unsupported value: "yes": supported values: "true", "false"`},
		"the record, whatever it says":         {"status", "{", ""},
		"an annotation lastcall does not know": {"color", "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			key := "lastcall.dev/" + test.key
			errs := PodAnnotations(map[string]string{key: test.value, "team": "a"}, field.NewPath("metadata", "annotations"))
			if test.want == "" {
				require.Empty(t, errs)
				return
			}
			require.Len(t, errs, 1)
			require.Equal(t, "metadata.annotations["+key+"]: "+test.want, errs[0].Error())
		})
	}
}

func TestPodAnnotationsNamesEveryOne(t *testing.T) {
	errs := PodAnnotations(map[string]string{
		"lastcall.dev/take-over": "1", "lastcall.dev/engine": "tgi", "lastcall.dev/grace-seconds": "5",
	}, nil)
	require.Len(t, errs, 3)
	require.Equal(t, "[lastcall.dev/engine]", errs[0].Field)
	require.Equal(t, "[lastcall.dev/grace-seconds]", errs[1].Field)
	require.Equal(t, "[lastcall.dev/take-over]", errs[2].Field)
}
