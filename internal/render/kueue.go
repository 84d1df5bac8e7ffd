package render

import (
	"strconv"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Queued reports whether Kueue is to admit the role's Pods.
func Queued(role *v1alpha1.Role) bool { return role.Labels[names.LabelKueueQueue] != "" }

// grouped reports whether Kueue is to admit the Pods of a replica all at once or not
// at all. A single Pod does better without a group: when it is deleted, Kueue lets go
// of it at once, and of the Pods of a group only when their Workload is deleted.
func (m member) grouped() bool { return Queued(m.role) && Size(m.role) > 1 }

// group adds what makes the replica's Pods one group. What the user wrote stays.
func (m member) group(labels, annotations map[string]string) {
	if !m.grouped() {
		return
	}
	add(labels, names.LabelKueueGroup, replicaName(m.md, m.role, m.ordinal))
	add(annotations, names.AnnotationKueueCount, strconv.Itoa(int(Size(m.role))))
	add(annotations, names.AnnotationKueueServing, names.KueueServing)
}

func add(all map[string]string, key, value string) {
	if _, there := all[key]; !there {
		all[key] = value
	}
}
