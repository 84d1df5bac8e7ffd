package node

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// UnavailableError says why no cluster can run on this machine, and what would change that.
type UnavailableError struct{ reasons []string }

func (e *UnavailableError) Error() string {
	return "no cluster can run here: " + strings.Join(e.reasons, "; ")
}

// Requirements returns an *UnavailableError unless the machine has all that Up needs.
func Requirements() error {
	if runtime.GOOS != "linux" {
		return &UnavailableError{[]string{"a Kubernetes node needs Linux; set KUBECONFIG to use a cluster you have"}}
	}
	var reasons []string
	if os.Geteuid() != 0 {
		reasons = append(reasons, fmt.Sprintf("it needs root for namespaces, cgroups and mounts (this is user %d); "+
			"or set KUBECONFIG to use a cluster you have", os.Geteuid()))
	}
	var packages []string
	for _, program := range []struct{ name, debian string }{
		{containerd, "containerd"},
		{"containerd-shim-runc-v2", "containerd"},
		{"ctr", "containerd"},
		{"runc", "runc"},
		{"iptables", "iptables"},
		{"conntrack", "conntrack"},
		{"ip", "iproute2"},
		{"nsenter", "util-linux"},
		{"unshare", "util-linux"},
		{"mount", "mount"},
	} {
		if look(program.name) == "" {
			packages = append(packages, program.debian)
		}
	}
	if cniPlugins() == "" {
		packages = append(packages, "containernetworking-plugins")
	}
	if staticBusybox() == "" {
		packages = append(packages, "busybox-static")
	}
	if len(packages) > 0 {
		slices.Sort(packages)
		reasons = append(reasons, "packages are missing: apt-get install -y "+strings.Join(slices.Compact(packages), " "))
	}
	if reasons != nil {
		return &UnavailableError{reasons}
	}
	return nil
}

// cniPlugins is the folder with the network plugins, Debian's or the one upstream documents; "" when neither has them.
func cniPlugins() string {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		has := func(plugin string) bool {
			_, err := os.Stat(filepath.Join(dir, plugin))
			return err == nil
		}
		if has("ptp") && has("host-local") && has("loopback") {
			return dir
		}
	}
	return ""
}

// staticBusybox is a busybox that needs no library, so that it can be an image alone; "" when there is none.
func staticBusybox() string {
	path := look("busybox")
	if path == "" {
		return ""
	}
	program, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer program.Close() //nolint:errcheck // only read
	for _, header := range program.Progs {
		if header.Type == elf.PT_INTERP {
			return ""
		}
	}
	return path
}
