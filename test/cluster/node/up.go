package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
)

// upTimeout bounds Up once the binaries are there. It takes some seconds on a machine that is not busy.
const upTimeout = 3 * time.Minute

// clusterLock is held while any cluster of the machine is brought up or taken down.
const clusterLock = ".lock"

// Up brings the named cluster up, and says on progress how far it is. One that is up already is returned as it is; what
// a crash left is cleaned away first. It returns an *UnavailableError where no cluster can run. When it fails, nothing
// is left running and the logs stay for a look.
func Up(ctx context.Context, name string, progress io.Writer) (*Cluster, error) {
	return up(ctx, name, true, progress)
}

func up(ctx context.Context, name string, keep bool, progress io.Writer) (*Cluster, error) {
	if err := Requirements(); err != nil {
		return nil, err
	}
	programs, err := binaries.Provide(ctx, progress, binaries.All()...)
	if err != nil {
		return nil, err
	}
	lock, err := flock(clusterLock, syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer lock.Close() //nolint:errcheck // closing releases the lock, whatever it returns
	c, err := Find(ctx, name)
	if err == nil {
		c.state.Kept = c.state.Kept || keep
		return c, c.save()
	}
	if notRunning := (*NotRunningError)(nil); !errors.As(err, &notRunning) {
		return nil, err
	}
	if c, err = open(name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	started := time.Now()
	if err := c.bringUp(ctx, programs, progress); err != nil {
		// The caller's context may be what ended.
		return nil, errors.Join(fmt.Errorf("bringing cluster %s up: %w", name, err), c.stop(context.WithoutCancel(ctx)))
	}
	c.state.Kept = keep
	fmt.Fprintf(progress, "cluster %s is ready after %.1f s\n", name, time.Since(started).Seconds())
	return c, c.save()
}

func (c *Cluster) bringUp(ctx context.Context, programs string, progress io.Writer) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.startHolder(); err != nil {
		return err
	}
	if err := c.wait(ctx, holderName, func() error { return c.holderReady() }); err != nil {
		return err
	}
	if err := c.network().connect(ctx, c.holder()); err != nil {
		return err
	}
	if err := c.start(containerd, look(containerd), "--config="+c.path("config", "containerd.toml")); err != nil {
		return err
	}
	if err := c.startAll(programs, c.controlPlane()); err != nil {
		return err
	}
	if err := c.wait(ctx, containerd, func() error { return c.loadBusybox(ctx) }); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := c.wait(ctx, binaries.APIServer, func() error { return apiServerReady(ctx, client) }); err != nil {
		return err
	}
	fmt.Fprintf(progress, "the API server is ready\n")
	if err := c.startAll(programs, c.afterAPIServer()); err != nil {
		return err
	}
	if err := c.wait(ctx, binaries.Kubelet, func() error { return nodeReady(ctx, client, c.name) }); err != nil {
		return err
	}
	return c.wait(ctx, binaries.ControllerManager, func() error { return defaultAccountReady(ctx, client) })
}

// prepare makes an empty state folder, with everything in it that components read.
func (c *Cluster) prepare(ctx context.Context) error {
	if err := c.stop(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return err
	}
	c.state = state{}
	for _, folder := range []string{"cni", "config/cni", "etcd", "kernel", "kubelet", "log", "pki", "run"} {
		if err := os.MkdirAll(c.path(folder), 0o700); err != nil {
			return err
		}
	}
	var err error
	if c.state.Slot, err = c.freeSlot(); err != nil {
		return err
	}
	if err := c.save(); err != nil {
		return err
	}
	if err := c.writePKI(); err != nil {
		return err
	}
	if err := c.writeConfig(); err != nil {
		return err
	}
	return c.cgroup.create()
}

func (c *Cluster) startAll(programs string, components []component) error {
	for _, component := range components {
		argv := append([]string{programs + "/" + component.name}, component.args...)
		if err := c.start(component.name, argv...); err != nil {
			return err
		}
	}
	return nil
}

// wait calls ready until it returns nil. It gives up when ctx ends or any component exits, with the last words of the
// one to blame.
func (c *Cluster) wait(ctx context.Context, component string, ready func() error) error {
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case gone := <-c.exits:
			return fmt.Errorf("%s exited (%s); %s", gone.name, gone.how, c.logEnd(gone.name))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err() // somebody changed their mind: nothing is wrong with the component
			}
			return fmt.Errorf("%s is not ready: %w: %w; %s", component, ctx.Err(), err, c.logEnd(component))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Cluster) holderReady() error {
	content, err := os.ReadFile(c.logPath(holderName))
	if err == nil && strings.TrimSpace(string(content)) != "ready" {
		err = errors.New("its namespaces are not set up")
	}
	return err
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.Timeout = 5 * time.Second
	return kubernetes.NewForConfig(config)
}

func apiServerReady(ctx context.Context, client kubernetes.Interface) error {
	return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func nodeReady(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status == corev1.ConditionTrue {
			return nil
		}
		return errors.New(condition.Message)
	}
	return errors.New("the node has no Ready condition")
}

// defaultAccountReady waits for what every Pod needs before it can be created.
func defaultAccountReady(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}
