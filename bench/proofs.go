package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// proofs are when the target of each ModelDeployment was proven to be out of reach, as
// its status said last: where a proof was lost, the one that was made anew.
type proofs struct {
	mu sync.Mutex
	at map[string]time.Time
}

// watchProofs follows the ModelDeployments of a namespace until stop: a status says it
// only as long as the replica is there.
func watchProofs(ctx context.Context, c client.WithWatch, namespace string) (p *proofs, stop func(), err error) {
	p = &proofs{at: map[string]time.Time{}}
	watching, err := c.Watch(ctx, &v1alpha1.ModelDeploymentList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, nil, fmt.Errorf("watching ModelDeployments: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range watching.ResultChan() {
			p.see(event)
		}
	}()
	return p, func() { watching.Stop(); <-ended }, nil
}

func (p *proofs) see(event watch.Event) {
	md, is := event.Object.(*v1alpha1.ModelDeployment)
	if !is || md.Status.Retirement == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range md.Status.Retirement.Targets {
		if t.WithdrawnAt != nil {
			p.at[md.Name] = t.WithdrawnAt.Time
		}
	}
}

// waits are how long after each owner was scaled down there was a proof. That of one
// owner is missing where a watch broke, or where a replica went without.
func (p *proofs) waits(scaledAt map[string]time.Time) (all []time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, at := range scaledAt {
		proven, there := p.at[name]
		if !there {
			return nil, fmt.Errorf("no status of %s was seen with a proof", name)
		}
		all = append(all, proven.Sub(at))
	}
	return all, nil
}
