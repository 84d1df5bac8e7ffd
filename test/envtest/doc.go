// Package envtest tests lastcall against a real API server, with etcd and
// without a node. The webhook configurations, the CRD and the permissions are
// what the chart renders for a release in the namespace `default`; only where
// the webhook is reached is another, because there is no Service network.
//
// The API server and etcd come from test/cluster; KUBEBUILDER_ASSETS names
// others.
package envtest
