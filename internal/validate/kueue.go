package validate

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/render"
)

// kueue finds labels and annotations of Kueue's by which it would not admit the
// replicas one by one. Those that a role leaves out are lastcall's to write.
func (r role) kueue(f *findings) {
	labels, annotations := r.path.Child("labels"), r.path.Child("annotations")
	if render.Replicas(r.Role) > 1 {
		for _, key := range []string{names.LabelKueueGroup, names.LabelKueueWorkload} {
			if value, given := r.Labels[key]; given {
				f.add(field.Invalid(labels.Key(key), value, "must not be set with more than 1 replica: Kueue would admit all of them as one, and take them away as one; leave it out, and each replica is admitted by itself"))
			}
		}
	}
	size := strconv.Itoa(int(render.Size(r.Role)))
	_, grouped := r.Labels[names.LabelKueueGroup]
	switch count, given := r.Annotations[names.AnnotationKueueCount]; {
	case !given:
	case count != size:
		f.add(field.Invalid(annotations.Key(names.AnnotationKueueCount), count, fmt.Sprintf("must be the role's size, %s: Kueue waits for that many Pods of a replica; leave it out, and lastcall writes it", size)))
	case !grouped && size == "1":
		f.add(field.Invalid(annotations.Key(names.AnnotationKueueCount), count, "must not be set at size 1: the replica is no group of Pods, and Kueue would refuse its Pod; leave it out"))
	}
	if serving, given := r.Annotations[names.AnnotationKueueServing]; given && serving != names.KueueServing && render.Queued(r.Role) && render.Size(r.Role) > 1 {
		f.warn(annotations.Key(names.AnnotationKueueServing), fmt.Sprintf("%q lets Kueue take a replica whose Pods have ended for one that has done its work, and not admit the Pods that replace them; leave it out, and lastcall writes %q", serving, names.KueueServing))
	}
}
