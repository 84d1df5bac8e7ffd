package envtest

import (
	"compress/gzip"
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// Kueue's finalizers.
const (
	holdsPod      = names.LabelKueueManaged
	holdsWorkload = names.KueueGroup + "/resource-in-use"
)

// queuedRole is a role whose Pods Kueue has taken over, as its webhook would say.
func queuedRole(name string, replicas, size int32) v1alpha1.Role {
	r := role(name, replicas, size)
	r.Labels = map[string]string{names.LabelKueueQueue: "gpus", names.LabelKueueManaged: names.KueueManaged}
	return r
}

// ask takes down a request for Workloads, and reports whether it is one.
func (s *retirement) ask(verb string, object runtime.Object, name string) bool {
	is := object.GetObjectKind().GroupVersionKind().Group == names.KueueGroup
	if is {
		s.asked = append(s.asked, verb+" "+name)
	}
	return is
}

// mayDeleteWorkload checks a delete that is about to be sent: it is of what was bound,
// and every member's own was accepted.
func (s *retirement) mayDeleteWorkload(name string, uid types.UID) {
	for _, pod := range s.pods() {
		if pod.Labels[names.LabelKueueGroup] == name && pod.DeletionTimestamp == nil {
			s.wrong = append(s.wrong, name+" is deleted, and "+pod.Name+" stays")
		}
	}
	if md := s.md(); md != nil && md.Status.Retirement != nil {
		for _, t := range md.Status.Retirement.Targets {
			if t.Workload != nil && t.Workload.Name == name && (t.Workload.UID != uid || t.State != v1alpha1.StateSettling) {
				s.wrong = append(s.wrong, name+" is deleted in "+string(t.State))
			}
		}
	}
}

func workloadObject(namespace, name string) *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetAPIVersion(names.KueueGroup + "/v1beta2")
	w.SetKind("Workload")
	w.SetNamespace(namespace)
	w.SetName(name)
	return w
}

// queue makes a Workload for these Pods, as Kueue would, and holds them.
func (s *retirement) queue(name string, labels map[string]string, pods ...string) types.UID {
	s.Helper()
	ctx := context.Background()
	w := workloadObject(s.Namespace, name)
	w.SetLabels(labels)
	w.SetFinalizers([]string{holdsWorkload})
	var owners []metav1.OwnerReference
	for _, pod := range s.pods() {
		if !slices.Contains(pods, pod.Name) {
			continue
		}
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})
		pod.Finalizers = []string{holdsPod}
		require.NoError(s, s.api.Update(ctx, &pod))
	}
	require.Len(s, owners, len(pods))
	w.SetOwnerReferences(owners)
	container := map[string]any{"name": "main", "image": "vllm"}
	require.NoError(s, unstructured.SetNestedSlice(w.Object, []any{map[string]any{
		"name": "main", "count": int64(len(pods)), "template": map[string]any{"spec": map[string]any{"containers": []any{container}}},
	}}, "spec", "podSets"))
	require.NoError(s, s.api.Create(ctx, w))
	return w.GetUID()
}

// workload is the UID of one; empty where there is none.
func (s *retirement) workload(name string) types.UID {
	s.Helper()
	w := workloadObject(s.Namespace, name)
	err := s.api.Get(context.Background(), client.ObjectKeyFromObject(w), w)
	require.NoError(s, client.IgnoreNotFound(err))
	return w.GetUID()
}

// kueue does what Kueue does about a Workload that is deleted: it deletes what stays of
// its Pods, lets go of all of them, and then of the Workload.
func (s *retirement) kueue(name string) {
	s.Helper()
	ctx := context.Background()
	w := workloadObject(s.Namespace, name)
	err := s.api.Get(ctx, client.ObjectKeyFromObject(w), w)
	if apierrors.IsNotFound(err) || w.GetDeletionTimestamp() == nil {
		require.NoError(s, client.IgnoreNotFound(err))
		return
	}
	for _, owner := range w.GetOwnerReferences() {
		pod := &corev1.Pod{}
		err := s.api.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: owner.Name}, pod)
		if apierrors.IsNotFound(err) || pod.UID != owner.UID {
			continue
		}
		require.NoError(s, err)
		pod.Finalizers = nil
		require.NoError(s, s.api.Update(ctx, pod))
	}
	w.SetFinalizers(nil)
	require.NoError(s, s.api.Update(ctx, w))
}

// served lets time pass until something holds, and Kueue work meanwhile.
func (s *retirement) served(within time.Duration, holds func() bool) {
	s.Helper()
	s.until(within, func() bool {
		s.kueue("chat-pair-0")
		return holds()
	})
}

// installWorkloads installs the CRD of Kueue v0.17.0.
func installWorkloads(t *testing.T) {
	t.Helper()
	file, err := os.Open("testdata/kueue-workloads-v0.17.0.yaml.gz")
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	text, err := gzip.NewReader(file)
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(text, 4096).Decode(crd))
	options := envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}
	_, err = envtest.InstallCRDs(config, options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, envtest.UninstallCRDs(config, options)) })
}

// TestKueue is one test because the API server has Kueue's kinds in a part of it only.
func TestKueue(t *testing.T) {
	token := tokenOf(t, installAccess(t, "retirer/rbac.yaml"))
	pair := []v1alpha1.Role{queuedRole("pair", 1, 2)}
	t.Run("a cluster that has no Kueue any more has no Workload", func(t *testing.T) {
		onRetirement(t, token, pair, func(s *retirement) {
			s.scale(0)
			s.until(time.Minute, s.ended)
			assert.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1"}, s.deleted)
			assert.NotEmpty(s, s.asked)
			assert.Equal(s, names.RetireIdle, s.md().Status.LastRetirement.Reason)
		})
	})
	installWorkloads(t)

	t.Run("nobody asks for one where Kueue has taken over nothing", func(t *testing.T) {
		onRetirement(t, token, []v1alpha1.Role{role("pair", 1, 2)}, func(s *retirement) {
			s.scale(0)
			s.until(time.Minute, s.ended)
			assert.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1"}, s.deleted)
			assert.Empty(s, s.asked)
		})
	})
	t.Run("it is bound, and goes after its Pods", func(t *testing.T) {
		onRetirement(t, token, pair, func(s *retirement) {
			uid := s.queue("chat-pair-0", nil, "chat-pair-0-0", "chat-pair-0-1")
			s.scale(0)
			s.turn(time.Second)
			require.Equal(s, v1alpha1.StateAdmitted, s.state())
			assert.Equal(s, &v1alpha1.RetirementWorkload{Name: "chat-pair-0", UID: uid}, s.md().Status.Retirement.Targets[0].Workload)
			s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateSettling })
			s.pass(2 * leavingTakes)
			assert.Equal(s, []string{"chat-pair-0-0 withdrawn leaving", "chat-pair-0-1 withdrawn leaving"}, s.present(), "Kueue holds them")
			s.served(time.Minute, s.ended)
			assert.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1", "Workload chat-pair-0"}, s.deleted)
			assert.Empty(s, s.workload("chat-pair-0"))
			assert.Empty(s, s.present())
			assert.Equal(s, names.RetireIdle, s.md().Status.LastRetirement.Reason)
		})
	})
	t.Run("that of a single Pod too", func(t *testing.T) {
		onRetirement(t, token, []v1alpha1.Role{queuedRole("server", 1, 1)}, func(s *retirement) {
			uid := s.queue("pod-chat-server-0-1a2b3", map[string]string{names.LabelKueueOwner: string(s.uids["chat-server-0"])}, "chat-server-0")
			s.scale(0)
			s.turn(time.Second)
			assert.Equal(s, &v1alpha1.RetirementWorkload{Name: "pod-chat-server-0-1a2b3", UID: uid}, s.md().Status.Retirement.Targets[0].Workload)
			s.until(time.Minute, func() bool {
				s.kueue("pod-chat-server-0-1a2b3")
				return s.ended()
			})
			assert.Equal(s, []string{"chat-server-0", "Workload pod-chat-server-0-1a2b3"}, s.deleted)
		})
	})
	t.Run("what is given up keeps it", func(t *testing.T) {
		onRetirement(t, token, pair, func(s *retirement) {
			s.engine("chat-pair-0-0", busyEngine)
			uid := s.queue("chat-pair-0", nil, "chat-pair-0-0", "chat-pair-0-1")
			s.scale(0)
			s.served(budgetsOver, func() bool { return s.state() == v1alpha1.StateAborted })
			s.pass(time.Minute)
			assert.Equal(s, uid, s.workload("chat-pair-0"))
			assert.Empty(s, s.deleted)
			assert.Equal(s, uid, s.md().Status.Retirement.Targets[0].Workload.UID)
			s.engine("chat-pair-0-0", idleEngine)
			s.edit(func(md *v1alpha1.ModelDeployment) {
				md.Annotations = map[string]string{names.AnnotationRetryRetirement: "now"}
			})
			s.served(time.Minute, s.ended)
			assert.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1", "Workload chat-pair-0"}, s.deleted)
		})
	})
	t.Run("what is wanted again keeps it", func(t *testing.T) {
		onRetirement(t, token, pair, func(s *retirement) {
			uid := s.queue("chat-pair-0", nil, "chat-pair-0-0", "chat-pair-0-1")
			s.scale(0)
			s.served(time.Minute, func() bool { return s.state() == v1alpha1.StateDraining })
			s.scale(1)
			s.served(time.Minute, s.ended)
			s.pass(time.Minute)
			assert.Equal(s, uid, s.workload("chat-pair-0"))
			assert.Empty(s, s.deleted)
		})
	})
	t.Run("another one of its name is not touched", func(t *testing.T) {
		onRetirement(t, token, pair, func(s *retirement) {
			first := s.queue("chat-pair-0", nil, "chat-pair-0-0", "chat-pair-0-1")
			s.scale(0)
			s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateDraining })
			w := workloadObject(s.Namespace, "chat-pair-0")
			require.NoError(s, s.api.Get(context.Background(), client.ObjectKeyFromObject(w), w))
			w.SetFinalizers(nil)
			require.NoError(s, s.api.Update(context.Background(), w))
			require.NoError(s, s.api.Delete(context.Background(), w))
			second := s.queue("chat-pair-0", nil, "chat-pair-0-0", "chat-pair-0-1")
			require.NotEqual(s, first, second)
			s.until(time.Minute, func() bool { return s.state() == v1alpha1.StateSettling })
			s.pass(45 * time.Second)
			require.Equal(s, v1alpha1.StateSettling, s.state())
			assert.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1"}, s.deleted)
			assert.Equal(s, second, s.workload("chat-pair-0"))

			// After it, nothing is left of its Pods but that Kueue holds them.
			s.served(time.Minute, s.ended)
			assert.Equal(s, names.RetireSettlingOverran, s.md().Status.LastRetirement.Reason)
			assert.Equal(s, []string{"chat-pair-0-0", "chat-pair-0-1", "Workload chat-pair-0"}, s.deleted)
		})
	})
	t.Run("of Pods that a rollout deletes it goes when they have ended", func(t *testing.T) {
		onRetirement(t, token, pair, func(s *retirement) {
			uid := s.queue("chat-pair-0", nil, "chat-pair-0-0", "chat-pair-0-1")
			for _, pod := range s.pods() {
				require.NoError(s, s.api.Delete(context.Background(), &pod))
			}
			s.pass(10 * time.Second)
			assert.Equal(s, uid, s.workload("chat-pair-0"), "they may be working still")
			for _, pod := range s.pods() {
				pod.Status.Phase = corev1.PodFailed
				require.NoError(s, s.api.Status().Update(context.Background(), &pod))
			}
			s.served(time.Minute, func() bool { return len(s.present()) == 0 })
			assert.Equal(s, []string{"Workload chat-pair-0"}, s.deleted)
		})
	})
}
