package node

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"

	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
)

const (
	apiServerPort = 6443
	etcdURL       = "http://127.0.0.1:2379" // the loopback of the cluster's own network namespace
	containerd    = "containerd"
)

// component is a program with its arguments.
type component struct {
	name string
	args []string
}

// controlPlane is started first; the rest needs the API server.
func (c *Cluster) controlPlane() []component {
	pki, net := c.path("pki")+"/", c.network()
	return []component{
		{binaries.Etcd, []string{
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=" + etcdURL,
			"--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=http://127.0.0.1:0",
			"--unsafe-no-fsync", // the data lives as long as the cluster
		}},
		{binaries.APIServer, []string{
			"--etcd-servers=" + etcdURL,
			"--secure-port=" + strconv.Itoa(apiServerPort),
			// Pods reach the API server at this address, through the Service "kubernetes": it cannot be loopback.
			"--advertise-address=" + net.node().String(),
			"--service-cluster-ip-range=" + net.services().String(),
			"--allow-privileged=true",
			"--authorization-mode=Node,RBAC",
			"--client-ca-file=" + pki + "ca.crt",
			"--tls-cert-file=" + pki + "kube-apiserver.crt",
			"--tls-private-key-file=" + pki + "kube-apiserver.key",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki + "service-account.key",
			"--service-account-signing-key-file=" + pki + "service-account.key",
			"--kubelet-certificate-authority=" + pki + "ca.crt",
			"--kubelet-client-certificate=" + pki + "kube-apiserver-kubelet.crt",
			"--kubelet-client-key=" + pki + "kube-apiserver-kubelet.key",
			// Nothing resolves the node's name, which exec and logs would use first.
			"--kubelet-preferred-address-types=InternalIP",
			"--profiling=false",
		}},
	}
}

func (c *Cluster) afterAPIServer() []component {
	pki := c.path("pki") + "/"
	return []component{
		{binaries.Kubelet, []string{
			"--config=" + c.path("config", "kubelet.yaml"),
			"--kubeconfig=" + pki + "kubelet.conf",
			"--hostname-override=" + c.name,
			"--node-ip=" + c.network().node().String(),
		}},
		{binaries.ControllerManager, []string{
			"--kubeconfig=" + pki + "kube-controller-manager.conf",
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--use-service-account-credentials",
			"--root-ca-file=" + pki + "ca.crt",
			"--cluster-signing-cert-file=" + pki + "ca.crt",
			"--cluster-signing-key-file=" + pki + "ca.key",
			"--service-account-private-key-file=" + pki + "service-account.key",
			"--profiling=false",
		}},
		{binaries.Scheduler, []string{
			"--kubeconfig=" + pki + "kube-scheduler.conf",
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--profiling=false",
		}},
		{binaries.Proxy, []string{"--config=" + c.path("config", "kube-proxy.yaml")}},
	}
}

//go:embed config
var configFiles embed.FS

// writeConfig renders the embedded configuration files.
func (c *Cluster) writeConfig() error {
	templates, err := template.ParseFS(configFiles, "config/*")
	if err != nil {
		return err
	}
	values := map[string]any{
		"Dir":          c.dir,
		"Name":         c.name,
		"Cgroup":       c.cgroup.name,
		"Node":         c.network().node(),
		"Pods":         c.network().pods(),
		"SandboxImage": BusyboxImage,
		"CNIPlugins":   cniPlugins(),
		"Snapshotter":  snapshotter(c.dir),
	}
	for file, target := range map[string]string{
		"containerd.toml": c.path("config", "containerd.toml"),
		"cni.conflist":    c.path("config", "cni", "lastcall.conflist"),
		"kubelet.yaml":    c.path("config", "kubelet.yaml"),
		"kube-proxy.yaml": c.path("config", "kube-proxy.yaml"),
	} {
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, file, values); err != nil {
			return fmt.Errorf("rendering %s: %w", file, err)
		}
		if err := os.WriteFile(target, text.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// snapshotter names containerd's way to stack image layers: overlay file systems do not stack on one another.
func snapshotter(dir string) string {
	const overlayMagic = 0x794c7630
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err == nil && fs.Type == overlayMagic {
		return "native"
	}
	return "overlayfs"
}

// kernelSettings is what the kubelet sets when it finds other values.
var kernelSettings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// startHolder makes the namespaces. The mounts are those that package documentation speaks of.
func (c *Cluster) startHolder() error {
	var script strings.Builder
	script.WriteString("set -e\n")
	bind := func(source, target string) {
		fmt.Fprintf(&script, "mount --bind %q %q\n", source, target)
	}
	for folder, target := range map[string]string{
		"kubelet": "/var/lib/kubelet", // device plugin sockets have a fixed path there
		"cni":     "/var/lib/cni",
		"log":     "/var/log",        // pods and containers, with links from one to the other
		"run":     "/run/containerd", // shims keep their sockets there whatever the configuration says
	} {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		bind(c.path(folder), target)
	}
	for setting, value := range kernelSettings {
		file := c.path("kernel", strings.ReplaceAll(setting, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		bind(file, filepath.Join("/proc/sys", setting))
	}
	script.WriteString("ip link set lo up\necho 1 >/proc/sys/net/ipv4/ip_forward\necho ready\nexec sleep infinity\n")
	return c.spawn(holderName, look("unshare"), "--mount", "--net", "/bin/sh", "-c", script.String())
}

const holderName = "holder"
