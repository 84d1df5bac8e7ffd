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
				Command: append([]string{"loadgen", "--for=1h", "--url=http://" + to.Spec.ClusterIP}, flags...),
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
	if err != nil {
		return nil, err
	}
	first, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no request completed in a minute"))
	defer cancel()
	if _, err := log.Find(first, string(load.Completed)); err != nil {
		return nil, fmt.Errorf("sending load to %s: %w", service, err)
	}
	return func() ([]load.Request, error) {
		if err := c.Client.Delete(ctx, pod); err != nil {
			return nil, fmt.Errorf("stopping the load: %w", err)
		}
		lines, err := log.All(ctx)
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
	}, nil
}
