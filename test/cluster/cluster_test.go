package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
)

// name keeps the test apart from a cluster that someone uses.
const name = "lifecycle"

// The whole life of a cluster: up, used, killed, up again, shared, down without a trace.
func TestClusterLifeCycle(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	before := machine(t)
	up(ctx, t)
	t.Cleanup(func() { assert.NoError(t, run(context.WithoutCancel(ctx), name, "down", nil)) })
	use(ctx, t)

	first := processes(t)
	require.NotEmpty(t, first)
	up(ctx, t)
	assert.Subset(t, processes(t), first, "up leaves a cluster that is up as it is")
	shared(ctx, t)()
	_, err := node.Find(ctx, name)
	require.NoError(t, err, "what came up by hand stays when a suite has done with it")

	for pid := range first {
		_ = syscall.Kill(pid, syscall.SIGKILL) // some end by themselves when their parent does
	}
	_, err = node.Find(ctx, name)
	var notRunning *node.NotRunningError
	require.ErrorAs(t, err, &notRunning)

	releaseFirst, releaseSecond := shared(ctx, t), shared(ctx, t)
	releaseFirst()
	use(ctx, t)
	second := processes(t)
	releaseSecond()

	assert.Empty(t, processes(t), "processes left")
	for pid, started := range second {
		assert.NotEqual(t, started, processStart(pid), "process %d is left", pid)
	}
	assert.Equal(t, before, machine(t), "the machine is as it was")
	assert.NoDirExists(t, filepath.Dir(node.KubeconfigPath(name)))
	require.NoError(t, run(ctx, name, "down", nil), "down of what is not there")
}

// shared uses the cluster as a suite does.
func shared(ctx context.Context, t *testing.T) (release func()) {
	t.Helper()
	_, done, err := node.Use(ctx, name, os.Stderr)
	require.NoError(t, err)
	return func() { require.NoError(t, done()) }
}

func up(ctx context.Context, t *testing.T) {
	t.Helper()
	started := time.Now()
	err := run(ctx, name, "up", nil)
	if unavailable := (*node.UnavailableError)(nil); errors.As(err, &unavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Logf("up took %.1f s", time.Since(started).Seconds())
}

const manifests = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: web
    image: example.com/web:v1
    lifecycle: {preStop: {exec: {command: [sh, -c, "echo leaving >/proc/1/fd/1; sleep 0.2"]}}}
    readinessProbe: {httpGet: {path: /index.html, port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// use does what suites do with a cluster: an image, a Pod, a Service, exec, logs, events, a delete.
func use(ctx context.Context, t *testing.T) {
	t.Helper()
	require.NoError(t, run(ctx, name, "load", []string{webImage(t)}))
	c, err := kube.Connect(ctx, node.KubeconfigPath(name))
	require.NoError(t, err)
	namespace, err := c.CreateNamespace(ctx, "life", nil)
	require.NoError(t, err)
	pod := client.ObjectKey{Namespace: namespace, Name: "web"}
	require.NoError(t, c.Apply(ctx, namespace, manifests))
	_, err = c.WaitPod(ctx, pod, kube.Ready)
	require.NoError(t, err)
	log, err := c.Follow(ctx, pod, "web")
	require.NoError(t, err)

	var service corev1.Service
	require.NoError(t, c.Client.Get(ctx, pod, &service))
	assert.Equal(t, "hello", fetch(ctx, t, "http://"+service.Spec.ClusterIP), "the Service, from the machine")
	output, err := c.Exec(ctx, pod, "web", "wget", "-qO-", "http://"+service.Spec.ClusterIP)
	require.NoError(t, err)
	assert.Equal(t, "hello", output, "the Service, from a Pod")
	_, err = c.Exec(ctx, pod, "web", "sh", "-c", "echo cause >&2; exit 3")
	assert.ErrorContains(t, err, "exit code 3: cause")
	printed, err := c.Kubectl(ctx, "get", "pods", "--namespace", namespace, "--output=name")
	require.NoError(t, err)
	assert.Equal(t, "pod/web\n", printed)

	accepted, ending, err := c.Delete(ctx, pod)
	require.NoError(t, err)
	assert.True(t, ending.Gone.After(accepted))
	require.Len(t, ending.Pod.Status.ContainerStatuses, 1)
	assert.NotNil(t, ending.Pod.Status.ContainerStatuses[0].State.Terminated)
	lines, err := log.All(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, lines)
	last := lines[len(lines)-1]
	assert.Equal(t, "leaving", last.Text)
	assert.WithinRange(t, last.Time, accepted.Add(-time.Second), ending.Gone)
	events, err := c.Events(ctx, pod)
	require.NoError(t, err)
	assert.True(t, slices.ContainsFunc(events, func(e corev1.Event) bool { return e.Reason == "Killing" }))
}

func webImage(t *testing.T) string {
	busybox, err := exec.LookPath("busybox")
	require.NoError(t, err)
	image, err := ociimage.Build(ociimage.Spec{
		Files: []ociimage.File{
			{Path: "/bin/busybox", Source: busybox},
			{Path: "/bin/sh", Link: "busybox"},
			{Path: "/bin/sleep", Link: "busybox"},
			{Path: "/bin/wget", Link: "busybox"},
			{Path: "/www/index.html", Data: []byte("hello")},
		},
		Entrypoint: []string{"/bin/busybox", "httpd", "-f", "-p", "80", "-h", "/www"},
	})
	require.NoError(t, err)
	archive := filepath.Join(t.TempDir(), "web.tar")
	require.NoError(t, ociimage.WriteTar(archive, "example.com/web:v1", image))
	return archive
}

func fetch(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	output, err := get(ctx, url)
	for err != nil && ctx.Err() == nil { // until kube-proxy has the Service
		time.Sleep(50 * time.Millisecond)
		output, err = get(ctx, url)
	}
	require.NoError(t, err)
	return output
}

// machine is what a cluster could leave behind on it, as text for a comparison.
func machine(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	read := func(what, file string) {
		content, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		found[what] = string(content)
	}
	read("mounts", "/proc/self/mounts")
	read("panic setting", "/proc/sys/kernel/panic")
	read("overcommit setting", "/proc/sys/vm/overcommit_memory")
	read("forwarding setting", "/proc/sys/net/ipv4/ip_forward")
	read("connection limit", "/proc/sys/net/netfilter/nf_conntrack_max")
	for what, argv := range map[string][]string{
		"named network namespaces": {"ip", "netns", "list"},
		"routes":                   {"ip", "route", "show", "table", "all"},
		"firewall":                 {"iptables-save"},
	} {
		if output, err := exec.Command(argv[0], argv[1:]...).Output(); err == nil {
			found[what] = string(output)
		}
	}
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, each := range interfaces {
		found["interfaces"] += each.Name + " "
	}
	cgroups, err := filepath.Glob("/sys/fs/cgroup/lastcall-" + name + "*")
	require.NoError(t, err)
	v1, err := filepath.Glob("/sys/fs/cgroup/*/lastcall-" + name + "*")
	require.NoError(t, err)
	found["cgroups"] = strings.Join(append(cgroups, v1...), " ")
	return found
}

// processes finds the cluster's processes, with their start times, by all they could be known by: their cgroup, their
// command line and the mounts they see.
func processes(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	folders, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		require.NoError(t, err)
		for file, mark := range map[string]string{
			"cgroup":    "lastcall-" + name,
			"cmdline":   "/var/lib/lastcall/" + name + "/",
			"mountinfo": "/var/lib/lastcall/" + name + "/",
		} {
			content, err := os.ReadFile(filepath.Join(folder, file))
			if err != nil || pid == os.Getpid() || !strings.Contains(string(content), mark) {
				continue
			}
			if started := processStart(pid); started != "" {
				found[pid] = started
			}
		}
	}
	return found
}

// processStart tells two processes with the same id apart; it is "" for one that has ended.
func processStart(pid int) string {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
