package bundle

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/test/router/fake"
)

func TestTheImageHasEachRoutersName(t *testing.T) {
	image, err := Build(t.Context())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "image.tar")
	require.NoError(t, write(file, image, Releases))
	archive, err := os.Open(file)
	require.NoError(t, err)
	defer archive.Close() //nolint:errcheck // only read
	entries := tar.NewReader(archive)
	var manifest []struct{ RepoTags []string }
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if entry.Name == "manifest.json" {
			require.NoError(t, json.NewDecoder(entries).Decode(&manifest))
		}
	}
	require.Len(t, manifest, 1, "it is one image")
	var refs []string
	for _, r := range Releases {
		refs = append(refs, r.Ref())
	}
	assert.ElementsMatch(t, refs, manifest[0].RepoTags)
	assert.Contains(t, refs, "lastcall.dev/test/smg:v1.9.0")
	assert.Contains(t, refs, "lastcall.dev/test/llm-d-router-endpoint-picker:v0.10.0")

	content := mutate.Extract(image)
	defer content.Close() //nolint:errcheck // read to its end
	links := map[string]string{}
	for files := tar.NewReader(content); ; {
		entry, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if entry.Typeflag == tar.TypeSymlink {
			links[entry.Name] = entry.Linkname
		}
	}
	for _, family := range fake.Families {
		assert.Equal(t, "router", links["usr/local/bin/"+Release{Family: family}.Program()])
	}
}
