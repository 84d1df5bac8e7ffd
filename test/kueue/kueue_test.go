package kueue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/cluster/kubetest"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
)

// patience is how long a test waits for anything.
const patience = 4 * time.Minute

// deployment is a ModelDeployment whose Pods Kueue admits.
type deployment struct {
	*testing.T
	cluster *kube.Cluster
	key     client.ObjectKey
}

func role(name string, replicas, size int32) v1alpha1.Role {
	return v1alpha1.Role{
		Name: name, Replicas: &replicas, Size: &size, TerminationGracePeriodSeconds: new(int64(15)),
		Labels:    map[string]string{names.LabelKueueQueue: "gpus"},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
	}
}

func (d *deployment) read() *v1alpha1.ModelDeployment {
	d.Helper()
	md := &v1alpha1.ModelDeployment{}
	err := d.cluster.Client.Get(d.Context(), d.key, md)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(d, err)
	return md
}

func (d *deployment) edit(change func(spec *v1alpha1.ModelDeploymentSpec)) {
	d.Helper()
	md := d.read()
	before := md.DeepCopy()
	change(&md.Spec)
	require.NoError(d, d.cluster.Client.Patch(d.Context(), md, client.MergeFrom(before)))
}

// until waits until nothing is missing any more.
func (d *deployment) until(missing func() string) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	for {
		what := missing()
		if what == "" {
			return
		}
		select {
		case <-ctx.Done():
			d.Fatalf("after %s: %s\n%+v\n%v\n%v", patience, what, d.read(), d.pods(), d.workloads())
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (d *deployment) ready() {
	d.Helper()
	d.until(func() string {
		md := d.read()
		progress := meta.FindStatusCondition(md.Status.Conditions, names.ConditionProgressing)
		if md.Status.ObservedGeneration != md.Generation || md.Status.Phase != v1alpha1.PhaseReady || progress.Reason != names.ReasonUpToDate {
			return "it is not Ready"
		}
		return ""
	})
}

// retired waits for the end of the retirement that the present spec asks for.
func (d *deployment) retired() *v1alpha1.LastRetirement {
	d.Helper()
	d.until(func() string {
		md := d.read()
		if last := md.Status.LastRetirement; last == nil || last.Generation != md.Generation || md.Status.Retirement != nil {
			return "it retires nothing, or still does"
		}
		return ""
	})
	return d.read().Status.LastRetirement
}

// pods are its Pods by name.
func (d *deployment) pods() map[string]types.UID {
	d.Helper()
	var list corev1.PodList
	require.NoError(d, d.cluster.Client.List(d.Context(), &list, client.InNamespace(d.key.Namespace)))
	all := map[string]types.UID{}
	for _, pod := range list.Items {
		all[pod.Name] = pod.UID
	}
	return all
}

// workload is what Kueue says of one.
type workload struct {
	uid      types.UID
	admitted bool
	owners   []string
}

// workloads are Kueue's by name; of a group that is the replica's.
func (d *deployment) workloads() map[string]workload {
	d.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(names.KueueGroup + "/v1beta2")
	list.SetKind("WorkloadList")
	require.NoError(d, d.cluster.Client.List(d.Context(), list, client.InNamespace(d.key.Namespace)))
	all := map[string]workload{}
	for i := range list.Items {
		item := &list.Items[i]
		w := workload{uid: item.GetUID()}
		for _, owner := range item.GetOwnerReferences() {
			w.owners = append(w.owners, owner.Name)
		}
		slices.Sort(w.owners)
		conditions, _, err := unstructured.NestedSlice(item.Object, "status", "conditions")
		require.NoError(d, err)
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			w.admitted = w.admitted || condition["type"] == "Admitted" && condition["status"] == "True"
		}
		all[item.GetName()] = w
	}
	return all
}

// single is the name of the Workload of a Pod in no group.
func (d *deployment) single(pod string) string {
	d.Helper()
	for name := range d.workloads() {
		if strings.HasPrefix(name, "pod-"+pod+"-") {
			return name
		}
	}
	return ""
}

func (d *deployment) overran() (said []string) {
	d.Helper()
	var list eventsv1.EventList
	require.NoError(d, d.cluster.Client.List(d.Context(), &list, client.InNamespace(d.key.Namespace)))
	for _, e := range list.Items {
		if e.Reason == names.RetireSettlingOverran {
			said = append(said, e.Note)
		}
	}
	return said
}

// TestKueue is one story: each step begins with what the one before has left.
func TestKueue(t *testing.T) {
	c := cluster(t)
	ns := kubetest.Namespace(t, c, nil)
	_, err := c.Kubectl(t.Context(), "apply", "-n", ns, "-f", "queues.yaml")
	require.NoError(t, err)
	md := &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "qwen"}, Spec: v1alpha1.ModelDeploymentSpec{
		Model:      v1alpha1.Model{Name: "Qwen/Qwen2.5-7B-Instruct"},
		Engine:     v1alpha1.Engine{Name: v1alpha1.VLLM, Image: bundle.Full.Ref},
		Withdrawal: v1alpha1.Withdrawal{Direct: v1alpha1.DirectConnections},
		Roles:      []v1alpha1.Role{role("pair", 2, 2), role("server", 1, 1)},
	}}
	require.NoError(t, c.Client.Create(t.Context(), md))
	d := &deployment{t, c, client.ObjectKeyFromObject(md)}
	t.Cleanup(func() { // so that the namespace can go, whatever holds them
		ctx := context.WithoutCancel(t.Context())
		_ = c.Client.Delete(ctx, md)
		_ = c.Client.Patch(ctx, md, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_, err := c.Kubectl(ctx, "delete", "workloads."+names.KueueGroup, "--all", "-n", ns, "--timeout=1m")
		assert.NoError(t, err)
	})
	step := func(sentence string, do func(d *deployment)) {
		t.Run(sentence, func(t *testing.T) { do(&deployment{t, c, d.key}) })
		require.False(t, t.Failed(), "the rest begins with this")
	}

	step("each replica is admitted by a Workload of its own", func(d *deployment) {
		d.ready()
		all := d.workloads()
		require.Len(d, all, 3)
		for ordinal := range 2 {
			name := fmt.Sprintf("qwen-pair-%d", ordinal)
			assert.True(d, all[name].admitted, name)
			assert.Equal(d, []string{name + "-0", name + "-1"}, all[name].owners)
		}
		assert.True(d, all[d.single("qwen-server-0")].admitted)
	})
	step("an idle replica leaves with its Workload, and the other's is not touched", func(d *deployment) {
		pods, before := d.pods(), d.workloads()
		d.edit(func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[0].Replicas = new(int32(1)) })
		assert.Equal(d, names.RetireIdle, d.retired().Reason)
		delete(pods, "qwen-pair-1-0")
		delete(pods, "qwen-pair-1-1")
		assert.Equal(d, pods, d.pods())
		d.until(func() string {
			if len(d.workloads()) == 3 {
				return "its Workload is still there"
			}
			return ""
		})
		delete(before, "qwen-pair-1")
		assert.Equal(d, before, d.workloads())
	})
	step("what it had is free for the next, and one too many waits, and leaves unstarted", func(d *deployment) {
		d.edit(func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[0].Replicas = new(int32(2)) })
		d.ready()
		d.edit(func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[0].Replicas = new(int32(3)) })
		d.until(func() string {
			if len(d.workloads()) < 4 {
				return "qwen-pair-2 has no Workload"
			}
			return ""
		})
		assert.False(d, d.workloads()["qwen-pair-2"].admitted, "there is no room for it")
		d.edit(func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[0].Replicas = new(int32(2)) })
		assert.Equal(d, names.RetireNeverStarted, d.retired().Reason)
		d.ready()
		assert.NotContains(d, d.workloads(), "qwen-pair-2")
		assert.NotContains(d, d.pods(), "qwen-pair-2-0")
	})
	step("a rollout replaces each with its Workload", func(d *deployment) {
		pods, before := d.pods(), d.workloads()
		d.edit(func(spec *v1alpha1.ModelDeploymentSpec) {
			for i := range spec.Roles {
				spec.Roles[i].Env = []corev1.EnvVar{{Name: "ROLLED", Value: "yes"}}
			}
		})
		d.ready()
		after := d.workloads()
		assert.Len(d, after, 3)
		for name, uid := range d.pods() {
			assert.NotEqual(d, pods[name], uid, name)
		}
		for name, w := range after {
			assert.True(d, w.admitted, name)
			assert.NotEqual(d, before[name].uid, w.uid, name)
		}
	})
	step("a single Pod leaves with its own", func(d *deployment) {
		d.edit(func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[1].Replicas = new(int32(0)) })
		assert.Equal(d, names.RetireIdle, d.retired().Reason)
		assert.NotContains(d, d.pods(), "qwen-server-0")
		d.until(func() string { return d.single("qwen-server-0") })
	})
	step("a deletion leaves nothing", func(d *deployment) {
		require.NoError(d, d.cluster.Client.Delete(d.Context(), md))
		d.until(func() string {
			if left := len(d.pods()) + len(d.workloads()); d.read() != nil || left > 0 {
				return fmt.Sprintf("%d Pods and Workloads are left", left)
			}
			return ""
		})
		assert.Empty(d, d.overran())
	})
}
