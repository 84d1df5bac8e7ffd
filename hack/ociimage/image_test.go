package ociimage_test

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
)

func TestBuildPutsFilesOnTopOfTheRoot(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/bin/python3"), []byte("old"), 0o755))
	require.NoError(t, os.Symlink("usr/bin", filepath.Join(root, "bin")))
	require.NoError(t, os.Mkdir(filepath.Join(root, "tmp"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(root, "tmp"), 0o777|fs.ModeSticky))
	tool := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.WriteFile(tool, []byte("tool"), 0o755))

	image, err := ociimage.Build(ociimage.Spec{
		Root: root,
		Files: []ociimage.File{
			{Path: "/usr/bin/python3", Data: []byte("new"), Mode: 0o700},
			{Path: "/bin/tool", Source: tool},
			{Path: "/bin/sh", Link: "/bin/tool"},
			{Path: "/etc/lastcall/conf", Data: []byte("x")},
			{Path: "/var/empty", Mode: fs.ModeDir},
		},
		Entrypoint: []string{"/bin/tool"},
		Cmd:        []string{"serve"},
		Env:        []string{"A=b"},
		User:       "65532",
		WorkingDir: "/tmp",
	})
	require.NoError(t, err)

	assert.Equal(t, []entry{
		{"bin", tar.TypeSymlink, 0o777, "usr/bin"},
		{"etc/", tar.TypeDir, 0o755, ""},
		{"etc/lastcall/", tar.TypeDir, 0o755, ""},
		{"etc/lastcall/conf", tar.TypeReg, 0o644, "x"},
		{"tmp/", tar.TypeDir, 0o1777, ""},
		{"usr/", tar.TypeDir, 0o755, ""},
		{"usr/bin/", tar.TypeDir, 0o755, ""},
		{"usr/bin/python3", tar.TypeReg, 0o700, "new"},
		{"usr/bin/sh", tar.TypeSymlink, 0o777, "/bin/tool"},
		{"usr/bin/tool", tar.TypeReg, 0o755, "tool"},
		{"var/", tar.TypeDir, 0o755, ""},
		{"var/empty/", tar.TypeDir, 0o755, ""},
	}, entries(t, image))
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, v1.Config{
		Entrypoint: []string{"/bin/tool"}, Cmd: []string{"serve"}, Env: []string{"A=b"}, User: "65532", WorkingDir: "/tmp",
	}, config.Config)
}

func TestBuildGivesTheSameDigestForTheSameSpec(t *testing.T) {
	digest := func() v1.Hash {
		source := filepath.Join(t.TempDir(), "binary")
		require.NoError(t, os.WriteFile(source, []byte("binary"), 0o755))
		image, err := ociimage.Build(ociimage.Spec{Files: []ociimage.File{
			{Path: "/b", Source: source}, {Path: "/a", Data: []byte("a")},
		}})
		require.NoError(t, err)
		digest, err := image.Digest()
		require.NoError(t, err)
		return digest
	}
	assert.Equal(t, digest(), digest())
}

func TestBuildNamesTheFileItCannotUse(t *testing.T) {
	for name, files := range map[string][]ociimage.File{
		`image file "/": the path names no file`: {{Path: "/"}},
		`image file "a": listed twice`:           {{Path: "/a"}, {Path: "a"}},
		`image file "/a/x": too many`:            {{Path: "/a", Link: "b"}, {Path: "/b", Link: "a"}, {Path: "/a/x"}},
		`image file /tool: stat /nowhere/tool:`:  {{Path: "tool", Source: "/nowhere/tool"}},
	} {
		_, err := ociimage.Build(ociimage.Spec{Files: files})
		assert.ErrorContains(t, err, name)
	}
}

func TestWriteTarCanBeReadBackByName(t *testing.T) {
	image, err := ociimage.Build(ociimage.Spec{Files: []ociimage.File{{Path: "/a", Data: []byte("a")}}})
	require.NoError(t, err)
	folder := t.TempDir()
	path := filepath.Join(folder, "image.tar")
	require.NoError(t, ociimage.WriteTar(path, "example.com/team/app:v1", image))

	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	require.NoError(t, err)
	require.Len(t, manifest, 1)
	assert.Equal(t, []string{"example.com/team/app:v1"}, manifest[0].RepoTags)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, files, 1, "nothing but the archive is left")

	assert.ErrorContains(t, ociimage.WriteTar(path, "no:such:name", image), `image name "no:such:name"`)
}

type entry struct {
	name    string
	kind    byte
	mode    int64
	content string
}

func entries(t *testing.T, image v1.Image) []entry {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	content, err := layers[0].Uncompressed()
	require.NoError(t, err)
	defer func() { _ = content.Close() }()
	var found []entry
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		assert.Zero(t, header.ModTime.Unix(), header.Name)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		found = append(found, entry{header.Name, header.Typeflag, header.Mode, string(data) + header.Linkname})
	}
}
