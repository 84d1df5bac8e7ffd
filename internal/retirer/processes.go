package retirer

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/mutate"
	"github.com/lastcall-dev/lastcall/internal/retire"
	"github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
)

// routerRef is a router as ModelDeployments describe it. Those that describe it alike
// share what is asked of it.
type routerRef struct {
	name                 v1alpha1.RouterName
	namespace, selector  string
	port, metricsPort    int32
	secure, skipVerify   bool
	serverName           string
	secretOf, secretName string
}

// refOf is the router in front of a ModelDeployment; zero where it has none.
func refOf(md *v1alpha1.ModelDeployment) routerRef {
	r := md.Spec.Router
	if r == nil {
		return routerRef{}
	}
	ref := routerRef{
		name: r.Name, namespace: cmp.Or(r.Namespace, md.Namespace), selector: metav1.FormatLabelSelector(&r.PodSelector), port: r.Port,
	}
	if r.MetricsPort != nil {
		ref.metricsPort = *r.MetricsPort
	}
	if r.TLS != nil {
		ref.secure, ref.skipVerify, ref.serverName = true, r.TLS.InsecureSkipVerify, r.TLS.ServerName
	}
	if r.SecretName != "" {
		ref.secretOf, ref.secretName = md.Namespace, r.SecretName
	}
	return ref
}

// fleet is the processes of a router, as the API server had them.
type fleet struct {
	name      string
	at        time.Time
	family    router.Family
	client    *http.Client
	processes []router.Process
	// err is why all this is not known; empty where it is.
	err string
}

// list reads which processes a router has, by the Pods that its selector finds. known
// are the runs that have answered last, by the UIDs of their Pods.
func (r *routers) list(ctx context.Context, ref routerRef, known map[types.UID]string) fleet {
	l := fleet{name: string(ref.name), at: r.clock.Now()}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var err error
	if l.family, l.client, err = r.access(ctx, ref); err != nil {
		l.err = err.Error()
		return l
	}
	selector, err := labels.Parse(ref.selector)
	if err != nil || selector.Empty() {
		l.err = "spec.router.podSelector selects no Pods in particular"
		return l
	}
	err = pages(ctx, r.live, func(page *corev1.PodList) {
		for i := range page.Items {
			if p, is := processOf(&page.Items[i], ref, known); is {
				p.Told, p.Drains = l.family.Told(p)
				l.processes = append(l.processes, p)
			}
		}
	}, client.InNamespace(ref.namespace), client.MatchingLabelsSelector{Selector: selector})
	switch {
	case err != nil:
		l.err = "listing the router's Pods: " + err.Error()
	case len(l.processes) > retire.MaxRouters:
		l.err = fmt.Sprintf("spec.router.podSelector selects %d Pods, and at most %d processes of a router are asked", len(l.processes), retire.MaxRouters)
	}
	return l
}

// processOf is the process in a Pod of a router; false where it has none, because it
// has exited or was never started. Everything else counts: what is not Ready, or
// terminates, still sends on what it holds.
func processOf(pod *corev1.Pod, ref routerRef, known map[types.UID]string) (router.Process, bool) {
	p := router.Process{Process: withdraw.Process{Pod: pod.Name, UID: pod.UID}}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return p, false
	}
	if pod.DeletionTimestamp != nil {
		p.LeavingBy = pod.DeletionTimestamp.Time
	}
	c := routerContainer(pod, ref.port)
	if c == nil { // nothing tells its runs apart, which holds whatever it can choose
		return p, slices.ContainsFunc(pod.Status.ContainerStatuses, started)
	}
	described := mutate.Describe(c)
	p.Image, p.Args = c.Image, described.CommandLine()
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name })
	if at < 0 {
		return p, pod.Status.Phase != corev1.PodPending
	}
	status := &pod.Status.ContainerStatuses[at]
	switch {
	case !started(*status), over(status):
		return p, false
	case status.State.Running != nil:
		p.StartedAt = status.State.Running.StartedAt.Time
	}
	p.Run = status.ContainerID
	// In one container, one process can follow another: the one that answers says when it
	// was started.
	if run := known[pod.UID]; strings.HasPrefix(run, status.ContainerID+"@") {
		p.Run = run
	}
	if pod.Status.PodIP == "" {
		return p, true
	}
	scheme := "http"
	if ref.secure {
		scheme = "https"
	}
	p.URL = scheme + "://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(ref.port)))
	switch ref.metricsPort {
	case 0:
	case ref.port:
		p.Metrics = p.URL
	default:
		p.Metrics = "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(ref.metricsPort)))
	}
	return p, true
}

func started(s corev1.ContainerStatus) bool { return s.ContainerID != "" }

// over reports whether the last run of a container is over: nothing is held in it, and
// the next one has to speak for itself.
func over(s *corev1.ContainerStatus) bool {
	return s.State.Running == nil && (s.State.Terminated != nil || s.LastTerminationState.Terminated != nil)
}

// routerContainer is the container that serves on the router's port; nil where that
// cannot be told. Beside a sidecar the port has to be declared.
func routerContainer(pod *corev1.Pod, port int32) *corev1.Container {
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		declares := slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port })
		if declares || len(pod.Spec.Containers) == 1 {
			return c
		}
	}
	return nil
}
