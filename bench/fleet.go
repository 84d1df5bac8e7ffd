package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/bench/controlplane"
	adapters "github.com/lastcall-dev/lastcall/internal/router"
	"github.com/lastcall-dev/lastcall/internal/withdraw"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// A fleet is a fake router: its processes run in this one, on addresses of this machine
// alone, and its Pods are on the API server as if they ran on its nodes.
type fleet struct {
	router router.Router
	spec   *v1alpha1.Router
	// network is the first three bytes of the processes' addresses.
	network   string
	processes []*routerProcess

	plane     *controlplane.Plane
	namespace string
	script    *fake.Script
	cancel    context.CancelFunc
	running   sync.WaitGroup
	failed    chan error
}

// routerProcess is one of them.
type routerProcess struct {
	ip   string
	pod  *corev1.Pod
	fake *fake.Router

	mu  sync.Mutex
	all []asked
}

// asked is a request that a process got.
type asked struct {
	kind string
	at   time.Time
}

func newFleet(r router.Router, spec *v1alpha1.Router, network string) *fleet {
	f := &fleet{router: r, spec: spec, network: network, script: fake.NewScript(), failed: make(chan error, r.Replicas)}
	for i := range r.Replicas {
		f.processes = append(f.processes, &routerProcess{ip: fmt.Sprintf("%s.%d", network, i+1)})
	}
	return f
}

// start runs the processes and makes their Pods. They all follow one watch of the
// namespace's Pods: on their own they would do each other's work on this machine.
func (f *fleet) start(ctx context.Context, plane *controlplane.Plane, namespace string) error {
	ctx, f.cancel = context.WithCancel(ctx)
	f.plane, f.namespace = plane, namespace
	source := &fake.APIServer{Client: plane.Cluster.Clientset, Namespace: namespace}
	f.running.Go(func() { source.Watch(ctx, f.follow) })
	for i, p := range f.processes {
		if err := f.run(ctx, p); err != nil {
			return errors.Join(err, f.stop())
		}
		if err := f.makePod(ctx, p, fmt.Sprintf("%s-%d", f.router.Name, i)); err != nil {
			return errors.Join(err, f.stop())
		}
	}
	return nil
}

func (f *fleet) follow(e fake.Event) {
	switch e.Kind {
	case fake.Applied:
		f.script.Apply(e.Pod)
	case fake.Deleted:
		f.script.Delete(e.Pod)
	case fake.Listed, fake.Relisted, fake.Tick:
		for _, pod := range e.Pods {
			f.script.Apply(pod)
		}
	}
}

// run starts a process with the command line of its Pod, at its own address.
func (f *fleet) run(ctx context.Context, p *routerProcess) (err error) {
	options, err := fake.Parse(f.router.Command(f.namespace))
	if err != nil {
		return err
	}
	for _, address := range []*string{&options.Listen, &options.Metrics, &options.Admin} {
		if _, port, err := net.SplitHostPort(*address); err == nil {
			*address = net.JoinHostPort(p.ip, port)
		}
	}
	if p.fake, err = fake.New(options, f.script, io.Discard, func() {}); err != nil {
		return err
	}
	p.fake.ReachEngines(answering(metrics(0)))
	p.fake.TellRequests(p.note)
	f.running.Go(func() {
		if err := p.fake.Run(ctx, ctx); err != nil && ctx.Err() == nil {
			f.failed <- fmt.Errorf("the router's process at %s: %w", p.ip, err)
		}
	})
	return nil
}

// answering is all engines: whoever asks one of them gets this. Their addresses belong
// to nobody here, and may be somebody's elsewhere.
type answering string

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(string(a))), ContentLength: int64(len(a)), Request: r,
	}, nil
}

// makePod makes the Pod of a process and, once its node runs it, gives it the address of
// the process: kwok sets addresses of its own, and only once.
func (f *fleet) makePod(ctx context.Context, p *routerProcess, name string) error {
	p.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Labels: f.router.PodLabels()}}
	for _, object := range f.router.Objects(f.namespace) {
		if d, is := object.(*appsv1.Deployment); is {
			p.pod.Spec = d.Spec.Template.Spec
		}
	}
	p.pod.Spec.ServiceAccountName = ""
	c := f.plane.Cluster.Client
	if err := c.Create(ctx, p.pod); err != nil {
		return fmt.Errorf("creating a Pod of the router: %w", err)
	}
	err := f.plane.Wait(ctx, "a Pod of the router", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(p.pod), p.pod); err != nil {
			return err
		}
		if s := p.pod.Status; s.Phase != corev1.PodRunning || len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].ContainerID == "" {
			return fmt.Errorf("%s is %s", name, s.Phase)
		}
		return nil
	})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"status": {"podIP": %q, "podIPs": [{"ip": %q}]}}`, p.ip, p.ip)
	return c.Status().Patch(ctx, p.pod, client.RawPatch(types.MergePatchType, patch))
}

// note keeps what is asked.
func (p *routerProcess) note(r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, asked{kindOf(r.Method, r.URL.Path), time.Now()})
}

// kindOf is what a request is, whichever worker it is about.
func kindOf(method, path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return method + " /" + first
}

// since is what was asked from a moment on.
func (p *routerProcess) since(begin time.Time) (all []asked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.all {
		if !a.at.Before(begin) {
			all = append(all, a)
		}
	}
	return all
}

// ready waits until every process can choose each of so many replicas, and sends each of
// them a request, so that it counts what it counts. It returns what the family says of
// itself: the window of its choices, and whether it is told.
func (f *fleet) ready(ctx context.Context, replicas int) (window time.Duration, told bool, err error) {
	family, known := adapters.Of(f.spec.Name)
	if !known {
		return 0, false, fmt.Errorf("%s cannot be asked", f.spec.Name)
	}
	for _, p := range f.processes {
		if err := f.plane.Wait(ctx, "the router's processes", func(ctx context.Context) (err error) {
			window, told, err = f.look(ctx, family, p, replicas)
			return err
		}); err != nil {
			return 0, false, err
		}
		for range replicas {
			if err := send(ctx, p.fake.URL()); err != nil {
				return 0, false, err
			}
		}
	}
	return window, told, nil
}

// look asks a process about all replicas, as the retirer would.
func (f *fleet) look(ctx context.Context, family adapters.Family, p *routerProcess, replicas int) (window time.Duration, told bool, err error) {
	select {
	case err := <-f.failed:
		return 0, false, err
	default:
	}
	pods, err := f.script.List(ctx)
	if err != nil {
		return 0, false, err
	}
	var all []adapters.Backend
	for _, pod := range pods {
		ip, err := netip.ParseAddr(pod.Status.PodIP)
		if pod.Labels["app"] == f.router.Name || err != nil {
			continue
		}
		all = append(all, adapters.Backend{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Addrs: []netip.Addr{ip}, Port: enginePort, Labels: pod.Labels, Ready: true,
		})
	}
	if len(all) != replicas {
		return 0, false, fmt.Errorf("the router was shown %d replicas, want %d", len(all), replicas)
	}
	process := adapters.Process{
		Process: withdraw.Process{Pod: p.pod.Name, UID: p.pod.UID, Run: "this"}, Image: f.router.Release.Ref(), Args: f.router.Command(f.namespace),
		URL: "http://" + net.JoinHostPort(p.ip, strconv.Itoa(int(f.spec.Port))),
	}
	for i, s := range family.Look(ctx, http.DefaultClient, process, all) {
		if s.Membership != withdraw.Selectable {
			return 0, false, fmt.Errorf("%s: of %s: %s", p.ip, all[i].Name, s.String())
		}
		window = s.Window
	}
	told, _ = family.Told(process)
	return window, told, nil
}

// send sends a request through a process.
func send(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("a request through the router was answered %s", response.Status)
	}
	return nil
}

// stop ends the processes, and takes their Pods away.
func (f *fleet) stop() (err error) {
	f.cancel()
	f.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, p := range f.processes {
		if p.pod != nil && p.pod.UID != "" {
			err = errors.Join(err, client.IgnoreNotFound(f.plane.Cluster.Client.Delete(ctx, p.pod, client.Preconditions{UID: &p.pod.UID})))
		}
	}
	return err
}
