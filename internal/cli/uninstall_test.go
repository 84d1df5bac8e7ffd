package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// release is a cluster with lastcall in it. Its Pods end some looks after their
// Deployment was scaled to zero. Time passes only between two looks.
type release struct {
	*testing.T
	client client.Client
	clock  *testingclock.FakeClock
	out    bytes.Buffer
	// writes are all that were made, in order.
	writes []string
	// refuse lets calls fail before they are made.
	refuse func(call string) error
	// meanwhile happens between two looks.
	meanwhile func()
	end       context.CancelFunc
	limit     time.Time
}

const place = "lastcall-system"

func newRelease(t *testing.T, objects ...client.Object) *release {
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme),
		admissionregistrationv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	r := &release{T: t, clock: testingclock.NewFakeClock(time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC))}
	r.refuse, r.meanwhile = func(string) error { return nil }, func() {}
	write := func(call string, do func() error) error {
		if err := r.refuse(call); err != nil {
			return err
		}
		err := do()
		if err == nil {
			r.writes = append(r.writes, call)
		}
		return err
	}
	r.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return errors.Join(r.refuse("get "+key.Name), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := r.refuse(fmt.Sprintf("list %T", list)); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			deletion := client.DeleteOptions{}
			deletion.ApplyOptions(opts)
			require.Equal(t, o.GetUID(), *deletion.Preconditions.UID, "every delete names a UID")
			kind := o.GetObjectKind().GroupVersionKind().Kind
			return write("delete "+kind, func() error { return c.Delete(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("release "+o.GetName(), func() error { return c.Patch(ctx, o, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, sub string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			data, err := patch.Data(o)
			require.NoError(t, err)
			require.Equal(t, `scale {"spec":{"replicas":0}}`, sub+" "+string(data))
			return write("scale "+o.GetName(), func() error { return r.scale(ctx, o.GetName(), 0) })
		},
	}).Build()
	return r
}

// scale does what the API server and the controllers of Deployments do, but for the
// end of the Pods.
func (r *release) scale(ctx context.Context, name string, replicas int32) error {
	var d appsv1.Deployment
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: place, Name: name}, &d); err != nil {
		return err
	}
	d.Spec.Replicas = &replicas
	return r.client.Update(ctx, &d)
}

// kubelets end the Pods of what is scaled to zero.
func (r *release) kubelets() {
	for _, component := range []string{componentOperator, componentRetirer} {
		var d appsv1.Deployment
		err := r.client.Get(context.Background(), client.ObjectKey{Namespace: place, Name: "lastcall-" + component}, &d)
		if err == nil && *d.Spec.Replicas > 0 {
			continue
		}
		require.NoError(r, r.client.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(place), client.MatchingLabels{names.LabelComponent: component}))
	}
}

// After lets time pass at once.
func (r *release) After(d time.Duration) <-chan time.Time {
	r.meanwhile()
	r.clock.Step(d)
	if !r.clock.Now().Before(r.limit) {
		r.end()
	}
	passed := make(chan time.Time, 1)
	if r.clock.Now().Before(r.limit) {
		passed <- r.clock.Now()
	}
	return passed
}

// stepping is a clock on which a wait is over at once.
type stepping struct {
	clock.Clock
	after func(time.Duration) <-chan time.Time
}

func (s stepping) After(d time.Duration) <-chan time.Time { return s.after(d) }

// uninstall runs the command for at most two minutes of the release's time.
func (r *release) uninstall() error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r.end, r.limit = cancel, r.clock.Now().Add(2*time.Minute)
	u := uninstaller{client: r.client, namespace: place, name: "lastcall", clock: stepping{r.clock, r.After}, out: &r.out}
	return u.run(ctx)
}

func component(name string) []client.Object {
	labels := map[string]string{names.LabelPartOf: names.PartOf, names.LabelComponent: name}
	meta := metav1.ObjectMeta{Namespace: place, Name: "lastcall-" + name, Labels: labels}
	pod := func(suffix string) client.Object {
		meta := *meta.DeepCopy()
		meta.Name += suffix
		return &corev1.Pod{ObjectMeta: meta}
	}
	return []client.Object{&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}, pod("-a"), pod("-b")}
}

func heldDeployment(namespace, name string, others ...string) *v1alpha1.ModelDeployment {
	return &v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: "uid", Finalizers: append([]string{names.Finalizer}, others...),
	}}
}

// whole is a release with all its parts and three ModelDeployments, of which one is
// being deleted.
func whole() []client.Object {
	configuration := metav1.ObjectMeta{Name: "lastcall-webhook", UID: types.UID("u")}
	leaving := heldDeployment("team-b", "leaving")
	leaving.DeletionTimestamp = new(metav1.Now())
	return append(append(component(componentOperator), component(componentRetirer)...),
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: configuration},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: configuration},
		heldDeployment("team-a", "chat", "example.com/theirs"), leaving,
		&v1alpha1.ModelDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "never-held"}},
	)
}

var inOrder = []string{
	"scale lastcall-operator", "scale lastcall-retirer",
	"delete MutatingWebhookConfiguration", "delete ValidatingWebhookConfiguration",
	"release chat", "release leaving",
}

func TestAnUninstallTakesItsStepsInOrder(t *testing.T) {
	r := newRelease(t, whole()...)
	looks := 0
	r.meanwhile = func() {
		if looks++; looks == 20 {
			assert.Equal(t, inOrder[:2], r.writes, "Pods are there still")
			r.kubelets()
		}
	}
	require.NoError(t, r.uninstall(), r.out.String())
	assert.Equal(t, inOrder, r.writes)
	assert.Less(t, looks, 25)

	var chat v1alpha1.ModelDeployment
	require.NoError(t, r.client.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "chat"}, &chat))
	assert.Equal(t, []string{"example.com/theirs"}, chat.Finalizers)
	err := r.client.Get(t.Context(), client.ObjectKey{Namespace: "team-b", Name: "leaving"}, &chat)
	assert.True(t, apierrors.IsNotFound(err), "nothing holds it any more: %v", err)
	assert.Equal(t, `scaling to zero: lastcall-operator, lastcall-retirer
waiting for the end of Pod/lastcall-operator-a, Pod/lastcall-operator-b, Pod/lastcall-retirer-a, Pod/lastcall-retirer-b
deleting MutatingWebhookConfiguration/lastcall-webhook, ValidatingWebhookConfiguration/lastcall-webhook
taking the finalizer lastcall.dev/retirement off 2 ModelDeployments
done: nothing of lastcall holds anything
`, r.out.String())

	r.writes = nil
	require.NoError(t, r.uninstall())
	assert.Empty(t, r.writes, "once more")
}

func TestWhatIsGoneAlreadyIsPassedOver(t *testing.T) {
	require.NoError(t, newRelease(t).uninstall(), "nothing is there")

	for _, without := range inOrder {
		verb, object, _ := strings.Cut(without, " ")
		objects := slices.DeleteFunc(whole(), func(o client.Object) bool {
			kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
			_, isPod := o.(*corev1.Pod)
			return kind == object || o.GetName() == object && (verb != "delete") && !isPod
		})
		r := newRelease(t, objects...)
		r.meanwhile = r.kubelets
		require.NoError(t, r.uninstall(), without)
		want := slices.DeleteFunc(slices.Clone(inOrder), func(write string) bool { return write == without })
		assert.Equal(t, want, r.writes, "without what to %s", without)
	}
}

// Every kind of call fails some times in a row, as it does while an API server
// restarts or the permissions are not in force yet.
func TestCallsThatFailAreMadeAgain(t *testing.T) {
	r := newRelease(t, whole()...)
	r.meanwhile = r.kubelets
	failures := map[string]int{}
	r.refuse = func(call string) error {
		if failures[call]++; failures[call] <= 3 {
			return apierrors.NewServiceUnavailable("restarting: " + call)
		}
		return nil
	}
	require.NoError(t, r.uninstall(), r.out.String())
	assert.Equal(t, inOrder, r.writes)
	for _, call := range append([]string{"list *v1.PodList", "list *v1alpha1.ModelDeploymentList", "get lastcall-webhook"}, inOrder...) {
		assert.Greater(t, failures[call], 3, call)
	}
}

func TestNoFinalizerIsTakenOffWhileSomebodyMayPutItOn(t *testing.T) {
	for what, set := range map[string]func(r *release){
		"a Pod does not end": func(*release) {},
		"the controller of Deployments has not seen the scaling": func(r *release) {
			r.meanwhile = r.kubelets
			var d appsv1.Deployment
			require.NoError(r, r.client.Get(r.Context(), client.ObjectKey{Namespace: place, Name: "lastcall-retirer"}, &d))
			d.Generation = 2
			require.NoError(r, r.client.Update(r.Context(), &d))
		},
		"the API server does not list Pods": func(r *release) {
			r.meanwhile = r.kubelets
			r.refuse = func(call string) error {
				if call == "list *v1.PodList" {
					return apierrors.NewServiceUnavailable("restarting")
				}
				return nil
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRelease(t, whole()...)
			set(r)
			from := r.clock.Now()
			err := r.uninstall()
			require.Error(t, err)
			assert.Equal(t, 2*time.Minute, r.clock.Since(from), "it is bounded")
			assert.NotContains(t, r.writes, "release chat")
			assert.NotContains(t, r.writes, "delete MutatingWebhookConfiguration")
			assert.ErrorContains(t, err, "helm uninstall --no-hooks", "the way out")
		})
	}
}

func TestWhoeverIsScaledUpAgainIsStoppedFirst(t *testing.T) {
	r := newRelease(t, whole()...)
	r.meanwhile = func() {
		r.kubelets()
		if n := len(r.writes); n == 4 { // an autoscaler, or a tool that keeps what Git says
			require.NoError(t, r.scale(t.Context(), "lastcall-operator", 1))
		}
	}
	require.NoError(t, r.uninstall(), r.out.String())
	assert.Equal(t, slices.Insert(slices.Clone(inOrder), 4, "scale lastcall-operator"), r.writes)
}

func TestPodsInWhichNothingRunsAreNotWaitedFor(t *testing.T) {
	now := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC)
	for what, test := range map[string]struct {
		pod    corev1.Pod
		mayRun bool
	}{
		"one that runs":        {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, true},
		"one that was evicted": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, false},
		"one that ended":       {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, false},
		"one whose grace period is not over": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(now.Add(20 * time.Second)))}}, true,
		},
		"one whose grace period is just over": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(now.Add(-lostAfter + time.Second)))}}, true,
		},
		"one whose node does not answer": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(now.Add(-lostAfter)))}}, false,
		},
	} {
		assert.Equal(t, test.mayRun, mayWork(&test.pod, now), what)
	}
}
