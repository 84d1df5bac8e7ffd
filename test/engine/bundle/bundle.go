package bundle

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
)

// Variant is one of the images.
type Variant struct {
	Ref    string // its name, with a tag
	Python bool   // python3, as every real engine image has; busybox comes with it
	Shell  bool   // /bin/sh, sleep and a few more
}

// The images. In each, vllm is the stand-in engine and loadgen its clients; the
// entrypoint is that of vllm/vllm-openai.
var (
	Full     = Variant{Ref: "lastcall.dev/test-engine:dev", Python: true, Shell: true}
	NoPython = Variant{Ref: "lastcall.dev/test-engine-nopython:dev", Shell: true}
	NoShell  = Variant{Ref: "lastcall.dev/test-engine-noshell:dev"}

	Variants = []Variant{Full, NoPython, NoShell}
)

// shims are Python packages with the names of the engines' entry points. Each
// replaces its python3 by the stand-in, which is told by its name what it is.
//
//go:embed shims
var shims embed.FS

// applets are what the images' busybox is called besides busybox.
var applets = []string{"sh", "sleep", "cat", "ls", "env", "kill", "ps"}

// Write builds images and writes each as a tar into dir. It returns the files'
// names, in the order given.
func Write(ctx context.Context, dir string, variants ...Variant) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	images, err := Build(ctx, variants...)
	if err != nil {
		return nil, err
	}
	var files []string
	for i, v := range variants {
		name, _, _ := strings.Cut(path.Base(v.Ref), ":")
		file := filepath.Join(dir, name+".tar")
		if err := ociimage.WriteTar(file, v.Ref, images[i]); err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

// Build builds images, in the order given.
func Build(ctx context.Context, variants ...Variant) ([]v1.Image, error) {
	root, err := Root(ctx)
	if err != nil {
		return nil, err
	}
	binaries, remove, err := compile(ctx)
	if err != nil {
		return nil, err
	}
	defer remove()
	var images []v1.Image
	for _, v := range variants {
		image, err := build(v, binaries, root)
		if err != nil {
			return nil, fmt.Errorf("building %s: %w", v.Ref, err)
		}
		images = append(images, image)
	}
	return images, nil
}

func build(v Variant, binaries, root string) (v1.Image, error) {
	spec := ociimage.Spec{
		Files: []ociimage.File{
			{Path: "/usr/local/bin/vllm", Source: filepath.Join(binaries, "engine"), Mode: 0o755},
			{Path: "/usr/local/bin/sglang", Link: "vllm"},
			{Path: "/usr/local/bin/loadgen", Source: filepath.Join(binaries, "loadgen"), Mode: 0o755},
			{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
		},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Entrypoint: []string{"vllm", "serve"},
	}
	switch {
	case v.Python:
		files, err := shimFiles()
		if err != nil {
			return nil, err
		}
		spec.Root = root
		spec.Files = append(spec.Files, files...)
	case v.Shell:
		spec.Files = append(spec.Files, ociimage.File{Path: "/bin/busybox", Source: filepath.Join(root, "bin/busybox"), Mode: 0o755})
	}
	if v.Shell {
		for _, applet := range applets {
			spec.Files = append(spec.Files, ociimage.File{Path: "/bin/" + applet, Link: "busybox"})
		}
	}
	return ociimage.Build(spec)
}

func shimFiles() ([]ociimage.File, error) {
	var files []ociimage.File
	err := fs.WalkDir(shims, "shims", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := shims.ReadFile(name)
		// Debian's python3 looks here whatever its minor version.
		target := path.Join("/usr/lib/python3/dist-packages", strings.TrimPrefix(name, "shims/"))
		files = append(files, ociimage.File{Path: target, Data: data})
		return err
	})
	return files, err
}

// compile builds the stand-in, as engine, and the load generator as static
// binaries in a folder. The caller removes it.
func compile(ctx context.Context) (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "test-engine-")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/",
		"github.com/lastcall-dev/lastcall/test/engine", "github.com/lastcall-dev/lastcall/test/load/loadgen")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, fmt.Errorf("building the stand-in engine: %w\n%s", err, out)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
