package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/mutate"
)

// check is the target's Pod on the API server, if the run that is meant is running.
func (r *Reader) check(ctx context.Context, t Target) (*corev1.Pod, error) {
	var pod corev1.Pod
	err := r.live.Get(ctx, types.NamespacedName{Namespace: t.Namespace, Name: t.Name}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, failed(names.HeldReadFailed, "the Pod is gone")
	case apierrors.IsForbidden(err):
		return nil, failed(names.HeldExecForbidden, "the retirer needs the verb get on pods in namespace %s: %v", t.Namespace, err)
	case err != nil:
		return nil, fmt.Errorf("reading the Pod: %w", err)
	}
	return &pod, sameRun(&pod, t)
}

// sameRun fails where the Pod is not in the run that is meant.
func sameRun(pod *corev1.Pod, t Target) error {
	if pod.UID != t.UID {
		return failed(names.HeldContainerRestarted, "another Pod has its name, with the UID %s", pod.UID)
	}
	if pod.DeletionTimestamp != nil {
		return failed(names.HeldReadFailed, "the Pod is being deleted")
	}
	// Another endpoint may be another engine's, idle or not.
	if record, _ := mutate.RecordOf(pod.Annotations); record.MetricsURL != t.Endpoint {
		return failed(names.HeldReadFailed, "the Pod's record has another endpoint now: %q", record.MetricsURL)
	}
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == t.Container })
	if i < 0 {
		return failed(names.HeldReadFailed, "the Pod's status has no container %q", t.Container)
	}
	switch c := pod.Status.ContainerStatuses[i]; {
	case c.State.Running == nil:
		return failed(names.HeldContainerRestarted, "the container %s is not running%s", t.Container, why(c.State))
	case c.ContainerID != t.ContainerID:
		return failed(names.HeldContainerRestarted, "the container %s was restarted: it is now %s", t.Container, c.ContainerID)
	}
	return nil
}

func why(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil && s.Waiting.Reason != "":
		return ": " + s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf(": it ended with exit code %d", s.Terminated.ExitCode)
	}
	return ""
}

// endpoint is where a record says the engine serves its metrics. The record is an
// annotation, which people can write, so its host is taken only if it is the Pod.
func endpoint(record string, pod corev1.PodStatus) (engine.Endpoint, error) {
	scheme, rest, _ := strings.Cut(record, "://")
	if scheme != "http" && scheme != "https" {
		return engine.Endpoint{}, errors.New("does not begin with http:// or https://")
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		return engine.Endpoint{}, errors.New("has no path")
	}
	authority, path := rest[:slash], rest[slash:]
	if strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return engine.Endpoint{}, errors.New("has a path that does not fit into a request line")
	}
	at, err := netip.ParseAddrPort(authority)
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
		return engine.Endpoint{}, errors.New("does not name an IP address and a port")
	}
	host := at.Addr().Unmap()
	own := func(ip corev1.PodIP) bool {
		addr, err := netip.ParseAddr(ip.IP)
		return err == nil && addr.Unmap() == host
	}
	if !host.IsLoopback() && !slices.ContainsFunc(pod.PodIPs, own) {
		return engine.Endpoint{}, errors.New("is neither on loopback nor at an address of the Pod")
	}
	hosts := []string{host.String()}
	if host == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		// As the hook does: an engine that was told a --host may listen on that address
		// alone, and it is one of the Pod's.
		hosts = append(hosts, netip.IPv6Loopback().String())
		for _, ip := range pod.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil {
				hosts = append(hosts, addr.Unmap().String())
			}
		}
	}
	return engine.Endpoint{Scheme: scheme, Hosts: hosts, Port: int32(at.Port()), Path: path}, nil
}
