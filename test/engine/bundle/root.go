package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// layout counts the ways this package has laid out a root; it is part of the
// cache's key.
const layout = "1"

// Root returns a folder with python3, its standard library and busybox, in the
// user's cache. It is unpacked when it is not there yet, which takes about ten
// seconds and needs apt's package lists and its mirror.
func Root(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("the image's python3 is made of Debian or Ubuntu packages: %w", err)
	}
	names, uris, err := packages(ctx)
	if err != nil && os.Geteuid() == 0 {
		// A fresh container has no package lists.
		if _, err := run(ctx, "", "apt-get", "update", "-q"); err != nil {
			return "", err
		}
		names, uris, err = packages(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("asking apt for python3 (does \"apt-get update\" help?): %w", err)
	}
	root := filepath.Join(cache, "lastcall", "engine-root", key(uris))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	parent := filepath.Dir(root)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(parent, "unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work) //nolint:errcheck // what is left is only disk space
	if err := unpack(ctx, work, names); err != nil {
		return "", err
	}
	err = os.Rename(filepath.Join(work, "root"), root)
	if errors.Is(err, fs.ErrExist) {
		return root, nil // another process was faster
	}
	return root, err
}

var minimalPackage = regexp.MustCompile(`^python3\.\d+-minimal$`)

// packages names the packages of the root, and their files with checksums.
func packages(ctx context.Context) (names []string, uris string, err error) {
	out, err := run(ctx, "", "apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts",
		"--no-breaks", "--no-replaces", "--no-enhances", "python3-minimal")
	if err != nil {
		return nil, "", err
	}
	depends := dependencies(out)
	i := slices.IndexFunc(depends["python3-minimal"], minimalPackage.MatchString)
	if i < 0 {
		return nil, "", fmt.Errorf("python3-minimal depends on no python3.X-minimal:\n%s", out)
	}
	minimal := depends["python3-minimal"][i]
	// The rest of the standard library, without the libraries of the modules
	// that nothing here imports.
	names = []string{"busybox-static", "lib" + strings.TrimSuffix(minimal, "-minimal") + "-stdlib"}
	for todo := []string{minimal}; len(todo) > 0; todo = todo[1:] {
		if !slices.Contains(names, todo[0]) {
			names = append(names, todo[0])
			todo = append(todo, depends[todo[0]]...)
		}
	}
	slices.Sort(names)
	uris, err = run(ctx, "", "apt-get", append([]string{"download", "--print-uris", "-q"}, names...)...)
	return names, uris, err
}

// dependencies reads what "apt-cache depends" writes: a package's name, then
// its dependencies indented, the first of several alternatives with a bar.
// Virtual packages are in angle brackets and left out, and so is what only a
// maintainer script needs.
func dependencies(out string) map[string][]string {
	depends := map[string][]string{}
	var of string
	alternative := false
	for line := range strings.Lines(out) {
		_, name, relation := strings.Cut(strings.TrimRight(line, "\n"), "Depends: ")
		switch {
		case !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "|"):
			of = strings.TrimSpace(line)
		case !relation:
		case alternative:
			alternative = strings.HasPrefix(line, " |") // the last alternative has no bar
		default:
			alternative = strings.HasPrefix(line, " |")
			if !strings.HasPrefix(name, "<") && !strings.HasPrefix(name, "debconf") {
				depends[of] = append(depends[of], name)
			}
		}
	}
	return depends
}

// key is made of the packages' checksums; a mirror's address is not part of it.
func key(uris string) string {
	h := sha256.New()
	h.Write([]byte(layout))
	for line := range strings.Lines(uris) {
		if _, rest, ok := strings.Cut(strings.TrimSpace(line), "' "); ok {
			h.Write([]byte(rest + "\n"))
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:16]
}

// unpack downloads the packages into work and unpacks them into work/root.
func unpack(ctx context.Context, work string, names []string) error {
	root := filepath.Join(work, "root")
	// Where /bin and /lib are links into /usr, only base-files says so.
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", dir), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	// Without the option apt warns that its own user cannot write here.
	download := append([]string{"-q", "-o", "APT::Sandbox::User=root", "download"}, names...)
	if _, err := run(ctx, work, "apt-get", download...); err != nil {
		if os.Geteuid() != 0 {
			return err
		}
		// The lists are older than the mirror.
		if _, err := run(ctx, work, "apt-get", "update", "-q"); err != nil {
			return err
		}
		if _, err := run(ctx, work, "apt-get", download...); err != nil {
			return err
		}
	}
	debs, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		// dpkg -x would put folders in the place of the links.
		script := `dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --no-same-owner -C "$2"`
		if _, err := run(ctx, work, "sh", "-c", script, "sh", deb, root); err != nil {
			return err
		}
	}
	return finish(ctx, root)
}

// unused is what no hook and no stand-in reads: most of the packages' size.
var unused = []string{
	"etc", "usr/share", "usr/lib/*/gconv", "usr/lib/*/audit", "usr/lib/python3*/ensurepip", "usr/lib/python3*/idlelib", "usr/lib/python3*/lib2to3",
	"usr/lib/python3*/pydoc_data", "usr/lib/python3*/tkinter", "usr/lib/python3*/test", "usr/lib/python3*/unittest",
}

// finish gives the root its python3 and compiles the standard library.
func finish(ctx context.Context, root string) error {
	for _, pattern := range unused {
		matches, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, match := range matches {
			if err := os.RemoveAll(match); err != nil {
				return err
			}
		}
	}
	found, err := filepath.Glob(filepath.Join(root, "usr/bin/python3.*"))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("the packages hold no /usr/bin/python3.X: %w", err)
	}
	python := filepath.Base(found[0])
	if err := os.Symlink(python, filepath.Join(root, "usr/bin/python3")); err != nil {
		return err
	}
	// The image's files are as old as the epoch, so a compiled module must not
	// be checked against its source's time: it would be compiled at each start.
	library := filepath.Join(root, "usr/lib", python)
	_, err = Python(ctx, root, "-S", "-m", "compileall", "-q", "-s", root, "--invalidation-mode", "unchecked-hash", library)
	return err
}

// Python runs the root's python3 on this machine, without a chroot, through the
// root's own loader and libraries.
func Python(ctx context.Context, root string, args ...string) (string, error) {
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib*/ld-linux-*.so.*"))
	if err != nil || len(loaders) == 0 {
		return "", fmt.Errorf("no loader in %s: %w", root, err)
	}
	libraries, err := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	if err != nil {
		return "", err
	}
	args = append([]string{"--library-path", strings.Join(libraries, ":"), filepath.Join(root, "usr/bin/python3")}, args...)
	cmd := exec.CommandContext(ctx, loaders[0], args...)
	cmd.Env = []string{"PYTHONHOME=" + filepath.Join(root, "usr")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s: %w\n%s", cmd, err, out)
	}
	return string(out), nil
}

// run returns what a command writes to standard output.
func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, failed.Stderr)
	}
	return string(out), err
}
