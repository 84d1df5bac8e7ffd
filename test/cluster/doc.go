// Command cluster runs a real one-node Kubernetes on a Linux machine: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler, kubelet, kube-proxy and containerd, without Docker, a registry or systemd.
//
//	go run ./test/cluster up                  # ready in seconds once the programs are there
//	export KUBECONFIG=$(go run ./test/cluster kubeconfig)
//	kubectl get nodes
//	go run ./test/cluster load image.tar      # as docker save writes it
//	go run ./test/cluster down                # leaves nothing behind
//
// It needs root (for namespaces, cgroups and mounts) and these packages; up says which are missing:
//
//	apt-get install -y containerd runc containernetworking-plugins iptables conntrack busybox-static
//
// The Kubernetes programs are downloaded, or built once where the official releases cannot be reached (package
// binaries). `go run ./test/cluster binaries etcd kube-apiserver kubectl` does that ahead of time, and prints a folder
// for KUBEBUILDER_ASSETS.
//
// # What works, and what does not
//
// Pods and Services can be reached from the machine by their addresses, and Pods reach the machine and the API server,
// webhooks included. Pods cannot reach beyond the machine. There is no DNS: Pods use a Service's address, or the
// environment variables that the kubelet gives them. There is no registry: images are loaded, and Pods use them with
// imagePullPolicy IfNotPresent and a tag other than latest, or Never. LoadBalancer Services and persistent volumes
// have no controller.
//
// Clusters with different names (--name) do not touch each other, or a kubelet or containerd that the machine runs.
//
// # When something is wrong
//
// When a component does not come up, up ends with the last lines of its log. All of them are in
// /var/lib/lastcall/NAME/log. To look at the inside, enter the namespaces of the first process in state.json:
//
//	nsenter --target PID --mount --net -- iptables-save
//
// Suites, demos and benchmarks do not run this command: they use package kube, and tests package kubetest. Package
// node is how it works.
package main
