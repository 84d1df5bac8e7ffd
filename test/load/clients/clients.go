// Package clients runs the load generator as a Pod of the cluster under test.
package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/engine/bundle"
	"github.com/lastcall-dev/lastcall/test/load"
)

// Start sends requests to the Service until stop is called. Stop lets the
// requests in flight end, which takes as long as the longest, and returns every
// record. The flags are those of loadgen.
func Start(ctx context.Context, c *kube.Cluster, service client.ObjectKey, flags ...string) (stop func() ([]load.Request, error), err error) {
	l, err := launch(ctx, c, service, append([]string{"--for=1h"}, flags...))
	if err != nil {
		return nil, err
	}
	first, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no request completed in a minute"))
	defer cancel()
	if _, err := l.log.Find(first, string(load.Completed)); err != nil {
		return nil, fmt.Errorf("sending load to %s: %w", service, err)
	}
	return func() ([]load.Request, error) { return l.stop(ctx) }, nil
}

// Once sends one request from each client, and returns when they are on their way.
// Wait waits until all have ended and returns their records. The flags are those of
// loadgen; a request must take longer than a second.
func Once(ctx context.Context, c *kube.Cluster, service client.ObjectKey, flags ...string) (wait func() ([]load.Request, error), err error) {
	// A client sends no second request after the first second.
	l, err := launch(ctx, c, service, append([]string{"--for=1s"}, flags...))
	if err != nil {
		return nil, err
	}
	return func() ([]load.Request, error) { return l.stop(ctx) }, nil
}

// loader is a running load generator.
type loader struct {
	cluster *kube.Cluster
	pod     *corev1.Pod
	log     *kube.Log
}

// launch starts a load generator and waits until it runs.
func launch(ctx context.Context, c *kube.Cluster, service client.ObjectKey, flags []string) (*loader, error) {
	var to corev1.Service
	if err := c.Client.Get(ctx, service, &to); err != nil {
		return nil, fmt.Errorf("sending load: %w", err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, GenerateName: "clients-"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name:    "clients",
				Image:   bundle.Full.Ref,
				Command: append([]string{"loadgen", "--url=http://" + to.Spec.ClusterIP}, flags...),
			}},
		},
	}
	if err := c.Client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("sending load: %w", err)
	}
	key := client.ObjectKeyFromObject(pod)
	if _, err := c.WaitPod(ctx, key, kube.Ready); err != nil {
		return nil, err
	}
	log, err := c.Follow(ctx, key, "clients")
	return &loader{c, pod, log}, err
}

// stop lets the requests in flight end and returns every record.
func (l *loader) stop(ctx context.Context) ([]load.Request, error) {
	if err := l.cluster.Client.Delete(ctx, l.pod); err != nil {
		return nil, fmt.Errorf("stopping the load: %w", err)
	}
	lines, err := l.log.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the load's records: %w", err)
	}
	records := make([]load.Request, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line.Text), &records[i]); err != nil {
			return nil, fmt.Errorf("reading the load's record %q: %w", line.Text, err)
		}
	}
	return records, nil
}
