package envtest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// replica is a binary of lastcall that runs.
type replica struct {
	process            *exec.Cmd
	healthAddress, log string
}

// built builds a binary and returns its path.
func built(t *testing.T, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/"+name)
	build.Dir = chart.Root()
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close() //nolint:errcheck // only its port was wanted
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

func startReplica(t *testing.T, binary string, flags ...string) *replica {
	t.Helper()
	r := &replica{healthAddress: "127.0.0.1:" + freePort(t), log: filepath.Join(t.TempDir(), "log")}
	r.process = exec.Command(binary, append(flags, "--health-address="+r.healthAddress, "--metrics-address=0", "--log-level=debug")...)
	log, err := os.Create(r.log)
	require.NoError(t, err)
	defer log.Close() //nolint:errcheck // the process has its own
	r.process.Stderr = log
	require.NoError(t, r.process.Start())
	t.Cleanup(func() {
		if r.process.ProcessState == nil {
			_ = r.process.Process.Kill()
			_ = r.process.Wait()
		}
		if t.Failed() {
			t.Log(r.said(t))
		}
	})
	return r
}

// said is the replica's log so far.
func (r *replica) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(r.log)
	require.NoError(t, err)
	return string(text)
}

func (r *replica) health(path string) error {
	response, err := http.Get("http://" + r.healthAddress + path)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// resident is the process's resident memory in KiB.
func (r *replica) resident(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.process.Process.Pid))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(status), "VmRSS:")
	require.True(t, found)
	_, err = fmt.Sscanf(after, "%d", &kib)
	require.NoError(t, err)
	return kib
}

// tokenOf is a token of the account, as its Pods have.
func tokenOf(t *testing.T, account client.ObjectKey) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	serviceAccount := &corev1.ServiceAccount{}
	serviceAccount.Namespace, serviceAccount.Name = account.Namespace, account.Name
	require.NoError(t, api.SubResource("token").Create(t.Context(), serviceAccount, request))
	return request.Status.Token
}

// kubeconfigOf writes a kubeconfig with a token of the account.
func kubeconfigOf(t *testing.T, account client.ObjectKey) string {
	t.Helper()
	require.NoError(t, rest.LoadTLSFiles(config))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: tokenOf(t, account)}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path))
	return path
}
