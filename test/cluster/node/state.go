package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
)

// stateRoot holds a folder per cluster. It is short because socket paths are limited to 108 bytes.
const stateRoot = "/var/lib/lastcall"

// DefaultName is the cluster that commands and suites mean when none is named.
const DefaultName = "lastcall"

// Cluster is a cluster on this machine.
type Cluster struct {
	name   string
	dir    string
	state  state
	cgroup cgroup
	exits  chan exited
}

// state is what is remembered of a cluster between commands, in state.json.
type state struct {
	Slot      int       `json:"slot"` // the network's
	Kept      bool      `json:"kept"` // someone asked for it to stay: no suite takes it down
	Processes []process `json:"processes"`
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?$`)

// open reads a cluster's state. One that is not there gives an empty state, and no error.
func open(name string) (*Cluster, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("cluster name %q: want 1 to 30 lower case letters, digits and dashes", name)
	}
	group, err := findCgroup("lastcall-" + name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: name, dir: filepath.Join(stateRoot, name), cgroup: group, exits: make(chan exited, 16)}
	content, err := os.ReadFile(c.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of cluster %s: %w", name, err)
	}
	if err := json.Unmarshal(content, &c.state); err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.path("state.json"), err)
	}
	return c, nil
}

// save replaces state.json whole, so that a crash leaves the old one or the new one.
func (c *Cluster) save() error {
	content, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("state.json.new"), content, 0o600); err != nil {
		return err
	}
	return os.Rename(c.path("state.json.new"), c.path("state.json"))
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

func (c *Cluster) network() network { return network{c.state.Slot} }

// holder is the process id of the first process, whose namespaces are the cluster's.
func (c *Cluster) holder() int { return c.state.Processes[0].PID }

// running tells whether every component that was started still is.
func (c *Cluster) running() bool {
	const components = 1 + 1 + 2 + 4 // holder, containerd, control plane, the rest
	return len(c.state.Processes) == components &&
		!slices.ContainsFunc(c.state.Processes, func(p process) bool { return !p.alive() })
}

// freeSlot finds an address range that no other cluster and no network interface of the machine uses.
func (c *Cluster) freeSlot() (int, error) {
	taken := map[int]bool{}
	folders, err := os.ReadDir(stateRoot)
	if err != nil {
		return 0, err
	}
	for _, folder := range folders {
		if !folder.IsDir() || folder.Name() == c.name {
			continue
		}
		other, err := open(folder.Name())
		if err != nil {
			return 0, err
		}
		taken[other.state.Slot] = true
	}
	for slot := 1; slot <= slots; slot++ {
		busy, err := network{slot}.inUse()
		if err != nil {
			return 0, err
		}
		if !busy && !taken[slot] {
			return slot, nil
		}
	}
	return 0, fmt.Errorf("all %d address ranges in 198.18.0.0/15 are taken: take a cluster in %s down", slots, stateRoot)
}

// flock opens a lock file under stateRoot and takes it as how says (LOCK_EX, LOCK_SH, with LOCK_NB or without).
// Closing the file releases it.
func flock(file string, how int) (*os.File, error) {
	if err := os.MkdirAll(stateRoot, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(stateRoot, file), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", lock.Name(), err), lock.Close())
	}
	return lock, nil
}
