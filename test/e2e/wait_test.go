package e2e

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// patience is how long a test waits for anything. A machine that runs many tests on
// two cores needs most of it.
const patience = 4 * time.Minute

// interval is the time between two looks at what cannot be watched. Much less would
// keep the API server from those who have work for it.
const interval = 300 * time.Millisecond

// until waits for what done looks at.
func until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("waited "+patience.String()+" for "+what))
	defer cancel()
	for {
		if ok, err := done(); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}

// follow shows done every version of the ModelDeployment from now on, also those that
// pass in a moment. The last one is shown again and again: done may look at Pods too.
func (d *deployment) follow(ctx context.Context, what string, done func(*v1alpha1.ModelDeployment) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("waited "+patience.String()+" for "+what))
	defer cancel()
	var events <-chan watch.Event
	var last *v1alpha1.ModelDeployment
	for {
		if events == nil { // at first, and when the API server has ended the last one
			w, err := d.cluster.Client.Watch(ctx, &v1alpha1.ModelDeploymentList{},
				client.InNamespace(d.key.Namespace), client.MatchingFields{metav1.ObjectNameField: d.key.Name})
			if err != nil {
				return err
			}
			defer w.Stop()
			events = w.ResultChan()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case event, open := <-events:
			if md, ok := event.Object.(*v1alpha1.ModelDeployment); ok {
				last = md
			}
			if !open {
				events = nil
			}
		case <-time.After(interval):
		}
		if last != nil && done(last) {
			return nil
		}
	}
}
