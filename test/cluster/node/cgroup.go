package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup is the cluster's control group: one folder on cgroup v2, one per hierarchy on v1. The components run in its
// child "system", Pods in the "kubepods" that the kubelet makes.
type cgroup struct {
	name string
	// roots are the cluster's folders, on v1 the one that takes part in every container first.
	roots []string
}

const system = "system"

// findCgroup locates the hierarchies without changing anything.
func findCgroup(name string) (cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return cgroup{}, err
	}
	group := cgroup{name: name}
	var unified []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		root := filepath.Join(fields[1], name)
		switch fields[2] {
		case "cgroup":
			if strings.Contains(fields[3], "pids") {
				group.roots = append([]string{root}, group.roots...)
				continue
			}
			group.roots = append(group.roots, root)
		case "cgroup2":
			unified = append(unified, root)
		}
	}
	group.roots = append(group.roots, unified...)
	if len(group.roots) == 0 {
		return cgroup{}, errors.New("no cgroup file system is mounted")
	}
	return group, nil
}

// create makes the folders, ready to take processes.
func (g cgroup) create() error {
	for _, root := range g.roots {
		parent := filepath.Dir(root)
		for _, dir := range []string{root, filepath.Join(root, system)} {
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("making a cgroup: %w", err)
			}
			if err := prepare(filepath.Dir(dir), dir); err != nil {
				return fmt.Errorf("setting up cgroup %s: %w", dir, err)
			}
		}
		enableControllers(parent)
		enableControllers(root)
	}
	return nil
}

// prepare fills in what a v1 cpuset must have before it takes a process.
func prepare(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) || isUnified(parent) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return err
		}
	}
	return nil
}

func isUnified(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.controllers"))
	return err == nil
}

// enableControllers passes every v2 controller on to the children. The kubelet names the one it misses, so a
// controller that the machine will not pass on is no error here.
func enableControllers(dir string) {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return // cgroup v1
	}
	for _, controller := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
}

// members are the files through which a process moves itself into the cluster's "system" group.
func (g cgroup) members() []string {
	var files []string
	for _, root := range g.roots {
		files = append(files, filepath.Join(root, system, "cgroup.procs"))
	}
	return files
}

// pids lists every process of the cluster. A cgroup that is not there has none.
func (g cgroup) pids() []int {
	var pids []int
	for _, root := range g.roots {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // a group that went away has no processes
			}
			if entry.Name() != "cgroup.procs" {
				return nil
			}
			content, _ := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(content)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// kill ends every process of the cluster and removes the cgroup.
func (g cgroup) kill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		pids := g.pids()
		if len(pids) == 0 {
			return g.remove(ctx)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that has just ended is no error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("processes %v of cgroup %s do not end: %w", pids, g.name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (g cgroup) remove(ctx context.Context) error {
	for {
		var failed error
		for _, root := range g.roots {
			failed = errors.Join(failed, removeTree(root))
		}
		if failed == nil {
			return nil
		}
		// The kernel reports a group as busy for a moment after its last process has ended.
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing cgroup %s: %w", g.name, failed)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// removeTree removes folders only: the files of a cgroup go with it.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			if err := removeTree(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}
