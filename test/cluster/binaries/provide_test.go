package binaries

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// site answers for the whole internet with what it has, by host and path.
type site struct {
	files map[string]string
	asked []string
}

func (s *site) RoundTrip(request *http.Request) (*http.Response, error) {
	address := request.URL.Host + request.URL.Path
	s.asked = append(s.asked, address)
	if s.files == nil {
		return nil, errors.New("no route to host")
	}
	body, ok := s.files[address]
	status := http.StatusOK
	if !ok {
		status = http.StatusNotFound
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(strings.NewReader(body)), Request: request,
	}, nil
}

func sum(content string) string {
	hash := sha256.Sum256([]byte(content))
	return hex.EncodeToString(hash[:])
}

func newGetter(t *testing.T, s *site) *getter {
	return &getter{
		source: source{kubernetes: "v1.2.3", etcd: "v3.4.5"}, client: &http.Client{Transport: s}, dir: t.TempDir(),
		progress: io.Discard, unreachable: map[string]error{},
	}
}

func TestDownloadKeepsOnlyWhatHasThePublishedChecksum(t *testing.T) {
	address := "dl.k8s.io/release/v1.2.3/bin/" + runtime.GOOS + "/" + runtime.GOARCH + "/kubelet"
	for name, test := range map[string]struct {
		sum, want string
	}{
		"the right checksum":   {sum("kubelet") + "\n", ""},
		"another checksum":     {sum("other"), "not the published"},
		"an empty checksum":    {"", "not the published"},
		"a page of some proxy": {"<html>Please log in</html>", "not the published"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGetter(t, &site{files: map[string]string{address: "kubelet", address + ".sha256": test.sum}})
			target := filepath.Join(g.dir, "out")
			err := g.download(t.Context(), Kubelet, target)
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			content, err := os.ReadFile(target)
			require.NoError(t, err)
			assert.Equal(t, "kubelet", string(content))
		})
	}
}

func TestDownloadTakesEtcdOutOfItsArchive(t *testing.T) {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for name, content := range map[string]string{"etcd-v3.4.5/README.md": "words", "etcd-v3.4.5/etcd": "program"} {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(content)), Mode: 0o755}))
		_, err := archive.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	folder := "github.com/etcd-io/etcd/releases/download/v3.4.5/"
	file := "etcd-v3.4.5-" + runtime.GOOS + "-" + runtime.GOARCH + ".tar.gz"
	g := newGetter(t, &site{files: map[string]string{
		folder + file:         packed.String(),
		folder + "SHA256SUMS": sum("x") + "  another.tar.gz\n" + sum(packed.String()) + "  " + file + "\n",
	}})
	target := filepath.Join(g.dir, "out")
	require.NoError(t, g.download(t.Context(), Etcd, target))
	content, err := os.ReadFile(target)
	require.NoError(t, err)
	assert.Equal(t, "program", string(content))
	left, err := os.ReadDir(g.dir)
	require.NoError(t, err)
	assert.Len(t, left, 1, "the archive is removed")
}

func TestDownloadAsksAnUnreachableHostOnce(t *testing.T) {
	offline := &site{}
	g := newGetter(t, offline)
	for _, name := range []string{Kubelet, Kubectl} {
		require.Error(t, g.download(t.Context(), name, filepath.Join(g.dir, name)))
	}
	assert.Len(t, offline.asked, 1)
}

func TestProvideRefusesAnUnknownName(t *testing.T) {
	_, err := Provide(t.Context(), io.Discard, "kube-apisever")
	require.ErrorContains(t, err, `no program is called "kube-apisever": there are etcd, kube-apiserver,`)
}

func TestProvideUsesTheCacheWithoutAsking(t *testing.T) {
	t.Setenv("LASTCALL_CACHE", t.TempDir())
	source, err := findSource(t.Context())
	require.NoError(t, err)
	dir, err := source.cacheDir()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, Etcd), nil, 0o755))

	got, err := Provide(t.Context(), io.Discard, Etcd)
	require.NoError(t, err)
	assert.Equal(t, dir, got)
}

func TestLockGivesUpWithTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), io.Discard, path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var said bytes.Buffer
	_, err = lock(ctx, &said, path)
	require.ErrorIs(t, err, context.Canceled)
	assert.Contains(t, said.String(), "waiting for another process")
	unlock()
	unlock, err = lock(t.Context(), io.Discard, path)
	require.NoError(t, err)
	unlock()
}
