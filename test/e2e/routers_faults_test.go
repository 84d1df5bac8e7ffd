package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// lie is something that keeps the proof from being whole while it lasts.
type lie struct {
	what       string
	begin, end func(*testing.T, *fronted)
	// reason is why the replicas are held and then given up; the message says which
	// process, where it is one.
	reason string
	one    bool
}

// everywhere is a fault of every process.
func everywhere(reason, name, value string) lie {
	return lie{
		what: name, reason: reason,
		begin: func(t *testing.T, f *fronted) { t.Helper(); f.fault(t, fake.Fault{Name: name, Value: value}) },
		end:   func(t *testing.T, f *fronted) { t.Helper(); f.fault(t, fake.Fault{Name: name, Off: true}) },
	}
}

// ofOne is a fault of one process; the other tells the truth.
func ofOne(reason, name, value string) lie {
	set := func(fault fake.Fault) func(*testing.T, *fronted) {
		return func(t *testing.T, f *fronted) {
			t.Helper()
			require.NoError(t, f.processes(t)[0].Fault(t.Context(), fault))
		}
	}
	return lie{
		what: name + " of one process", reason: reason, one: true,
		begin: set(fake.Fault{Name: name, Value: value}), end: set(fake.Fault{Name: name, Off: true}),
	}
}

// failingOpen is a pool whose gateway need not ask the router.
var failingOpen = lie{
	what: "a pool that fails open", reason: names.HeldRouterBypassed,
	begin: func(t *testing.T, f *fronted) { t.Helper(); f.pool(t, "FailOpen") },
	end:   func(t *testing.T, f *fronted) { t.Helper(); f.pool(t, "FailClose") },
}

// row is a router, what it can get wrong, and what of that is found out.
type row struct {
	router bundle.Release
	args   []string
	// told is whether it has to be told, and harmless what takes nothing from the proof.
	told     bool
	harmless []fake.Fault
	lies     []lie
}

// rows are every family and version. Without prefill and decode, whatever they count,
// each of them can be shown to hold nothing.
var rows = []row{
	{
		router: vllmRouter, told: true,
		lies: []lie{
			ofOne(names.HeldRouterSelects, fake.Disagree, ""),
			everywhere(names.HeldRouterSelects, fake.AddAgain, "1ms"),
			everywhere(names.HeldRouterSelects, fake.AsyncRemoval, "1h"),
			ofOne(names.HeldRouterUnread, fake.TruncateList, "1"),
			ofOne(names.HeldRouterUnread, fake.Forbidden, ""),
			everywhere(names.HeldRouterUnread, fake.Unauthorized, ""),
		},
		harmless: []fake.Fault{
			{Name: fake.LoseDeletes}, {Name: fake.IgnoreLabels}, {Name: fake.IgnoreReadiness}, {Name: fake.LoadAlwaysZero}, {Name: fake.ResetLoad},
			{Name: fake.GaugeZeroed}, {Name: fake.NegativeGauge}, {Name: fake.SucceedForUnknown}, {Name: fake.StaleRetry}, {Name: fake.StalePick},
			{Name: fake.DataParallelRanks}, {Name: fake.AsyncRemoval, Value: "4s"},
		},
	},
	{
		router: bundle.Release{Family: fake.SGLModelGateway, Version: "0.3.0"}, told: true,
		lies: []lie{ofOne(names.HeldRouterSelects, fake.Disagree, "")},
		harmless: []fake.Fault{
			{Name: fake.LoseDeletes}, {Name: fake.IgnoreLabels}, {Name: fake.LoadAlwaysZero}, {Name: fake.GaugeDeleted}, {Name: fake.SucceedForUnknown}, {Name: fake.StalePick},
		},
	},
	{
		// The worker drains for longer than a withdrawal may take without coming closer.
		router: bundle.Release{Family: fake.SMG, Version: "1.9.0"}, args: []string{"--drain-settle-secs", "35"}, told: true,
		lies:     []lie{ofOne(names.HeldRouterUnread, fake.Unauthorized, "")},
		harmless: []fake.Fault{{Name: fake.LoadAlwaysZero}, {Name: fake.SucceedForUnknown}, {Name: fake.EngineGaugeLag}},
	},
	{
		router: bundle.Release{Family: fake.SMG, Version: "1.10.0"},
		lies: []lie{
			everywhere(names.HeldRouterSelects, fake.LoseDeletes, ""),
			ofOne(names.HeldRouterSelects, fake.IgnoreLabels, ""),
			everywhere(names.HeldRouterUnread, fake.TruncateList, "0"),
		},
		harmless: []fake.Fault{
			{Name: fake.CollapseDrain}, {Name: fake.IgnoreReadiness}, {Name: fake.LoadAlwaysZero}, {Name: fake.ResetLoad}, {Name: fake.AddAgain},
			{Name: fake.StaleRetry}, {Name: fake.StalePick}, {Name: fake.EngineGaugeLag},
		},
	},
	{router: bundle.Release{Family: fake.LLMD, Version: "0.8.0"}, lies: []lie{ofOne(names.HeldRouterSelects, fake.Disagree, "")}},
	{router: bundle.Release{Family: fake.LLMD, Version: "0.9.0"}, lies: []lie{ofOne(names.HeldRouterSelects, fake.IgnoreLabels, "")}},
	{
		router: llmdRouter,
		lies: []lie{
			everywhere(names.HeldRouterSelects, fake.IgnoreLabels, ""),
			ofOne(names.HeldRouterSelects, fake.Disagree, ""),
			ofOne(names.HeldRouterUnread, fake.Unauthorized, ""),
			everywhere(names.HeldRouterUnread, fake.TruncateList, "0"),
			failingOpen,
		},
		harmless: []fake.Fault{
			{Name: fake.LoseDeletes}, {Name: fake.IgnoreReadiness}, {Name: fake.NegativeGauge}, {Name: fake.GaugeZeroed}, {Name: fake.DuplicateRequestID},
			{Name: fake.StalePick},
		},
	},
	{
		router:   bundle.Release{Family: fake.LLMD, Version: "0.11.0"},
		lies:     []lie{ofOne(names.HeldRouterSelects, fake.IgnoreLabels, "")},
		harmless: []fake.Fault{{Name: fake.GaugeDeleted}, {Name: fake.FailOpen}},
	},
}

// shortly is as long as a lie is listened to.
var shortly = v1alpha1.RetirementBudgets{DrainSeconds: new(int32(15)), TotalSeconds: new(int32(15))}

// Under streaming load the two highest of three replicas are taken away: not while the
// router hides the truth, and then whatever else is wrong with it.
func TestRouters(t *testing.T) {
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s %s", row.router.Family, row.router.Version), func(t *testing.T) {
			f := behind(t, router.Router{Release: row.router, Args: row.args}, v1alpha1.RetirementBudgets{}, server(3))
			before := f.uids(t)
			records := stream(t, f.cluster, f.key.Namespace, f.router.Name)
			last := f.hear(t, row.lies)
			f.fault(t, row.harmless...)
			if len(row.lies) == 0 {
				f.scale(t, 1)
			} else {
				f.command(t, "retry", "qwen")
			}
			_, said := f.over(t, v1alpha1.EndCompleted, last)
			said.requireWhole(t, f.processes(t), row.told, "qwen-server-1", "qwen-server-2")
			require.Len(t, said["qwen-server-2"], 2, "whoever else is asked is no process of the router")
			require.Equal(t, map[string]types.UID{"qwen-server-0": before["qwen-server-0"]}, f.uids(t))
			requireNothingCut(t, records())
		})
	}
}

// hear asks for two replicas to go while the router lies, and checks that they stay and
// have traffic. It returns when they were given up for the last time.
func (f *fronted) hear(t *testing.T, lies []lie) (since time.Time) {
	t.Helper()
	if len(lies) == 0 {
		return since
	}
	f.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Retirement = shortly })
	before := f.uids(t)
	for i, lie := range lies {
		t.Log(lie.what)
		lie.begin(t, f)
		if i == 0 {
			f.scale(t, 1)
		} else {
			f.command(t, "retry", "qwen")
		}
		last, _ := f.over(t, v1alpha1.EndAborted, since)
		require.Equal(t, lie.reason, last.Reason, lie.what)
		explained := f.command(t, "explain", "qwen")
		require.Contains(t, explained, lie.reason)
		if lie.one {
			require.Contains(t, explained, f.processes(t)[0].Pod.Name, "the process that it is about")
		}
		lie.end(t, f)
		f.serves(t, "qwen-server-1")
		f.serves(t, "qwen-server-2")
		f.choosable(t)
		require.Equal(t, before, f.uids(t), "nothing was taken away")
		since = last.EndedAt.Time
		f.reached(t, time.Now(), "qwen-server-1", "qwen-server-2")
	}
	f.edit(t, func(s *v1alpha1.ModelDeploymentSpec) { s.Retirement = v1alpha1.RetirementBudgets{} })
	return since
}

// pool makes an InferencePool of the replicas.
func (f *fronted) pool(t *testing.T, failureMode string) {
	t.Helper()
	servePools(t, f.cluster)
	require.NoError(t, until(t.Context(), "InferencePools to be served", func() (bool, error) {
		err := f.cluster.Apply(t.Context(), f.key.Namespace, fmt.Sprintf(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: router}
spec:
  selector: {matchLabels: {%s: qwen, %s: %q}}
  targetPorts: [{number: %d}]
  endpointPickerRef: {name: router, port: {number: %d}, failureMode: %s}
`, names.LabelInstance, names.LabelServing, names.Serving, vllmPort, router.EPPPort, failureMode))
		if err != nil {
			t.Log(err)
		}
		return err == nil, nil
	}))
}

// servePools has the API server serve InferencePools, where it does not.
func servePools(t *testing.T, c *kube.Cluster) {
	t.Helper()
	const crd = "inferencepools.inference.networking.k8s.io"
	if found, err := c.Kubectl(t.Context(), "get", "crd", crd, "--ignore-not-found", "-o", "name"); err == nil && found != "" {
		return
	}
	require.NoError(t, c.Apply(t.Context(), "", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: `+crd+`
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: inference.networking.k8s.io
  scope: Namespaced
  names: {kind: InferencePool, plural: inferencepools, singular: inferencepool, listKind: InferencePoolList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`))
	t.Cleanup(func() {
		_, err := c.Kubectl(context.WithoutCancel(t.Context()), "delete", "crd", crd, "--ignore-not-found", "--wait=false")
		require.NoError(t, err)
	})
}
