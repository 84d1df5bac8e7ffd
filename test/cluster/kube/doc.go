// Package kube is the cluster as a suite, a demo or a benchmark sees it: a few things done often, in a few words.
//
// Open gives the cluster that KUBECONFIG names, else one of test/cluster's own. What is not here is one call away
// through Cluster.Client and Cluster.Clientset.
package kube
