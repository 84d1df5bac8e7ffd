// Package node runs a Kubernetes cluster of one node on this Linux machine, and takes it away again.
//
// # What a cluster consists of
//
// The first process of a cluster, the holder, does nothing: it keeps a network namespace and a mount namespace alive.
// containerd, etcd, the Kubernetes components and every Pod run inside them, and inside a cgroup of the cluster's own:
//
//   - The network namespace has kube-proxy's rules and every port. A veth pair joins it to the machine; two routes on
//     the host end make Pods and Services reachable from the machine. Nothing forwards further, so there is no
//     firewall rule on the machine and no way out for Pods.
//   - The mount namespace gives the kubelet and containerd their usual paths (/var/lib/kubelet, /var/log/pods,
//     /run/containerd), which are folders of the cluster underneath. Kernel settings that the kubelet insists on are
//     covered by files, so the machine's own stay as they are.
//     Only empty folders to mount on are made, where the machine has none.
//   - The cgroup is the record of what belongs to the cluster: whatever runs in it was started by the cluster, shims
//     and containers too, however they were started and whatever their names are.
//
// So Down is short: kill what is in the cgroup, and namespaces, mounts, links and firewall rules are gone with it. For
// the same reason Up can clean after a crash at any moment.
//
// # Addresses
//
// Each cluster has a /19 of 198.18.0.0/15, the range set aside for tests of network devices, and up to sixteen can
// run side by side.
package node
