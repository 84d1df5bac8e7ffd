// Package controlplane runs a Kubernetes control plane whose nodes kwok plays:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, as
// processes of this machine, without root. Nothing of a Pod runs; it is
// scheduled, Ready at once, and gone at once when it is deleted. Commands of
// pods/exec run on this machine, if that is wanted. The API server writes down who
// calls it.
package controlplane
