package validate

import (
	"errors"
	"regexp"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/engine"
)

// Grace says what is wrong with a termination grace period; empty where it is in
// the range.
func Grace(seconds int64) string {
	if seconds < drain.MinGraceSeconds || seconds > drain.MaxGraceSeconds {
		return graceMessage
	}
	return ""
}

// metricsPath is a path that means the same to every HTTP client: one slash
// first, so that it can never be read as another host, and nothing that needs
// quoting in a request line.
var metricsPath = regexp.MustCompile(`^/([A-Za-z0-9._~%-][A-Za-z0-9._~%:;,=&+?/-]{0,253})?$`)

// annotationRules say what is wrong with the value of an annotation.
var annotationRules = []struct {
	name  string
	check func(path *field.Path, value string) *field.Error
}{
	{names.AnnotationEngine, func(path *field.Path, value string) *field.Error {
		return oneOf(path, value, engineNames())
	}},
	{names.AnnotationGraceSeconds, func(path *field.Path, value string) *field.Error {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return field.Invalid(path, value, `must be a whole number of seconds in digits, 15 to 3600, such as "120"`)
		}
		if message := Grace(seconds); message != "" {
			return field.Invalid(path, value, message)
		}
		return nil
	}},
	{names.AnnotationMetricsPort, func(path *field.Path, value string) *field.Error {
		if n, err := strconv.ParseUint(value, 10, 16); err != nil || n == 0 {
			return field.Invalid(path, value, "must be a port number in digits, 1 to 65535: the one on which the engine itself serves its metrics")
		}
		return nil
	}},
	{names.AnnotationMetricsScheme, func(path *field.Path, value string) *field.Error {
		return oneOf(path, value, []string{"http", "https"})
	}},
	{names.AnnotationMetricsPath, func(path *field.Path, value string) *field.Error {
		if !metricsPath.MatchString(value) {
			return field.Invalid(path, value, `must be an absolute path of at most 255 plain URL characters, such as "/metrics": it is read from the engine's own container, never from another host`)
		}
		return nil
	}},
	{names.AnnotationTakeOver, func(path *field.Path, value string) *field.Error {
		return oneOf(path, value, []string{"true", "false"})
	}},
}

// PodAnnotations finds malformed lastcall.dev annotations of a Pod or a Pod
// template. Whether the container that lastcall.dev/container names exists is
// for those to say who have the containers. The path is that of the annotations.
func PodAnnotations(annotations map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, rule := range annotationRules {
		if value, ok := annotations[rule.name]; ok {
			if err := rule.check(path.Key(rule.name), value); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

func engineNames() []string {
	var all []string
	for _, e := range engine.All() {
		all = append(all, string(e.Name))
	}
	return all
}
