package mutate

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
)

// Operation is one operation of a JSON Patch (RFC 6902).
type Operation struct {
	// Op is "add", "replace" or "remove".
	Op string `json:"op"`
	// Path is a JSON Pointer, relative to the Pod or the template.
	Path string `json:"path"`
	// Value is nil for a removal.
	Value any `json:"value,omitempty"`
}

// statusPath is the status annotation as a JSON Pointer.
var statusPath = "/metadata/annotations/" + strings.ReplaceAll(names.AnnotationStatus, "/", "~1")

// setStatus returns what leaves the record on the object, with the parents that
// are missing. "add" replaces a parent that is null or empty.
func setStatus(meta *metav1.ObjectMeta, record string) []Operation {
	annotations := map[string]string{names.AnnotationStatus: record}
	switch {
	case meta.Annotations[names.AnnotationStatus] == record:
		return nil
	case reflect.ValueOf(meta).Elem().IsZero(): // a template may have no metadata at all
		return []Operation{{"add", "/metadata", map[string]any{"annotations": annotations}}}
	case len(meta.Annotations) == 0:
		return []Operation{{"add", "/metadata/annotations", annotations}}
	}
	return []Operation{{"add", statusPath, record}}
}

func setGrace(spec *corev1.PodSpec, seconds int64) []Operation {
	if current := spec.TerminationGracePeriodSeconds; current != nil && *current == seconds {
		return nil
	}
	return []Operation{{"add", "/spec/terminationGracePeriodSeconds", seconds}}
}

// setHook returns what gives the container at this path the hook, and leaves
// what else its lifecycle has.
func setHook(path string, c *corev1.Container, command []string) []Operation {
	preStop := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
	switch {
	case c.Lifecycle == nil:
		return []Operation{{"add", path + "/lifecycle", corev1.Lifecycle{PreStop: preStop}}}
	case c.Lifecycle.PreStop == nil:
		return []Operation{{"add", path + "/lifecycle/preStop", preStop}}
	case slices.Equal(c.Lifecycle.PreStop.Exec.Command, command):
		return nil
	}
	return []Operation{{"replace", path + "/lifecycle/preStop/exec/command", command}}
}

// removeHooks returns what takes hooks of ours off all containers but keep: a
// copied Pod brings hooks that were rendered for another one.
func removeHooks(spec *corev1.PodSpec, keep *corev1.Container) []Operation {
	var ops []Operation
	remove := func(list string, containers []corev1.Container) {
		for i := range containers {
			if c := &containers[i]; c != keep && hasOurHook(c) {
				ops = append(ops, Operation{Op: "remove", Path: containerPath(list, i) + "/lifecycle/preStop"})
			}
		}
	}
	remove("initContainers", spec.InitContainers)
	remove("containers", spec.Containers)
	return ops
}

func containerPath(list string, index int) string {
	return "/spec/" + list + "/" + strconv.Itoa(index)
}
