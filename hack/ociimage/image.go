package ociimage

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one entry of an image. Exactly one of Data, Source and Link gives its content; none of them makes an
// empty file, or a directory when Mode has fs.ModeDir.
type File struct {
	// Path is where the entry is in the image. Missing parent directories are made with mode 0755.
	Path string
	// Mode is the entry's permission bits, with setuid, setgid and sticky. Zero means: as Source is on the host,
	// else 0644, or 0755 for a directory.
	Mode fs.FileMode
	// Data is the content itself.
	Data []byte
	// Source is a regular file on the host to copy.
	Source string
	// Link makes a symbolic link to this target.
	Link string
}

// Spec is all that an image consists of.
type Spec struct {
	// Root is a host directory to copy in whole: files, directories, symbolic links and modes. Optional.
	Root string
	// Files come on top of Root; one at a path that Root has replaces it.
	Files []File

	Entrypoint []string
	Cmd        []string
	Env        []string
	User       string
	WorkingDir string
}

// Build makes the image: one layer, for Linux on the architecture this program was built for.
// Source files are read once, here.
func Build(spec Spec) (v1.Image, error) {
	entries, err := collect(spec)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if err := writeLayer(&content, entries); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("making the image layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("adding the image layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("reading the image configuration: %w", err)
	}
	config = config.DeepCopy()
	config.OS = "linux"
	config.Architecture = runtime.GOARCH
	config.Config = v1.Config{
		Entrypoint: spec.Entrypoint,
		Cmd:        spec.Cmd,
		Env:        spec.Env,
		User:       spec.User,
		WorkingDir: spec.WorkingDir,
	}
	return mutate.ConfigFile(image, config)
}

// WriteTar writes image to the file at path, as an archive in which it is called ref, for example
// "lastcall.dev/webhook:v0.1.0". A file that is already there is replaced only once the new one is whole.
func WriteTar(path, ref string, image v1.Image) error {
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("image name %q: %w", ref, err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // gone already when the rename below succeeded
	if err := tarball.Write(tag, image, file); err != nil {
		return fmt.Errorf("writing image %s: %w", ref, err)
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
