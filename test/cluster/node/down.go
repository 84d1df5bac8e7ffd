package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// NotRunningError says that a cluster is not up.
type NotRunningError struct{ name, reason string }

func (e *NotRunningError) Error() string {
	return fmt.Sprintf("cluster %s is not up: %s", e.name, e.reason)
}

// Find returns the named cluster, or a *NotRunningError unless all of it runs and the API server is ready.
func Find(ctx context.Context, name string) (*Cluster, error) {
	c, err := open(name)
	if err != nil {
		return nil, err
	}
	if len(c.state.Processes) == 0 {
		return nil, &NotRunningError{name, "it was never started"}
	}
	if !c.running() {
		return nil, &NotRunningError{name, "not all of its processes run"}
	}
	client, err := c.client()
	if err != nil {
		return nil, &NotRunningError{name, err.Error()}
	}
	if err := apiServerReady(ctx, client); err != nil {
		return nil, &NotRunningError{name, err.Error()}
	}
	return c, nil
}

// Name is the cluster's name, which is its node's name too.
func (c *Cluster) Name() string { return c.name }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return KubeconfigPath(c.name) }

// KubeconfigPath is where the kubeconfig of the named cluster is while it is up.
func KubeconfigPath(name string) string { return filepath.Join(stateRoot, name, "kubeconfig") }

// NameOf is the cluster that a kubeconfig's path belongs to, if it is one of this package's.
func NameOf(kubeconfig string) (name string, ok bool) {
	name = filepath.Base(filepath.Dir(kubeconfig))
	if kubeconfig != KubeconfigPath(name) {
		return "", false
	}
	return name, true
}

// HostAddress is where Pods and the API server reach a server that listens on this machine.
func (c *Cluster) HostAddress() string { return c.network().host().String() }

// Down removes the named cluster with everything it ever started or wrote. One that is not there is no error.
func Down(ctx context.Context, name string) error {
	if err := Requirements(); err != nil {
		return err
	}
	lock, err := flock(clusterLock, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // closing releases the lock, whatever it returns
	c, err := open(name)
	if err != nil {
		return err
	}
	return c.down(ctx)
}

func (c *Cluster) down(ctx context.Context) error {
	if err := c.stop(ctx); err != nil {
		return fmt.Errorf("taking cluster %s down: %w", c.name, err)
	}
	return os.RemoveAll(c.dir)
}

// stop ends every process of the cluster. Its namespaces go with them, and with those its mounts and network rules.
func (c *Cluster) stop(ctx context.Context) error {
	return errors.Join(c.network().disconnect(ctx), c.cgroup.kill(ctx))
}

// Use brings the named cluster up if it is not, for as long as the caller needs it. The release that it returns takes
// the cluster down again, unless another process uses it too or it was brought up with Up.
func Use(ctx context.Context, name string, progress io.Writer) (c *Cluster, release func() error, err error) {
	if err := Requirements(); err != nil {
		return nil, nil, err
	}
	users := "." + name + ".users"
	lock, err := flock(users, syscall.LOCK_SH)
	if err != nil {
		return nil, nil, err
	}
	if c, err = up(ctx, name, false, progress); err != nil {
		return nil, nil, errors.Join(err, lock.Close())
	}
	return c, func() error {
		defer lock.Close() //nolint:errcheck // closing releases the lock, whatever it returns
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return nil // another process uses it
		}
		latest, err := open(name)
		if err != nil || latest.state.Kept {
			return err
		}
		return Down(context.WithoutCancel(ctx), name)
	}, nil
}
