package bundle

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unpacked makes an image's content a container's root.
func unpacked(t *testing.T, image v1.Image) string {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close() //nolint:errcheck // read to its end
	root := t.TempDir()
	entries := tar.NewReader(content)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return root
		}
		require.NoError(t, err)
		name := filepath.Join(root, entry.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		switch entry.Typeflag {
		case tar.TypeDir:
			require.NoError(t, os.MkdirAll(name, fs.FileMode(entry.Mode)))
		case tar.TypeSymlink:
			require.NoError(t, os.Symlink(entry.Linkname, name))
		case tar.TypeLink:
			require.NoError(t, os.Link(filepath.Join(root, entry.Linkname), name))
		default:
			data, err := io.ReadAll(entries)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(name, data, fs.FileMode(entry.Mode)))
		}
	}
}

// inside runs a program in the root as a container would.
func inside(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "chroot", append([]string{root, "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestImages(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("the images are made of Debian or Ubuntu packages, and there is no apt-get here")
	}
	built, err := Build(t.Context(), Variants...)
	require.NoError(t, err)
	t.Run("the full one has a python3 that can run the hook", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("chroot needs root")
		}
		testPython(t, unpacked(t, built[0]))
	})
	for i, present := range []map[string]bool{
		{"usr/local/bin/vllm": true, "bin/sh": true, "usr/bin/python3": true},
		{"usr/local/bin/vllm": true, "bin/sh": true, "bin/sleep": true, "usr/bin/python3": false},
		{"usr/local/bin/vllm": true, "bin/sh": false, "usr/bin/python3": false, "tmp": true},
	} {
		t.Run(Variants[i].Ref, func(t *testing.T) {
			root := unpacked(t, built[i])
			for name, want := range present {
				_, err := os.Stat(filepath.Join(root, name))
				assert.Equal(t, want, err == nil, name)
			}
		})
	}
}

func testPython(t *testing.T, root string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := inside(ctx, root, "/bin/sh", "-c", `P=$(command -v python3) && "$P" -I -S -c "$1" && sleep 0`, "sh",
		"import http.client, ssl, json, signal, socket, time; ssl.create_default_context(); print(ssl.__file__)")
	require.NoError(t, err, out)
	assert.True(t, strings.HasPrefix(out, "/usr/lib/python3."), out)

	// Compiled modules are used although the image's files are from 1970.
	out, err = inside(ctx, root, "python3", "-v", "-c", "import http.client")
	require.NoError(t, err, out)
	assert.Contains(t, out, "matches /usr/lib/python3.")
	assert.NotContains(t, out, "wrote '")

	for _, module := range []string{"sglang.launch_server", "vllm.entrypoints.openai.api_server"} {
		out, err = inside(ctx, root, "python3", "-m", module, "--port", "no-number")
		require.Error(t, err)
		assert.Equal(t, "engine: --port: \"no-number\" is not a number from 0 to 65535\n", out, module)
	}
	out, err = inside(ctx, root, "vllm", "serve", "m", "--port", "no-number")
	require.Error(t, err)
	assert.Contains(t, out, "no-number")
}

func TestDependencies(t *testing.T) {
	got := dependencies(`python3-minimal
  PreDepends: python3.12-minimal
  Depends: dpkg
python3.12-minimal
  PreDepends: libc6
 |Depends: media-types
  Depends: mime-support
  Depends: <virtual>
  Depends: debconf
  Depends: zlib1g
<virtual>
libc6
  Depends: libgcc-s1
`)
	assert.Equal(t, map[string][]string{
		"python3-minimal":    {"python3.12-minimal", "dpkg"},
		"python3.12-minimal": {"libc6", "media-types", "zlib1g"},
		"libc6":              {"libgcc-s1"},
	}, got)
}

func TestKeyIsOfThePackagesNotOfTheMirror(t *testing.T) {
	a := key("'http://a/libc6.deb' libc6_2.36_amd64.deb 1 SHA256:aa\n")
	b := key("'http://b/libc6.deb' libc6_2.36_amd64.deb 1 SHA256:aa\n")
	c := key("'http://a/libc6.deb' libc6_2.37_amd64.deb 1 SHA256:bb\n")
	assert.Equal(t, a, b)
	assert.NotEqual(t, a, c)
}
