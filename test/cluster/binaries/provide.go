package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The programs, by their file name.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Kubectl           = "kubectl"
)

// All names every program, those that envtest needs first.
func All() []string {
	return []string{Etcd, APIServer, Kubectl, Kubelet, ControllerManager, Scheduler, Proxy}
}

// AssetsDir returns a folder with what envtest needs, ready to be KUBEBUILDER_ASSETS.
func AssetsDir(ctx context.Context) (string, error) {
	return Provide(ctx, os.Stderr, Etcd, APIServer, Kubectl)
}

// Provide makes sure that the named programs are in the cache and returns the folder they are in, which may hold
// others too. It says on progress what takes long. Two processes that need the same program do not make it twice.
func Provide(ctx context.Context, progress io.Writer, names ...string) (string, error) {
	for _, name := range names {
		if !slices.Contains(All(), name) {
			return "", fmt.Errorf("no program is called %q: there are %s", name, strings.Join(All(), ", "))
		}
	}
	source, err := findSource(ctx)
	if err != nil {
		return "", err
	}
	dir, err := source.cacheDir()
	if err != nil {
		return "", err
	}
	if len(missing(dir, names)) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, progress, filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	wanted := missing(dir, names)
	get := getter{source: source, client: newClient(), dir: dir, progress: progress, unreachable: map[string]error{}}
	for i, name := range wanted {
		get.step = fmt.Sprintf("%s (%d of %d)", name, i+1, len(wanted))
		if err := get.one(ctx, name); err != nil {
			return "", fmt.Errorf("providing %s: %w", name, err)
		}
	}
	return dir, nil
}

func (s source) cacheDir() (string, error) {
	cache := os.Getenv("LASTCALL_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder, set LASTCALL_CACHE: %w", err)
		}
		cache = filepath.Join(user, "lastcall")
	}
	key := fmt.Sprintf("kubernetes-%s-etcd-%s-%s-%s", s.kubernetes, s.etcd, runtime.GOOS, runtime.GOARCH)
	return filepath.Abs(filepath.Join(cache, key))
}

func missing(dir string, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// getter brings programs into a folder.
type getter struct {
	source   source
	client   *http.Client
	dir      string
	progress io.Writer
	step     string
	// unreachable remembers hosts that could not be reached, so that only the first program waits for them.
	unreachable map[string]error
}

// one places a program under its final name only once it is whole: whoever sees it can run it.
func (g *getter) one(ctx context.Context, name string) error {
	temporary := filepath.Join(g.dir, "."+name+".new")
	defer os.Remove(temporary) //nolint:errcheck // gone already when the rename below succeeded
	if err := g.download(ctx, name, temporary); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		g.say("no official download (%v): building it, which happens once", err)
		if err := g.build(ctx, name, temporary); err != nil {
			return err
		}
	}
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(g.dir, name))
}

func (g *getter) say(format string, args ...any) {
	fmt.Fprintf(g.progress, "%s: %s\n", g.step, fmt.Sprintf(format, args...))
}

// lock waits until no other process fills the folder.
func lock(ctx context.Context, progress io.Writer, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for said := false; ; said = true {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil //nolint:errcheck // closing releases the lock, whatever it returns
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &fs.PathError{Op: "lock", Path: path, Err: errors.Join(err, file.Close())}
		}
		if !said {
			fmt.Fprintln(progress, "waiting for another process that is providing Kubernetes programs")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(time.Second):
		}
	}
}
