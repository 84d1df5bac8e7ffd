package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
)

// TestReadmeCommands runs the README's kubectl commands as they are written, in
// a shell that finds kubectl and its plugin: a namespace is opted in, a Pod
// created in it, and what was done to it looked at; then the example of a
// ModelDeployment is applied and looked at.
func TestReadmeCommands(t *testing.T) {
	c := cluster(t)
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	require.NoError(t, c.Client.Create(t.Context(), team))
	t.Cleanup(func() { require.NoError(t, c.Client.Delete(context.WithoutCancel(t.Context()), team)) })

	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	command := func(start string) string {
		found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(start) + `[^#\n]*`).FindString(string(readme))
		require.NotEmpty(t, found, "the README has no command that starts with %q", start)
		return found
	}

	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "github.com/lastcall-dev/lastcall/cmd/kubectl-lastcall")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	programs, err := binaries.Provide(t.Context(), os.Stderr, binaries.Kubectl)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "deployment.yaml"), []byte(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: qwen}
spec:
  template:
    spec:
      containers:
      - {name: engine, image: vllm/vllm-openai, args: [Qwen/Qwen2.5-7B-Instruct]}
`), 0o644))
	shell := func(line string) string {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "PATH="+strings.Join([]string{dir, programs, os.Getenv("PATH")}, ":"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
		return string(out)
	}

	shell(command("kubectl label namespace team-a"))
	pod := vllm(30)
	pod.Name = "qwen-0"
	start(t, c, team.Name, pod)
	require.Contains(t, shell(command("kubectl get pod qwen-0")+" --namespace team-a"), `"outcome":"injected"`)
	require.Contains(t, shell(command("kubectl lastcall inject")), "preStop")

	playable(t, dir, "examples/vllm.yaml")
	require.Contains(t, shell(command("kubectl apply -f examples/vllm.yaml")+" --namespace team-a"), "created")
	(&deployment{c, client.ObjectKey{Namespace: team.Name, Name: "qwen"}}).ready(t)
	require.Regexp(t, `(?m)^qwen +Ready +2S `, shell(command("kubectl get md")+" --namespace team-a"))
	require.Contains(t, shell(command("kubectl lastcall status qwen")+" --namespace team-a"), "ModelDeployment/qwen: Ready")
}

// playable copies an example into dir, for a node that has neither the engine's
// image nor accelerators: the stand-in takes its place.
func playable(t *testing.T, dir, example string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", example))
	require.NoError(t, err)
	md := &v1alpha1.ModelDeployment{}
	require.NoError(t, yaml.UnmarshalStrict(text, md))
	md.Spec.Engine.Image = bundle.Full.Ref
	for i := range md.Spec.Roles {
		md.Spec.Roles[i].Resources = corev1.ResourceRequirements{}
	}
	text, err = yaml.Marshal(md)
	require.NoError(t, err)
	file := filepath.Join(dir, example)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, text, 0o644))
}
