package retirer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// queue is an API server that has Workloads in some versions, and nothing else.
type queue struct {
	client.Client
	versions  []string
	workloads []metav1.PartialObjectMetadata
	fail      error
	requests  []string
}

func (q *queue) ask(what string, kind schema.GroupVersionKind, name string) error {
	q.requests = append(q.requests, fmt.Sprintf("%s %s %s", what, kind.Version, name))
	switch {
	case kind.Group != "kueue.x-k8s.io" || !slices.Contains(q.versions, kind.Version):
		return fmt.Errorf("mapping: %w", &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}})
	case q.fail != nil:
		return q.fail
	}
	return nil
}

func (q *queue) Get(_ context.Context, key types.NamespacedName, into client.Object, _ ...client.GetOption) error {
	if err := q.ask("get", into.GetObjectKind().GroupVersionKind(), key.Name); err != nil {
		return err
	}
	for _, w := range q.workloads {
		if w.Name == key.Name && w.Namespace == key.Namespace {
			w.DeepCopyInto(into.(*metav1.PartialObjectMetadata))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (q *queue) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	if err := q.ask("list", into.GetObjectKind().GroupVersionKind(), o.LabelSelector.String()); err != nil {
		return err
	}
	for _, w := range q.workloads {
		if w.Namespace == o.Namespace && o.LabelSelector.Matches(labelsOf{ObjectMeta: w.ObjectMeta}) {
			all := into.(*metav1.PartialObjectMetadataList)
			all.Items = append(all.Items, w)
		}
	}
	return nil
}

func (q *queue) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	only := fmt.Sprintf("%s %s@%s", object.GetName(), *o.Preconditions.UID, *o.Preconditions.ResourceVersion)
	return q.ask("delete", object.GetObjectKind().GroupVersionKind(), only)
}

// workloadOfPods is one with these Pods for owners, by name and UID.
func workloadOfPods(name string, owners ...string) metav1.PartialObjectMetadata {
	w := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "serving", Name: name, UID: "w", ResourceVersion: "5"}}
	for i := 0; i < len(owners); i += 2 {
		w.OwnerReferences = append(w.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: owners[i], UID: types.UID(owners[i+1])})
	}
	return w
}

// queuedSeen is a replica of two Pods that Kueue has taken over as one group, and that
// is not wanted any more.
func queuedSeen(change ...func(*corev1.Pod)) *seen {
	s := &seen{
		deployment: &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "serving", Name: "chat"}},
		spec:       retire.Spec{Wanted: map[string]int32{"server": 1}},
		pods:       map[types.UID]*corev1.Pod{},
	}
	for _, name := range []string{"0", "1"} {
		s.add(member(append([]func(*corev1.Pod){func(p *corev1.Pod) {
			p.Name, p.UID = "chat-server-1-"+name, types.UID("u"+name)
			p.Labels[names.LabelKueueManaged], p.Labels[names.LabelKueueGroup] = names.KueueManaged, "chat-server-1"
		}}, change...)...), false)
	}
	return s
}

func leaves(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }

// single makes a replica one Pod in no group.
func single(s *seen) {
	s.observations.Replicas[0].Members = s.observations.Replicas[0].Members[:1]
	for _, pod := range s.pods {
		delete(pod.Labels, names.LabelKueueGroup)
	}
}

func retiringWith(workload *v1alpha1.RetirementWorkload) func(*seen) {
	return func(s *seen) {
		s.deployment.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{{
			Role: "server", Ordinal: 1, State: v1alpha1.StateSettling, Workload: workload,
		}}}
	}
}

func TestTheWorkloadOfAReplicaIsLookedUp(t *testing.T) {
	mine := workloadOfPods("chat-server-1", "chat-server-1-0", "u0", "chat-server-1-1", "u1")
	found := &retire.Workload{Name: "chat-server-1", UID: "w", ResourceVersion: "5"}
	isGoing := mine
	isGoing.DeletionTimestamp = new(metav1.Now())
	ofOnePod := workloadOfPods("pod-chat-server-1-0-12345", "chat-server-1-0", "u0")
	ofOnePod.Labels = map[string]string{names.LabelKueueOwner: "u0"}
	asked := []string{"get v1beta2 chat-server-1"}
	for what, tc := range map[string]struct {
		pods     func(*corev1.Pod)
		change   func(*seen)
		cached   bool
		has      *metav1.PartialObjectMetadata
		versions []string
		fail     error
		want     *retire.Workload
		unknown  bool
		requests []string
	}{
		"before it is bound": {has: &mine, want: found, requests: asked},
		"of an older Kueue":  {has: &mine, versions: []string{"v1beta1"}, want: found, requests: []string{"get v1beta2 chat-server-1", "get v1beta1 chat-server-1"}},
		"not where Kueue has taken over nothing": {
			has: &mine, change: func(s *seen) {
				delete(s.pods["u0"].Labels, names.LabelKueueManaged)
				delete(s.pods["u1"].Labels, names.LabelKueueManaged)
			},
		},
		"not for what stays":                 {has: &mine, change: func(s *seen) { s.spec.Wanted["server"] = 2 }},
		"not by what a cache says":           {has: &mine, cached: true},
		"not again once it is bound":         {has: &mine, change: retiringWith(&v1alpha1.RetirementWorkload{Name: "chat-server-1", UID: "w"})},
		"when nothing stays of what is kept": {has: &mine, pods: leaves, cached: true, change: func(s *seen) { s.spec.Wanted["server"] = 2 }, want: found, requests: asked},
		"until it is gone": {
			has: &mine, pods: leaves, cached: true, change: retiringWith(&v1alpha1.RetirementWorkload{Name: "chat-server-1", UID: "w"}), want: found, requests: asked,
		},
		"as one that Kueue lets go already": {has: &isGoing, pods: leaves, requests: asked},
		"where there is none":               {requests: []string{"get v1beta2 chat-server-1", "get v1beta1 chat-server-1"}},
		"where there is no Kueue any more":  {versions: []string{""}, requests: []string{"get v1beta2 chat-server-1", "get v1beta1 chat-server-1"}},
		"where it cannot be read":           {fail: errors.New("the conversion webhook does not answer"), unknown: true, requests: asked},
		"with an owner that is gone and was of the slot": {
			has: new(workloadOfPods("chat-server-1", "chat-server-1-0", "u0", "chat-server-1-1", "gone")), want: found, requests: asked,
		},
		"not as one of other Pods too":    {has: new(workloadOfPods("chat-server-1", "chat-server-1-0", "u0", "chat-server-0-0", "u2")), requests: asked},
		"not as one of a Job too":         {has: new(workloadOfPods("chat-server-1", "chat-server-1-0", "u0", "train", "j")), requests: asked},
		"not as one of earlier Pods":      {has: new(workloadOfPods("chat-server-1", "chat-server-1-0", "gone")), requests: asked},
		"not as one that nobody owns":     {has: new(workloadOfPods("chat-server-1")), requests: asked},
		"of a single Pod, by its label":   {has: &ofOnePod, change: single, want: &retire.Workload{Name: ofOnePod.Name, UID: "w", ResourceVersion: "5"}, requests: []string{"list v1beta2 kueue.x-k8s.io/job-uid=u0"}},
		"not of a single Pod that leaves": {has: &ofOnePod, pods: leaves, change: single},
		"of a single Pod that leaves, by its name where it is bound": {
			has: &ofOnePod, pods: leaves, change: func(s *seen) {
				single(s)
				retiringWith(&v1alpha1.RetirementWorkload{Name: ofOnePod.Name, UID: "w"})(s)
			},
			want: &retire.Workload{Name: ofOnePod.Name, UID: "w", ResourceVersion: "5"}, requests: []string{"get v1beta2 " + ofOnePod.Name},
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := queuedSeen(func(p *corev1.Pod) {
				if tc.pods != nil {
					tc.pods(p)
				}
			})
			if tc.change != nil {
				tc.change(s)
			}
			q := &queue{versions: []string{"v1beta2", "v1beta1"}, fail: tc.fail}
			if tc.versions != nil {
				q.versions = tc.versions
			}
			if tc.has != nil {
				q.workloads = append(q.workloads, *tc.has)
			}
			r := &Reconciler{Client: q, Live: q}
			r.gatherWorkloads(t.Context(), !tc.cached, s)
			require.Len(t, s.observations.Replicas, 1)
			assert.Equal(t, tc.want, s.observations.Replicas[0].Workload)
			assert.Equal(t, tc.unknown, s.observations.Replicas[0].WorkloadUnknown)
			assert.Equal(t, tc.requests, q.requests)
		})
	}
}

func TestAWorkloadIsDeletedAsItWasSeen(t *testing.T) {
	s, a := queuedSeen(), retire.DeleteWorkload{Workload: retire.Workload{Name: "chat-server-1", UID: "w", ResourceVersion: "5"}}
	conflict := apierrors.NewConflict(schema.GroupResource{}, "chat-server-1", errors.New("it has changed"))
	for what, tc := range map[string]struct {
		versions []string
		fail     error
		requests []string
	}{
		"in the newest version": {versions: []string{"v1beta1", "v1beta2"}, requests: []string{"delete v1beta2 chat-server-1 w@5"}},
		"in an older one":       {versions: []string{"v1beta1"}, requests: []string{"delete v1beta2 chat-server-1 w@5", "delete v1beta1 chat-server-1 w@5"}},
		"or said not to be":     {versions: []string{"v1beta2"}, fail: conflict, requests: []string{"delete v1beta2 chat-server-1 w@5"}},
	} {
		t.Run(what, func(t *testing.T) {
			q := &queue{versions: tc.versions, fail: tc.fail}
			err := (&Reconciler{Client: q}).do(t.Context(), s, a)
			assert.ErrorIs(t, err, tc.fail)
			assert.Equal(t, tc.requests, q.requests)
		})
	}
}
