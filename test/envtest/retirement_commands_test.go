package envtest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/cli"
)

// tryKubectlLastcall is kubectlLastcall for what may fail: its exit code and all that it
// says.
func tryKubectlLastcall(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, adminKubeconfig, 0o600))
	t.Setenv("KUBECONFIG", kubeconfig)
	var out bytes.Buffer
	code = cli.Run(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	return code, out.String()
}

// givenUp is a ModelDeployment with these finalizers whose replica server-1 was given
// up, as the retirer would have written it. Nothing of lastcall runs for it.
func givenUp(t *testing.T, finalizers ...string) *v1alpha1.ModelDeployment {
	t.Helper()
	md := modelDeployment(namespace(t, nil), "chat")
	md.Spec.Roles, md.Finalizers = []v1alpha1.Role{role("spare", 0, 1), role("server", 1, 1)}, finalizers
	require.NoError(t, api.Create(t.Context(), md))
	t.Cleanup(func() {
		ctx := context.Background()
		if err := api.Get(ctx, client.ObjectKeyFromObject(md), md); err == nil {
			md.Finalizers = nil
			require.NoError(t, api.Update(ctx, md))
			require.NoError(t, client.IgnoreNotFound(api.Delete(ctx, md)))
		}
	})
	at := metav1.NewMicroTime(time.Now().Add(-time.Hour).Truncate(time.Microsecond))
	md.Status.Retirement = &v1alpha1.RetirementStatus{
		Cause: v1alpha1.CauseScaleDown, State: v1alpha1.StateAborted, Reason: names.HeldServingRequests,
		Generation: md.Generation, StartedAt: at, PhaseStartedAt: at, Deadline: at,
		Targets: []v1alpha1.RetirementTarget{{
			Role: "server", Ordinal: 1, State: v1alpha1.StateAborted, Reason: names.HeldServingRequests, PhaseStartedAt: at,
			Members: []v1alpha1.RetirementMember{{Name: "chat-server-1", UID: "uid", Answering: true}},
		}},
	}
	require.NoError(t, api.Status().Update(t.Context(), md))
	return md
}

func read(t *testing.T, md *v1alpha1.ModelDeployment) *v1alpha1.ModelDeployment {
	t.Helper()
	var now v1alpha1.ModelDeployment
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(md), &now))
	return &now
}

func TestRetryAsksOnceMoreEachTime(t *testing.T) {
	md := givenUp(t)
	said := kubectlLastcall(t, "retry", "chat", "-n", md.Namespace)
	assert.Contains(t, said, "begin again with chat-server-1")
	first := read(t, md)
	require.NotEmpty(t, first.Annotations[names.AnnotationRetryRetirement])
	assert.Equal(t, md.Generation, first.Generation, "a retry is no edit of the spec")
	assert.Equal(t, md.Status, first.Status)
	kubectlLastcall(t, "retry", "chat", "-n", md.Namespace)
	require.NotEqual(t, first.Annotations[names.AnnotationRetryRetirement], read(t, md).Annotations[names.AnnotationRetryRetirement])

	md = read(t, md)
	md.Status.Retirement = nil
	require.NoError(t, api.Status().Update(t.Context(), md))
	code, said := tryKubectlLastcall(t, "retry", "chat", "-n", md.Namespace)
	require.Equal(t, 1, code)
	require.Contains(t, said, "nothing to retry")
}

func TestExplainNamesWhatWasGivenUp(t *testing.T) {
	md := givenUp(t)
	said := kubectlLastcall(t, "explain", "chat", "-n", md.Namespace)
	for _, words := range []string{"chat-server-1: Aborted, ServingRequests", "Pod chat-server-1, which answers for the replica: gone", "kubectl lastcall retry chat -n " + md.Namespace} {
		assert.Contains(t, said, words)
	}
}

func TestScaleChangesTheReplicasOfOneRole(t *testing.T) {
	md := givenUp(t)
	said := kubectlLastcall(t, "scale", "chat", "-n", md.Namespace, "--role", "server", "--replicas", "3")
	assert.Contains(t, said, "replicas of role server set from 1 to 3")
	now := read(t, md)
	want := md.DeepCopy()
	*want.Spec.Roles[1].Replicas = 3
	require.Equal(t, want.Spec, now.Spec)
	require.Equal(t, md.Generation+1, now.Generation)

	code, said := tryKubectlLastcall(t, "scale", "chat", "-n", md.Namespace, "--role", "servers", "--replicas", "3")
	require.Equal(t, 1, code)
	require.Contains(t, said, "its roles are spare, server")
}

// A role that moved in the list, or whose replicas somebody changed, between the read
// and the patch: the test in the patch is what keeps another role from being scaled.
func TestThePatchOfScaleIsRefusedWhereTheRoleIsAnother(t *testing.T) {
	md := givenUp(t)
	for what, patch := range map[string]string{
		"another role":     `[{"op":"test","path":"/spec/roles/1/name","value":"spare"},{"op":"add","path":"/spec/roles/1/replicas","value":9}]`,
		"another number":   `[{"op":"test","path":"/spec/roles/1/replicas","value":7},{"op":"add","path":"/spec/roles/1/replicas","value":9}]`,
		"nothing there":    `[{"op":"test","path":"/spec/roles/5/name","value":"server"},{"op":"add","path":"/spec/roles/5/replicas","value":9}]`,
		"beyond the range": `[{"op":"add","path":"/spec/roles/1/replicas","value":1025}]`,
	} {
		err := api.Patch(t.Context(), md.DeepCopy(), client.RawPatch("application/json-patch+json", []byte(patch)))
		require.True(t, apierrors.IsInvalid(err), "%s: %v", what, err)
	}
	require.Equal(t, md.Spec, read(t, md).Spec)
}

func TestFinalizersAreRemovedWithNothingOfLastcallRunning(t *testing.T) {
	other := "example.com/other"
	held, both, free := givenUp(t, names.Finalizer), givenUp(t, names.Finalizer, other), givenUp(t)
	for _, md := range []*v1alpha1.ModelDeployment{held, both} {
		require.NoError(t, api.Delete(t.Context(), md))
		require.NotNil(t, read(t, md).DeletionTimestamp)
	}
	said := kubectlLastcall(t, "explain", "chat", "-n", held.Namespace)
	assert.Contains(t, said, "kubectl lastcall finalizers chat -n "+held.Namespace+" --remove")
	list := kubectlLastcall(t, "finalizers", "-A")
	assert.Contains(t, list, held.Namespace)
	assert.NotContains(t, list, free.Namespace)

	kubectlLastcall(t, "finalizers", "chat", "-n", held.Namespace, "--remove")
	require.True(t, apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKeyFromObject(held), held)))
	said = kubectlLastcall(t, "finalizers", "-n", both.Namespace, "--all", "--remove")
	assert.Contains(t, said, other+" still holds it")
	require.Equal(t, []string{other}, read(t, both).Finalizers)
}
