package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/engine/standin"
	"github.com/lastcall-dev/lastcall/test/install"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// The routers that most tests here are played with: one that is told, and one that
// follows labels.
var (
	vllmRouter = bundle.Release{Family: fake.VLLMRouter, Version: "0.1.15"}
	llmdRouter = bundle.Release{Family: fake.LLMD, Version: "0.10.0"}
)

// routerNames is what a ModelDeployment calls each family.
var routerNames = map[fake.Family]v1alpha1.RouterName{
	fake.VLLMRouter: v1alpha1.VLLMRouter, fake.SGLModelGateway: v1alpha1.SGLangGateway, fake.SMG: v1alpha1.SGLangGateway, fake.LLMD: v1alpha1.LLMDRouter,
}

// routerImage makes the fake routers known to the cluster, for the tests that have one.
var routerImage = sync.OnceValue(func() error { return install.Routers(context.Background(), connected) })

// fronted is a ModelDeployment that clients reach through a router.
type fronted struct {
	*deployment
	router *router.Deployed
}

// behind puts a router of two processes in front of a ModelDeployment, and waits until
// each of them can choose every replica.
func behind(t *testing.T, r router.Router, budgets v1alpha1.RetirementBudgets, roles ...v1alpha1.Role) *fronted {
	t.Helper()
	c := cluster(t)
	require.NoError(t, routerImage())
	r.Name, r.Replicas = "router", cmp.Or(r.Replicas, 2)
	if r.PrefillSelector == "" {
		r.Selector = chosenBy(nil)
	}
	port := int32(router.Port)
	if r.Release.Family == fake.LLMD {
		port = router.EPPPort
	}
	d := made(t, c, v1alpha1.ModelDeploymentSpec{
		Router: &v1alpha1.Router{
			Name: routerNames[r.Release.Family], PodSelector: metav1.LabelSelector{MatchLabels: r.PodLabels()}, Port: port,
		},
		Retirement: budgets, Roles: roles,
	})
	deployed, err := router.Deploy(t.Context(), c, d.key.Namespace, r)
	require.NoError(t, err)
	f := &fronted{d, deployed}
	f.choosable(t)
	return f
}

// chosenBy is the selector by which a router chooses the replicas of a role, or of all.
func chosenBy(role *v1alpha1.Role) string {
	selector := names.LabelInstance + "=qwen," + names.LabelServing + "=" + names.Serving
	if role != nil {
		selector += "," + names.LabelComponent + "=" + role.Name
	}
	return selector
}

// processes are those of the router that serve.
func (f *fronted) processes(t *testing.T) []router.Process {
	t.Helper()
	all, err := f.router.Processes(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

func (f *fronted) fault(t *testing.T, faults ...fake.Fault) {
	t.Helper()
	for _, fault := range faults {
		require.NoError(t, f.router.Fault(t.Context(), fault))
	}
}

// choosable waits until every process of the router says that it can choose every replica.
func (f *fronted) choosable(t *testing.T) {
	t.Helper()
	for pod := range f.uids(t) {
		for _, p := range f.processes(t) {
			require.NoError(t, until(t.Context(), p.Pod.Name+" to choose "+pod, func() (bool, error) { return f.lists(t, p, pod) }))
		}
	}
}

// lists reports whether a process can choose a replica, as it says itself.
func (f *fronted) lists(t *testing.T, p router.Process, pod string) (bool, error) {
	t.Helper()
	if f.router.Release.Family == fake.LLMD {
		text, err := p.Metrics(t.Context())
		return regexp.MustCompile(`_queue_size\{[^}]*"` + pod + `-rank-0"`).Match(text), err
	}
	body, err := p.Get(t.Context(), "workers")
	if err != nil {
		return false, err
	}
	var list struct {
		Workers []struct {
			URL    string
			Kind   fake.Role `json:"worker_type"`
			Status fake.Status
		}
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return false, err
	}
	role := fake.Regular
	for _, kind := range []fake.Role{fake.Prefill, fake.Decode} {
		if f.router.PrefillSelector != "" && strings.Contains(pod, string(kind)) {
			role = kind
		}
	}
	at := fmt.Sprintf("http://%s:%d", f.get(t, pod).Status.PodIP, vllmPort)
	for _, w := range list.Workers {
		if strings.HasPrefix(w.URL, at) && w.Kind == role && w.Status != fake.Draining {
			return true, nil
		}
	}
	return false, nil
}

// through is a Service of one process of the router only.
func (f *fronted) through(t *testing.T, p router.Process) (service string) {
	t.Helper()
	const label = "process"
	pod := p.Pod.DeepCopy()
	pod.Labels[label] = pod.Name
	require.NoError(t, f.cluster.Client.Patch(t.Context(), pod, client.MergeFrom(&p.Pod)))
	require.NoError(t, f.cluster.Client.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{label: pod.Name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(router.Port)}},
		},
	}))
	return pod.Name
}

// testimony is what each process of the router was said to contribute last, by replica
// and by Pod.
type testimony map[string]map[string]v1alpha1.RetirementRouter

// over waits for the end of a retirement that comes after a moment, and returns what was
// said until then.
func (f *fronted) over(t *testing.T, end v1alpha1.RetirementEnd, after time.Time) (last *v1alpha1.LastRetirement, said testimony) {
	t.Helper()
	said = testimony{}
	var seen *v1alpha1.ModelDeployment
	err := f.follow(t.Context(), "the retirement to end", func(md *v1alpha1.ModelDeployment) bool {
		seen = md
		if md.Status.Retirement != nil {
			for i := range md.Status.Retirement.Targets {
				said.hear(&md.Status.Retirement.Targets[i])
			}
		}
		last = md.Status.LastRetirement
		return last != nil && last.EndedAt.After(after)
	})
	require.NoError(t, err, "it is %+v", seen)
	require.Equal(t, end, last.End, "%+v, and the operation is %+v", last, seen.Status.Retirement)
	t.Logf("%s after %.1f s: %s", last.End, last.EndedAt.Sub(last.StartedAt.Time).Seconds(), last.Reason)
	return last, said
}

func (said testimony) hear(target *v1alpha1.RetirementTarget) {
	replica := fmt.Sprintf("qwen-%s-%d", target.Role, target.Ordinal)
	if said[replica] == nil {
		said[replica] = map[string]v1alpha1.RetirementRouter{}
	}
	for _, r := range target.Routers {
		was, now := said[replica][r.Pod], r
		now.ToldAt = cmp.Or(r.ToldAt, was.ToldAt) // which is taken back where the replica is
		said[replica][r.Pod] = now
	}
}

// requireWhole checks that each process has given its part of the proof, and that those
// that have to be told were.
func (said testimony) requireWhole(t *testing.T, processes []router.Process, told bool, replicas ...string) {
	t.Helper()
	for _, replica := range replicas {
		for _, p := range processes {
			r, listed := said[replica][p.Pod.Name]
			require.True(t, listed, "%s is not listed for %s", p.Pod.Name, replica)
			require.Equal(t, p.Pod.UID, r.UID)
			require.NotNil(t, r.AskedAt, "%+v", r)
			require.Empty(t, r.Missing, "%+v", r)
			require.Equal(t, told, r.ToldAt != nil, "%+v", r)
		}
	}
}

// uncut is requireNothingCut where the router itself refuses what it cannot send: a
// client can send that again.
func uncut(t *testing.T, records []load.Request) {
	t.Helper()
	count := map[load.Outcome]int{}
	for _, r := range records {
		count[r.Outcome]++
		if r.Outcome == load.Cut {
			t.Errorf("a request to %s, from %s to %s: %s after %d tokens: %s", r.ServedBy,
				r.Start.Format("15:04:05.000"), r.End.Format("15:04:05.000"), r.Outcome, r.Tokens, r.Error)
		}
	}
	t.Logf("%d requests: %v", len(records), count)
	require.GreaterOrEqual(t, count[load.Completed], 5, "too few requests to say anything")
}

// reached waits until requests have begun at these replicas after a moment.
func (f *fronted) reached(t *testing.T, after time.Time, pods ...string) {
	t.Helper()
	for _, pod := range pods {
		log, err := f.cluster.Follow(t.Context(), f.pod(pod), names.MainContainer)
		require.NoError(t, err)
		e := &engine{log: log}
		require.NoError(t, until(t.Context(), "a request to begin at "+pod, func() (bool, error) {
			return slices.ContainsFunc(e.events(standin.RequestStarted), func(s standin.Event) bool { return s.Time.After(after) }), nil
		}))
	}
}
