package kube

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unreachable = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: c}}]
users: [{name: c, user: {}}]
current-context: c
`

func TestOpenNamesTheKubeconfigThatLeadsNowhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, []byte(unreachable), 0o600))
	for _, kubeconfig := range []string{path, filepath.Join(t.TempDir(), "missing")} {
		t.Setenv("KUBECONFIG", kubeconfig)
		_, _, err := Open(t.Context(), io.Discard)
		assert.ErrorContains(t, err, "the cluster of KUBECONFIG="+kubeconfig+" (unset it to use one on this machine): ")
	}
}

func TestLoadIntoAForeignCluster(t *testing.T) {
	foreign, folder := &Cluster{}, t.TempDir()
	archive := filepath.Join(folder, "image.tar")
	require.NoError(t, os.WriteFile(archive, nil, 0o600))

	t.Setenv("LASTCALL_LOAD_COMMAND", "")
	assert.ErrorContains(t, foreign.Load(t.Context(), archive), `set LASTCALL_LOAD_COMMAND to what does that, such as "kind load`)
	t.Setenv("LASTCALL_LOAD_COMMAND", "ls --no-such-flag")
	assert.ErrorContains(t, foreign.Load(t.Context(), archive), "loading image "+archive+" with ls: exit status 2")
	t.Setenv("LASTCALL_LOAD_COMMAND", "rm --")
	require.NoError(t, foreign.Load(t.Context(), archive))
	assert.NoFileExists(t, archive, "the command got the archive")
}
