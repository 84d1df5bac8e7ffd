package envtest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/engine"
	"github.com/lastcall-dev/lastcall/internal/probe"
	"github.com/lastcall-dev/lastcall/internal/render"
	"github.com/lastcall-dev/lastcall/internal/retire"
)

// retirement is a ModelDeployment with Pods that run, and a retirer that a test
// calls. The test plays the kubelet and the engines. Only time is not real: it
// passes when nothing else happens.
type retirement struct {
	*testing.T
	running
	api   client.Client
	as    client.WithWatch
	clock present
	seen  seen
	// isAdmin is whether the retirer reads as the test does.
	isAdmin bool
	// retirer is the process that runs now.
	retirer *retirerProcess
	// uids are those of the Pods that were made, by name.
	uids map[string]types.UID
	// leaving is since when Pods are being deleted.
	leaving map[types.UID]time.Time
	// deleted are the deletes that were accepted, and events what was told, by all
	// processes.
	deleted, events []string
	wrong           []string
	// asked are the requests for Workloads.
	asked []string

	mu      sync.Mutex
	engines map[string]probe.Result
	reads   int
}

const retirementNode = "retirement-node"

// onRetirement plays a test with a ModelDeployment that has these roles, as an
// account or as the admin.
func onRetirement(t *testing.T, account string, roles []v1alpha1.Role, play func(s *retirement)) {
	t.Helper()
	outsiders()
	mapper, err := kinds()
	require.NoError(t, err)
	writes := &atomic.Int64{}
	c, err := insideClient("", mapper, writes)
	require.NoError(t, err)
	as := c
	if account != "" {
		as, err = insideClient(account, mapper, writes)
		require.NoError(t, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: retirementNode}}
	require.NoError(t, client.IgnoreAlreadyExists(api.Create(t.Context(), node)))
	md := modelDeployment(namespace(t, nil), "chat")
	md.Spec.Roles, md.Spec.Withdrawal.Direct = roles, v1alpha1.DirectConnections
	now := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := &retirement{
			T: t, running: running{md}, api: c, as: as, seen: seen{writes: writes}, isAdmin: account == "", clock: present{offset: time.Until(now)},
			uids: map[string]types.UID{}, leaving: map[types.UID]time.Time{}, engines: map[string]probe.Result{},
		}
		require.NoError(t, c.Create(context.Background(), md))
		for i := range md.Spec.Roles {
			for ordinal := range render.Replicas(&md.Spec.Roles[i]) {
				for _, pod := range render.Replica(md, &md.Spec.Roles[i], ordinal) {
					s.bringUp(pod)
				}
			}
		}
		s.retirer = s.start()
		defer func() { s.retirer.stop() }() // a bubble cannot end before what is in it
		play(s)
		s.retirer.stop()
		require.Empty(t, s.wrong)
		s.clear()
	})
}

// bringUp makes a Pod whose engine runs and is idle.
func (s *retirement) bringUp(pod *corev1.Pod) {
	s.Helper()
	ctx := context.Background()
	require.NoError(s, s.api.Create(ctx, pod))
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: retirementNode}}
	require.NoError(s, s.api.SubResource("binding").Create(ctx, pod.DeepCopy(), binding))
	require.NoError(s, s.api.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: names.MainContainer, ContainerID: "containerd://" + string(pod.UID), Ready: true, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	require.NoError(s, s.api.Status().Update(ctx, pod))
	s.uids[pod.Name] = pod.UID
	s.engine(pod.Name, idleEngine)
}

var (
	idleEngine   = probe.Result{Verdict: engine.Idle, Started: "1", ConnectionsKnown: true}
	busyEngine   = probe.Result{Verdict: engine.Busy, InFlight: 3, Started: "1", ConnectionsKnown: true}
	silentEngine = probe.Result{Reason: names.HeldReadFailed, Message: "connection refused"}
)

// engine sets what reads of a member say from now on.
func (s *retirement) engine(pod string, says probe.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engines[pod] = says
}

// Read implements retirer.Prober.
func (s *retirement) Read(_ context.Context, t probe.Target) probe.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	result := s.engines[t.Name]
	result.SentAt = s.clock.Now()
	result.ReceivedAt = result.SentAt
	return result
}

// seen is what the API server has, read anew after every write: as a cache that
// never lags.
type seen struct {
	writes *atomic.Int64
	at     int64
	once   bool
	md     *v1alpha1.ModelDeployment
	pods   corev1.PodList
}

func (s *retirement) look() *seen {
	v := &s.seen
	if at := v.writes.Load(); at != v.at || !v.once {
		ctx := context.Background()
		v.at, v.once, v.md, v.pods = at, true, &v1alpha1.ModelDeployment{}, corev1.PodList{}
		err := s.api.Get(ctx, client.ObjectKeyFromObject(s.ModelDeployment), v.md)
		if apierrors.IsNotFound(err) {
			v.md, err = nil, nil
		}
		require.NoError(s, err)
		require.NoError(s, s.api.List(ctx, &v.pods, client.InNamespace(s.Namespace)))
		s.inTime(v.pods.Items)
	}
	return v
}

// inTime has the grace periods of leaving Pods pass as time does here: the API
// server knows no other than the real one.
func (s *retirement) inTime(pods []corev1.Pod) {
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp == nil {
			continue
		}
		if _, known := s.leaving[pod.UID]; !known {
			s.leaving[pod.UID] = s.clock.Now()
		}
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		pod.DeletionTimestamp = &metav1.Time{Time: s.leaving[pod.UID].Add(grace)}
	}
}

// md is the ModelDeployment; nil when it is gone.
func (s *retirement) md() *v1alpha1.ModelDeployment { return s.look().md.DeepCopy() }

// state is that of the operation; empty without one.
func (s *retirement) state() v1alpha1.RetirementState {
	if md := s.md(); md != nil && md.Status.Retirement != nil {
		return md.Status.Retirement.State
	}
	return ""
}

func (s *retirement) pods() []corev1.Pod { return s.look().pods.DeepCopy().Items }

// present are the names of the Pods, with what is special about them.
func (s *retirement) present() (all []string) {
	for _, pod := range s.pods() {
		name := pod.Name
		if pod.Labels[names.LabelServing] == names.Withdrawn {
			name += " withdrawn"
		}
		if pod.DeletionTimestamp != nil {
			name += " leaving"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// edit changes the ModelDeployment.
func (s *retirement) edit(change func(*v1alpha1.ModelDeployment)) {
	s.Helper()
	md := s.md()
	change(md)
	require.NoError(s, s.api.Update(context.Background(), md))
}

// scale sets the replicas of the first role.
func (s *retirement) scale(replicas int32) {
	s.Helper()
	s.edit(func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Replicas = &replicas })
}

func (s *retirement) delete(options ...client.DeleteOption) {
	s.Helper()
	require.NoError(s, s.api.Delete(context.Background(), s.DeepCopy(), options...))
}

// leavingTakes is for how long a Pod that was deleted is still there.
const leavingTakes = 3 * time.Second

// kubelet ends the Pods whose time has come, and reports whether more are leaving.
func (s *retirement) kubelet() (more bool) {
	for _, pod := range s.pods() {
		if pod.DeletionTimestamp == nil {
			continue
		}
		if s.clock.Now().Before(s.leaving[pod.UID].Add(leavingTakes)) {
			more = true
			continue
		}
		require.NoError(s, client.IgnoreNotFound(s.api.Delete(context.Background(), &pod, client.GracePeriodSeconds(0))))
	}
	return more
}

// turn is one round, and then the time to the next: at most so long.
func (s *retirement) turn(most time.Duration) {
	done := s.retirer.reconcile()
	if done.crashed {
		s.retirer.stop()
		s.retirer = s.start()
	}
	wait := most
	switch {
	case done.crashed, done.wrote:
		wait = time.Millisecond
	case done.err != nil:
		wait = min(wait, 500*time.Millisecond)
	case done.result.RequeueAfter > 0:
		wait = min(wait, done.result.RequeueAfter)
	}
	if s.kubelet() {
		wait = min(wait, leavingTakes)
	}
	select {
	case <-s.retirer.wakes:
	case <-time.After(wait):
	}
}

// pass lets time pass.
func (s *retirement) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		s.turn(time.Until(end))
	}
}

// until lets time pass until something holds.
func (s *retirement) until(within time.Duration, holds func() bool) time.Duration {
	s.Helper()
	start := time.Now()
	for s.turn(time.Second); !holds(); s.turn(time.Second) {
		require.Less(s, time.Since(start), within, "%s\n%v\n%s", s.told(), s.present(), strings.Join(s.retirer.writes, "\n"))
	}
	return time.Since(start)
}

// ended reports whether no operation runs and no Pod is leaving.
func (s *retirement) ended() bool {
	return s.state() == "" && !slices.ContainsFunc(s.pods(), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

func (s *retirement) gone() bool { return s.md() == nil }

// clear leaves nothing behind.
func (s *retirement) clear() {
	ctx := context.Background()
	for _, pod := range s.pods() {
		require.NoError(s, client.IgnoreNotFound(s.api.Delete(ctx, &pod, client.GracePeriodSeconds(0))))
	}
	if md := s.md(); md != nil {
		md.Finalizers = nil
		require.NoError(s, s.api.Update(ctx, md))
		require.NoError(s, client.IgnoreNotFound(s.api.Delete(ctx, md)))
	}
}

// budgetsOver is a time by which every operation has ended.
const budgetsOver = retire.DefaultTotal + 10*time.Minute

// told is the status, for a test that failed.
func (s *retirement) told() string {
	md := s.md()
	if md == nil {
		return "it is gone"
	}
	return string(toJSON(s.T, md))
}
