package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
)

// Span is how long a replica was in a state of the retirement protocol.
type Span struct {
	State v1alpha1.RetirementState
	From  time.Time
	To    time.Time // zero where its end was not seen
}

// protocol notes the states of the replicas that a ModelDeployment's status says
// are being taken away.
type protocol struct {
	mu sync.Mutex
	// spans and reasons are by Pod: the states in order, and why it is in the last.
	spans   map[string][]Span
	reasons map[string]string
}

// watchProtocol watches the ModelDeployment of a namespace.
func watchProtocol(ctx context.Context, c *kube.Cluster, namespace string) (*protocol, error) {
	watcher, err := client.NewWithWatch(c.Config, client.Options{Scheme: c.Client.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("watching the ModelDeployment of %s: %w", namespace, err)
	}
	p := &protocol{spans: map[string][]Span{}, reasons: map[string]string{}}
	deployments := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.ModelDeploymentList{}
			return list, watcher.List(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return watcher.Watch(ctx, &v1alpha1.ModelDeploymentList{}, client.InNamespace(namespace), &client.ListOptions{Raw: &o})
		},
	}
	_, _, events, done := toolswatch.NewIndexerInformerWatcher(deployments, &v1alpha1.ModelDeployment{})
	go func() {
		defer func() { events.Stop(); <-done }()
		for {
			select {
			case event := <-events.ResultChan():
				if md, ok := event.Object.(*v1alpha1.ModelDeployment); ok {
					p.see(md, event.Type == watch.Deleted, time.Now())
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return p, nil
}

// see notes a ModelDeployment as it is now. The status says itself when a state
// began; that one has ended is known from what follows it, or from its absence.
func (p *protocol) see(md *v1alpha1.ModelDeployment, gone bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	running := map[string]bool{}
	if md.Status.Retirement != nil && !gone {
		for _, target := range md.Status.Retirement.Targets {
			for _, member := range target.Members {
				running[member.Name] = true
				p.reasons[member.Name] = target.Reason
				p.enter(member.Name, target.State, target.PhaseStartedAt.Time)
			}
		}
	}
	for pod := range p.spans {
		if !running[pod] {
			p.end(pod, now)
		}
	}
}

// enter begins a state, unless the Pod is in it, and ends the one before.
func (p *protocol) enter(pod string, state v1alpha1.RetirementState, at time.Time) {
	if spans := p.spans[pod]; len(spans) > 0 && spans[len(spans)-1].State == state && spans[len(spans)-1].To.IsZero() {
		return
	}
	p.end(pod, at)
	p.spans[pod] = append(p.spans[pod], Span{State: state, From: at})
}

// end ends the state that the Pod is in, if any.
func (p *protocol) end(pod string, at time.Time) {
	if spans := p.spans[pod]; len(spans) > 0 && spans[len(spans)-1].To.IsZero() {
		spans[len(spans)-1].To = at
	}
}

// of returns the states that a Pod went through.
func (p *protocol) of(pod string) []Span {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.spans[pod])
}

// kept returns the Pods that were given up and are still there, by name.
func (p *protocol) kept() (replicas []Replica) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range slices.Sorted(maps.Keys(p.spans)) {
		spans := p.spans[pod]
		if last := spans[len(spans)-1]; last.State == v1alpha1.StateAborted && last.To.IsZero() {
			replicas = append(replicas, Replica{Pod: pod, Kept: p.reasons[pod]})
		}
	}
	return replicas
}
