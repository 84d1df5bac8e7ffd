package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/bench/controlplane"
	"github.com/lastcall-dev/lastcall/internal/render"
)

const (
	creators   = 8 // owners created at a time
	settleTime = 5 * time.Second
	settleMost = time.Minute

	role = "server" // of each ModelDeployment
)

// A contender is a controller that creates Pods for owners of a kind.
type contender struct {
	kind  string
	plane *controlplane.Plane
	pid   int
	// replicas are those of each owner.
	replicas int
	// user is who the API server takes the controller for, and status the resource
	// where it reports replicas to be Ready.
	user, status string
	// objects are an owner, the last of them, and what comes with it.
	objects func(namespace, name string) []client.Object
	list    client.ObjectList
	ready   func(client.ObjectList) int

	begin time.Time
	load  string
	// before and after its turn, and before and after the quiet minute.
	before, after, idle, settled usage
	calls, quiet                 []controlplane.Call
	// created, running and reported are how long after the first create of an owner
	// the last Pod was created, was Ready, and was reported to be.
	created, running, reported time.Duration
}

func modelDeployments(plane *controlplane.Plane, operator *controlplane.Process, replicas int) *contender {
	return &contender{
		kind: v1alpha1.Kind, plane: plane, pid: operator.PID, replicas: replicas, user: operatorUser, status: "modeldeployments/status",
		objects: func(namespace, name string) []client.Object {
			return []client.Object{modelDeployment(namespace, name, replicas)}
		},
		list: &v1alpha1.ModelDeploymentList{},
		ready: func(list client.ObjectList) (n int) {
			for _, md := range list.(*v1alpha1.ModelDeploymentList).Items {
				for _, role := range md.Status.Roles {
					n += int(role.Ready)
				}
			}
			return n
		},
	}
}

func modelDeployment(namespace, name string, replicas int) *v1alpha1.ModelDeployment {
	return &v1alpha1.ModelDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.ModelDeploymentSpec{
			Model:  v1alpha1.Model{Name: "Qwen/Qwen2.5-7B-Instruct"},
			Engine: v1alpha1.Engine{Name: "vLLM", Version: "0.29.0", Image: "vllm/vllm-openai:v0.29.0"},
			// What (e) does is the same either way; without it nothing is taken away.
			Withdrawal: v1alpha1.Withdrawal{Direct: v1alpha1.DirectConnections},
			Roles:      []v1alpha1.Role{{Name: role, Replicas: new(int32(replicas))}},
		},
	}
}

func statefulSets(plane *controlplane.Plane, replicas int) *contender {
	return &contender{
		kind: "StatefulSet", plane: plane, pid: plane.ControllerManager.PID, replicas: replicas, user: statefulSetUser, status: "statefulsets/status",
		objects: func(namespace, name string) []client.Object { return statefulSet(namespace, name, replicas) },
		list:    &appsv1.StatefulSetList{},
		ready: func(list client.ObjectList) (n int) {
			for _, set := range list.(*appsv1.StatefulSetList).Items {
				n += int(set.Status.ReadyReplicas)
			}
			return n
		},
	}
}

// statefulSet makes the Pods that the operator renders, opted in so that the
// webhook is asked for them as well. The Services and the budget that belong to
// them come with it: the API server and its controllers have as much to do with
// those as with the Pods.
func statefulSet(namespace, name string, replicas int) []client.Object {
	md := modelDeployment(namespace, name, replicas)
	server := &md.Spec.Roles[0]
	pod := render.Replica(md, server, 0)[0]
	selected := func(labels map[string]string) map[string]string {
		delete(labels, names.LabelManagedBy) // the operator's cache holds only its own
		return labels
	}
	pod.Labels = selected(pod.Labels)
	pod.Labels[names.LabelDrain] = names.DrainEnabled
	budget := render.Budget(md, server, int32(replicas-1))
	budget.Spec.Selector.MatchLabels = selected(budget.Spec.Selector.MatchLabels)
	objects := []client.Object{budget}
	for _, service := range render.Services(md) {
		service.Spec.Selector = selected(service.Spec.Selector)
		objects = append(objects, service)
	}
	for _, object := range objects {
		object.SetOwnerReferences(nil)
		object.SetLabels(selected(object.GetLabels()))
	}
	return append(objects, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            new(int32(replicas)),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: map[string]string{names.LabelInstance: name}},
			Template:            corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	})
}

// warmUp fills caches and opens connections, and shows that all that is measured
// works.
func (c *contender) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("it took more than a minute"))
	defer cancel()
	namespace, err := c.plane.Cluster.CreateNamespace(ctx, "warm-up", nil)
	if err != nil {
		return err
	}
	return c.make(ctx, namespace, creators)
}

// make creates so many owners and waits until their controller reports all Ready.
func (c *contender) make(ctx context.Context, namespace string, n int) error {
	var all sync.WaitGroup
	errs := make([]error, creators)
	for creator := range creators {
		all.Go(func() {
			for i := creator; i < n && errs[creator] == nil; i += creators {
				for _, object := range c.objects(namespace, fmt.Sprintf("bench-%d", i)) {
					errs[creator] = errors.Join(errs[creator], c.plane.Cluster.Client.Create(ctx, object))
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.plane.Wait(ctx, c.kind+"s", func(ctx context.Context) error {
		if err := c.plane.Cluster.Client.List(ctx, c.list, client.InNamespace(namespace)); err != nil {
			return err
		}
		if ready := c.ready(c.list); ready != n*c.replicas {
			return fmt.Errorf("%d of %d replicas are reported Ready", ready, n*c.replicas)
		}
		return nil
	})
}

// run is the turn of one contender.
func (c *contender) run(ctx context.Context) (err error) {
	namespace, err := c.plane.Cluster.CreateNamespace(ctx, "bench", nil)
	if err != nil {
		return err
	}
	if c.before, err = usageOf(c.pid); err != nil {
		return err
	}
	c.begin = time.Now()
	if err := c.make(ctx, namespace, owners); err != nil {
		return err
	}
	end, err := settle(ctx, c.plane, c.user)
	if err != nil {
		return err
	}
	c.load = loadAverage()
	if c.after, err = usageOf(c.pid); err != nil {
		return err
	}
	c.calls = c.plane.Calls.Between(c.user, c.begin, end)
	kubelet := c.plane.Calls.Between(controlplane.Kubelet, c.begin, end)
	for _, last := range []struct {
		calls        []controlplane.Call
		verbs        []string
		resource, of string
		want         int
		into         *time.Duration
	}{
		{c.calls, []string{"create"}, "pods", namespace, owners * replicas, &c.created},
		{kubelet, []string{"patch", "update"}, "pods/status", namespace, owners * replicas, &c.running},
		{c.calls, []string{"patch", "update"}, c.status, namespace, owners, &c.reported},
	} {
		if *last.into, err = lastAnswer(last.calls, last.verbs, last.resource, last.of, last.want, c.begin); err != nil {
			return err
		}
	}
	return c.checkPods(ctx, namespace)
}

// settle waits until controllers make no more calls about what they did, or for a
// minute: what they go on doing then shows in the quiet minute.
func settle(ctx context.Context, plane *controlplane.Plane, users ...string) (end time.Time, err error) {
	limited, cancel := context.WithTimeout(ctx, settleMost)
	defer cancel()
	err = plane.Wait(limited, "the end of calls", func(context.Context) error {
		if err := plane.Calls.Read(); err != nil {
			return err
		}
		end = time.Now()
		for _, user := range users {
			for _, call := range plane.Calls.Between(user, end.Add(-settleTime), end) {
				if !call.Standing() {
					return errors.New(call.Verb + " " + call.Resource)
				}
			}
		}
		return nil
	})
	if limited.Err() != nil && ctx.Err() == nil {
		return end, nil
	}
	return end, err
}

// checkPods tells whether the webhook was asked for every Pod.
func (c *contender) checkPods(ctx context.Context, namespace string) error {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.plane.Cluster.Client.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	if len(pods.Items) != owners*replicas {
		return fmt.Errorf("there are %d Pods, want %d", len(pods.Items), owners*replicas)
	}
	for _, pod := range pods.Items {
		if pod.Annotations[names.AnnotationStatus] == "" {
			return fmt.Errorf("the webhook was not asked for Pod %s", pod.Name)
		}
	}
	return nil
}
