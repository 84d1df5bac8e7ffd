package envtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/retirer"
)

// retirerProcess is one run of the retirer. What it remembers ends with it.
type retirerProcess struct {
	stage      *retirement
	reconciler *retirer.Reconciler
	// fault is called after each write that was done, with its number from 1. Its
	// error is what the retirer gets for an answer; errCrash ends the process. before
	// is called ahead of it.
	fault  func(number int) error
	before func(what string) error
	// cached is an old view for the cache; nil for the present.
	cached *retirerView
	wakes  chan struct{}
	stop   func()

	mu      sync.Mutex
	crashed bool
	writes  []string
}

type retirerView struct {
	deployment v1alpha1.ModelDeployment
	pods       corev1.PodList
}

func (s *retirement) view() *retirerView {
	v := &retirerView{}
	s.md().DeepCopyInto(&v.deployment)
	v.pods.Items = s.pods()
	return v
}

func (s *retirement) start() *retirerProcess {
	p := &retirerProcess{stage: s, wakes: make(chan struct{}, 1)}
	live := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			s.ask("get", object, key.Name)
			return errors.Join(p.alive(), c.Get(ctx, key, object, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			s.ask("list", list, "")
			err := errors.Join(p.alive(), c.List(ctx, list, options...))
			if pods, ok := list.(*corev1.PodList); ok {
				s.inTime(pods.Items)
			}
			return err
		},
	}
	cached := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			md, ok := object.(*v1alpha1.ModelDeployment)
			switch {
			case ok && p.cached != nil:
				p.cached.deployment.DeepCopyInto(md)
				return nil
			case ok && s.isAdmin && s.md() != nil:
				s.md().DeepCopyInto(md)
				return p.alive()
			}
			return live.Get(ctx, c, key, object, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			pods, ok := list.(*corev1.PodList)
			switch {
			case ok && p.cached != nil:
				p.cached.pods.DeepCopyInto(pods)
				return nil
			case ok && s.isAdmin:
				s.look().pods.DeepCopyInto(pods)
				return p.alive()
			}
			return live.List(ctx, c, list, options...)
		},
	}
	p.interceptWrites(&cached)
	p.reconciler = retirer.New(interceptor.NewClient(s.as, cached), interceptor.NewClient(s.as, live), p, s.clock,
		retirer.Options{Prober: s, Registry: prometheus.NewRegistry()},
		func(types.NamespacedName) {
			select {
			case p.wakes <- struct{}{}:
			default:
			}
		})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.reconciler.Start(ctx) // it ends with its context
	}()
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	return p
}

// interceptWrites lets the retirer write in the ways it has, and in no other.
func (p *retirerProcess) interceptWrites(funcs *interceptor.Funcs) {
	funcs.Delete = func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		return p.write("delete "+object.GetName(), func() error {
			p.stage.mayDelete(object, options)
			name := object.GetName()
			if p.stage.ask("delete", object, name) {
				name = "Workload " + name
			}
			err := c.Delete(ctx, object, options...)
			if err == nil {
				p.stage.deleted = append(p.stage.deleted, name)
			}
			return err
		})
	}
	funcs.Patch = func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		content, err := patch.Data(object)
		if err != nil {
			return err
		}
		return p.write(fmt.Sprintf("patch %T %s %s", object, object.GetName(), content), func() error { return c.Patch(ctx, object, patch, options...) })
	}
	funcs.SubResourceApply = func(ctx context.Context, c client.Client, sub string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
		return p.write("apply "+sub, func() error { return c.SubResource(sub).Apply(ctx, object, options...) })
	}
	funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { panic("create") }
	funcs.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { panic("update") }
	funcs.Apply = func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		panic("apply")
	}
	funcs.SubResourceUpdate = func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
		panic("update of a subresource")
	}
	funcs.SubResourcePatch = func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		panic("patch of a subresource")
	}
}

// mayDelete checks a delete that is about to be sent: it names one Pod, and the
// decision is persisted.
func (s *retirement) mayDelete(object client.Object, options []client.DeleteOption) {
	var o client.DeleteOptions
	o.ApplyOptions(options)
	if o.Preconditions == nil || o.Preconditions.UID == nil {
		s.wrong = append(s.wrong, object.GetName()+" is deleted without a UID")
		return
	}
	if object.GetObjectKind().GroupVersionKind().Group == names.KueueGroup {
		s.mayDeleteWorkload(object.GetName(), *o.Preconditions.UID)
		return
	}
	if md := s.md(); md != nil && md.Status.Retirement != nil {
		for _, t := range md.Status.Retirement.Targets {
			for _, m := range t.Members {
				if m.UID == *o.Preconditions.UID && t.State == v1alpha1.StateDeleting {
					return
				}
			}
		}
	}
	s.wrong = append(s.wrong, object.GetName()+" is deleted without a decision")
}

func (p *retirerProcess) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return errCrash
	}
	return nil
}

func (p *retirerProcess) write(what string, do func() error) error {
	if err := p.alive(); err != nil {
		return err
	}
	if p.before != nil {
		if err := p.before(what); err != nil {
			return err
		}
	}
	err := do()
	if err != nil {
		what += ": " + err.Error()
	}
	p.writes = append(p.writes, what)
	if err == nil && p.fault != nil {
		err = p.fault(len(p.writes))
		p.mu.Lock()
		p.crashed = errors.Is(err, errCrash)
		p.mu.Unlock()
	}
	return err
}

// Eventf takes an event down.
func (p *retirerProcess) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	p.stage.events = append(p.stage.events, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

func (p *retirerProcess) reconcile() (r reconciled) {
	before := len(p.writes)
	r.result, r.err = p.reconciler.Reconcile(context.Background(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p.stage.ModelDeployment)})
	r.wrote, r.crashed = len(p.writes) > before, p.alive() != nil
	return r
}
