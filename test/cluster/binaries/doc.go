// Package binaries provides the programs a Kubernetes node is made of: etcd, kube-apiserver, kubelet and the rest.
//
// Their versions are those of hack/kubernetes/go.mod and nothing else. A program is looked for in this order:
//
//  1. the cache: the folder named by LASTCALL_CACHE, else lastcall in the user's cache folder (os.UserCacheDir);
//  2. the official release (dl.k8s.io, and etcd's releases on GitHub), kept only if its published SHA-256 matches;
//  3. a build from the Go module, which is the same source: 15 minutes for all of them on two cores, once.
//
// Every program lies in one folder per version, so that the folder serves as KUBEBUILDER_ASSETS too.
package binaries
