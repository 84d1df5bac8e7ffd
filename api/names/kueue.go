package names

// KueueGroup is Kueue's API group, and the prefix of its labels and annotations.
const KueueGroup = "kueue.x-k8s.io"

// Kueue's labels on Pods.
const (
	// LabelKueueQueue names the LocalQueue that admits the Pod. People set it on a role.
	LabelKueueQueue = KueueGroup + "/queue-name"
	// LabelKueueManaged with the value KueueManaged is on every Pod that Kueue's webhook
	// has taken over, and on no other.
	LabelKueueManaged = KueueGroup + "/managed"
	// LabelKueueGroup names the group of Pods that is admitted as one, and so its
	// Workload. The operator sets it above size 1.
	LabelKueueGroup = KueueGroup + "/pod-group-name"
	// LabelKueueWorkload names a Workload that somebody made before the Pod.
	LabelKueueWorkload = KueueGroup + "/prebuilt-workload-name"
)

// KueueManaged is the value of LabelKueueManaged.
const KueueManaged = "true"

// LabelKueueOwner, on a Workload, is the UID of the one Pod that it is of.
const LabelKueueOwner = KueueGroup + "/job-uid"

// Kueue's annotations on the Pods of a group. The operator sets them with
// LabelKueueGroup.
const (
	// AnnotationKueueCount is how many Pods the group has.
	AnnotationKueueCount = KueueGroup + "/pod-group-total-count"
	// AnnotationKueueServing with the value KueueServing keeps Kueue from taking a group
	// whose Pods have ended for one that has done its work, whose new Pods it would not
	// admit.
	AnnotationKueueServing = KueueGroup + "/pod-group-serving"
	// KueueServing is the value of AnnotationKueueServing.
	KueueServing = "true"
)

// AnnotationKueueWorkload names the Workload by which Kueue has admitted a Pod.
const AnnotationKueueWorkload = KueueGroup + "/workload"
