package router

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// readyWithin bounds how long the processes of a router take to be Ready.
const readyWithin = 2 * time.Minute

// Deploy makes a router in a namespace and waits until every process is Ready. Its image
// must be loaded.
func Deploy(ctx context.Context, c *kube.Cluster, namespace string, r Router) (*Deployed, error) {
	for _, object := range r.Objects(namespace) {
		if err := c.Client.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("creating router %s: %w", r.Name, err)
		}
	}
	d := &Deployed{Router: r, Namespace: namespace, cluster: c}
	return d, d.WaitReady(ctx)
}

// Deployed is a router in a cluster.
type Deployed struct {
	Router
	Namespace string
	cluster   *kube.Cluster
}

// WaitReady waits until the Deployment has what it asks for, Ready and up to date.
func (d *Deployed) WaitReady(ctx context.Context) error {
	key := client.ObjectKey{Namespace: d.Namespace, Name: d.Name}
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, readyWithin, true, func(ctx context.Context) (bool, error) {
		deployment := &appsv1.Deployment{}
		if err := d.cluster.Client.Get(ctx, key, deployment); err != nil {
			return false, err
		}
		want, status := *deployment.Spec.Replicas, deployment.Status
		return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas == want && status.ReadyReplicas == want, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until router %s is ready: %w", d.Name, err)
	}
	return nil
}

// URL is where clients in the cluster reach it.
func (d *Deployed) URL() string { return fmt.Sprintf("http://%s.%s", d.Name, d.Namespace) }

// Processes are those that have not ended, also the ones that terminate.
func (d *Deployed) Processes(ctx context.Context) ([]Process, error) {
	pods := &corev1.PodList{}
	if err := d.cluster.Client.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.PodLabels())); err != nil {
		return nil, fmt.Errorf("listing the processes of router %s: %w", d.Name, err)
	}
	var all []Process
	for _, pod := range pods.Items {
		if !kube.Finished(&pod) {
			all = append(all, Process{Pod: pod, clientset: d.cluster.Clientset})
		}
	}
	return all, nil
}

// Fault sets a fault on every process, or ends it.
func (d *Deployed) Fault(ctx context.Context, f fake.Fault) error {
	all, err := d.Processes(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := p.Fault(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

// Process is one process of a router.
type Process struct {
	Pod       corev1.Pod
	clientset kubernetes.Interface
}

// Fault sets a fault on this process only, or ends it. The fault Restart ends the
// container, which its kubelet starts again.
func (p Process) Fault(ctx context.Context, f fake.Fault) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	err = p.clientset.CoreV1().RESTClient().Post().Namespace(p.Pod.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", p.Pod.Name, Port)).
		SubResource("proxy").Suffix("fault").SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("setting fault %s on %s: %w", f.Name, p.Pod.Name, err)
	}
	return nil
}

// Get is what this process answers on a path of its control API, such as "workers".
func (p Process) Get(ctx context.Context, path string) ([]byte, error) { return p.get(ctx, Port, path) }

// Metrics is the text of its metrics.
func (p Process) Metrics(ctx context.Context) ([]byte, error) {
	for _, port := range p.Pod.Spec.Containers[0].Ports {
		if port.Name == "metrics" {
			return p.get(ctx, port.ContainerPort, "metrics")
		}
	}
	return nil, fmt.Errorf("%s has no port for metrics", p.Pod.Name)
}

func (p Process) get(ctx context.Context, port int32, path string) ([]byte, error) {
	text, err := p.clientset.CoreV1().RESTClient().Get().Namespace(p.Pod.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", p.Pod.Name, port)).
		SubResource("proxy").Suffix(path).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting %s of %s: %w", path, p.Pod.Name, err)
	}
	return text, nil
}
