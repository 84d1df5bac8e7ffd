// Package kubetest lets the tests of a package share one cluster.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/node"
)

var shared struct {
	open  sync.Once
	c     *kube.Cluster
	close func() error
	err   error
}

// Run runs the tests of a package, then what they leave to be done last, and then takes down the cluster, if it was for
// them that it came up:
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Run(m)) }
func Run(m *testing.M, last ...func() error) int {
	code := m.Run()
	if shared.close == nil {
		return code
	}
	for _, do := range append(last, shared.close) {
		if err := do(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// Connect returns the cluster of this package's tests, see kube.Open. The test is skipped, with the reason, where no
// cluster can run for want of root, and fails when one should have come up. The package needs a TestMain with Run.
func Connect(t testing.TB) *kube.Cluster {
	t.Helper()
	shared.open.Do(func() { shared.c, shared.close, shared.err = kube.Open(context.WithoutCancel(t.Context()), os.Stderr) })
	if unavailable := (*node.UnavailableError)(nil); errors.As(shared.err, &unavailable) && os.Geteuid() != 0 {
		t.Skip(unavailable)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.c
}

// Namespace makes a namespace for the test and deletes it afterwards. When the test fails, its log gets the Pods and
// events there.
func Namespace(t testing.TB, c *kube.Cluster, labels map[string]string) string {
	t.Helper()
	name, err := c.CreateNamespace(t.Context(), prefix(t.Name()), labels)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		if t.Failed() {
			t.Log(describe(ctx, c, name))
		}
		if err := c.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Errorf("deleting namespace %s: %v", name, err)
		}
	})
	return name
}

// prefix makes a test's name the start of a namespace's.
func prefix(test string) string {
	const limit = 50 // the API server adds to it
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, strings.TrimPrefix(test, "Test"))
	return strings.Trim(name[:min(len(name), limit)], "-")
}

func describe(ctx context.Context, c *kube.Cluster, namespace string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Pods and events of namespace %s:\n", namespace)
	var pods corev1.PodList
	var events corev1.EventList
	for _, list := range []client.ObjectList{&pods, &events} {
		if err := c.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(&text, "  Pod %s: %s, ready %t, deleted %v\n", pod.Name, pod.Status.Phase, kube.Ready(&pod), pod.DeletionTimestamp)
	}
	for _, event := range events.Items {
		fmt.Fprintf(&text, "  %s %s %s: %s: %s\n", event.LastTimestamp.Format(time.TimeOnly),
			event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
	return text.String()
}
