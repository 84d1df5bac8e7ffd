package envtest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/operator"
)

// process is one run of the operator. What it remembers ends with it.
type process struct {
	stage      *stage
	reconciler *operator.Reconciler
	// fault is called after each write that was done, with its number from 1. Its
	// error is what the operator gets for an answer; errCrash ends the process: it
	// neither reads nor writes any more.
	fault func(number int) error
	// cached and live are old views for the two ways to read; nil for the present.
	cached, live *view

	mu        sync.Mutex
	crashed   bool
	writes    []string
	liveReads int
	events    []string
}

// errCrash is what the operator would not live to see.
var errCrash = errors.New("the process has ended")

// start is a new process.
func (s *stage) start() *process {
	base, err := watching()
	require.NoError(s, err)
	p := &process{stage: s}
	reading := func(old **view, count func() error) interceptor.Funcs {
		return interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				if err := count(); err != nil {
					return err
				}
				if md, ok := object.(*v1alpha1.ModelDeployment); ok && *old != nil {
					(*old).deployment.DeepCopyInto(md)
					return nil
				}
				return c.Get(ctx, key, object, options...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if err := count(); err != nil {
					return err
				}
				if *old != nil {
					return (*old).list(list)
				}
				return c.List(ctx, list, options...)
			},
		}
	}
	funcs := reading(&p.cached, p.alive)
	p.interceptWrites(&funcs)
	live := interceptor.NewClient(base, reading(&p.live, p.countRead))
	p.reconciler = operator.New(interceptor.NewClient(base, funcs), live, p, s.clock, prometheus.NewRegistry())
	return p
}

func (p *process) interceptWrites(funcs *interceptor.Funcs) {
	funcs.Create = func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
		return p.write("create "+object.GetName(), func() error { return c.Create(ctx, object, options...) })
	}
	funcs.Delete = func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		return p.write(fmt.Sprintf("delete %T %s", object, object.GetName()), func() error { return c.Delete(ctx, object, options...) })
	}
	funcs.Apply = func(ctx context.Context, c client.WithWatch, object runtime.ApplyConfiguration, options ...client.ApplyOption) error {
		return p.write("apply", func() error { return c.Apply(ctx, object, options...) })
	}
	funcs.SubResourceApply = func(ctx context.Context, c client.Client, sub string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
		return p.write("apply "+sub, func() error { return c.SubResource(sub).Apply(ctx, object, options...) })
	}
	funcs.Patch = func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		return p.write("patch "+object.GetName(), func() error { return c.Patch(ctx, object, patch, options...) })
	}
	// The operator writes in no other way, so faults cannot pass it by.
	funcs.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { panic("update") }
	funcs.SubResourceUpdate = func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
		panic("update of a subresource")
	}
	funcs.SubResourcePatch = func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		panic("patch of a subresource")
	}
}

func (p *process) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return errCrash
	}
	return nil
}

func (p *process) countRead() error {
	p.mu.Lock()
	p.liveReads++
	p.mu.Unlock()
	return p.alive()
}

// write does one write at a time, so that nothing is done after a crash.
func (p *process) write(what string, do func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return errCrash
	}
	err := do()
	if err != nil {
		what += ": " + err.Error()
	}
	p.writes = append(p.writes, what)
	if err == nil && p.fault != nil {
		err = p.fault(len(p.writes))
		p.crashed = errors.Is(err, errCrash)
	}
	return err
}

// last are the last writes.
func (p *process) last(most int) []string {
	return p.writes[max(len(p.writes)-most, 0):]
}

// Eventf takes an event down.
func (p *process) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

// reconciled is how one reconcile ended.
type reconciled struct {
	result         ctrl.Result
	err            error
	wrote, crashed bool
}

func (p *process) reconcile() (r reconciled) {
	before := len(p.writes)
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p.stage.ModelDeployment)}
	r.result, r.err = p.reconciler.Reconcile(p.stage.Context(), request)
	r.wrote, r.crashed = len(p.writes) > before, p.crashed
	return r
}

// view is what the operator would have read at some moment.
type view struct {
	deployment v1alpha1.ModelDeployment
	pods       corev1.PodList
	services   corev1.ServiceList
	budgets    policyv1.PodDisruptionBudgetList
}

// view is the present one.
func (s *stage) view() *view {
	v := &view{}
	s.read().DeepCopyInto(&v.deployment)
	for _, list := range []client.ObjectList{&v.pods, &v.services, &v.budgets} {
		require.NoError(s, api.List(s.Context(), list, client.InNamespace(s.Namespace)))
	}
	return v
}

func (v *view) list(into client.ObjectList) error {
	switch list := into.(type) {
	case *corev1.PodList:
		v.pods.DeepCopyInto(list)
	case *corev1.ServiceList:
		v.services.DeepCopyInto(list)
	case *policyv1.PodDisruptionBudgetList:
		v.budgets.DeepCopyInto(list)
	default:
		return fmt.Errorf("there is no old view of %T", into)
	}
	return nil
}
