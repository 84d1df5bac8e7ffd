// Package manifest finds the Pods and Pod templates in a stream of YAML or JSON
// documents and edits them in their text: what is not edited stays byte for byte
// as it was written, comments and blank lines included.
//
// A Pod template is the value of a key that is "template" or ends in "Template"
// and that has spec.containers, wherever it is in an object but in its status.
// So the workload kinds of Kubernetes are found, and those of others (a
// LeaderWorkerSet, a Rollout, a RayCluster) without being listed. Knative's are
// left alone: Knative refuses a lifecycle in its templates.
//
// An edit is a JSON Patch. It is made on the text, at the place that the YAML
// parser names, and then checked: the edited text must parse to the patched
// value. Where it does not (an anchor inside the Pod that is used elsewhere, say),
// the document is written anew from the value, without its comments.
//
// The package is pure: bytes in, bytes out.
package manifest
