package certificate

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mount writes a pair as the kubelet writes a Secret: into a new directory, to
// which one symbolic link is then turned.
func mount(t *testing.T, directory string, p pair) {
	t.Helper()
	version := t.TempDir()
	for name, content := range p.data() {
		require.NoError(t, os.WriteFile(filepath.Join(version, name), content, 0o600))
		link := filepath.Join(directory, name)
		if _, err := os.Lstat(link); err != nil {
			require.NoError(t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	turned := filepath.Join(directory, "..data_tmp")
	require.NoError(t, os.Symlink(version, turned))
	require.NoError(t, os.Rename(turned, filepath.Join(directory, "..data")))
}

func TestFilesMayComeLateAndChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		serving := Serving{Clock: realTime}
		files := &Files{Directory: t.TempDir(), Serving: &serving}
		stopped := make(chan error)
		go func() { stopped <- files.Start(ctx) }()
		read := func() { pass(filesInterval) }

		read()
		require.Error(t, serving.Check(nil), "the Secret is not there yet")

		ca := newAuthority(t, "ca")
		mount(t, files.Directory, ca.issue(t, time.Hour))
		read()
		require.NoError(t, serving.Check(nil))

		pass(time.Hour)
		require.Error(t, serving.Check(nil), "it has expired")

		mount(t, files.Directory, ca.issue(t, time.Hour))
		read()
		require.NoError(t, serving.Check(nil), "and was renewed")

		before := serving.Expiry()
		mount(t, files.Directory, newAuthority(t, "another").issue(t, 2*time.Hour))
		read()
		assert.Greater(t, serving.Expiry(), before, "a Secret from another CA is served too")

		require.NoError(t, os.Remove(filepath.Join(files.Directory, "..data")))
		read()
		require.NoError(t, serving.Check(nil), "a directory that goes away takes nothing back")

		stop()
		require.NoError(t, <-stopped)
	})
}
