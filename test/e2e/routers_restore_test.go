package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// A process that was told to leave a replica alone is not left with that, however long it
// takes to come back to it: nobody else would ever put the replica back.
func TestRouterGetsAReplicaBackLate(t *testing.T) {
	for what, row := range map[string]struct {
		router router.Router
		begin  []fake.Fault
		// keep is how the replica comes to stay, when it was told to go.
		keep func(*testing.T, *fronted)
		// lasts is for how long the process cannot take it back.
		lasts time.Duration
		end   []fake.Fault
	}{
		"its removal is under way": {
			router: router.Router{Release: vllmRouter}, begin: []fake.Fault{{Name: fake.AsyncRemoval, Value: "8s"}},
			keep: wantedAgain, lasts: 12 * time.Second,
		},
		"it answers nobody": {
			router: router.Router{Release: vllmRouter},
			keep: func(t *testing.T, f *fronted) {
				t.Helper()
				f.target(t, "server", 2, v1alpha1.StateWithdrawing, "")
				f.fault(t, fake.Fault{Name: fake.Unauthorized})
				wantedAgain(t, f)
			},
			lasts: 40 * time.Second, end: []fake.Fault{{Name: fake.Unauthorized, Off: true}},
		},
		"it lets the worker drain for long": {
			router: router.Router{Release: bundle.Release{Family: fake.SMG, Version: "1.9.0"}, Args: []string{"--drain-settle-secs", "45"}},
			keep:   wantedAgain, lasts: 45 * time.Second,
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := behind(t, row.router, v1alpha1.RetirementBudgets{}, server(3))
			before := f.uids(t)
			records := stream(t, f.cluster, f.key.Namespace, f.router.Name)
			f.fault(t, row.begin...)
			f.scale(t, 2)
			for _, p := range f.processes(t) {
				f.said(t, "qwen-server-2", p.Pod.Name, func(r v1alpha1.RetirementRouter) bool { return r.ToldAt != nil })
			}
			row.keep(t, f)
			from := time.Now()
			require.NoError(t, until(t.Context(), "it to be able to", func() (bool, error) { return time.Since(from) > row.lasts, nil }))
			f.fault(t, row.end...)
			f.serves(t, "qwen-server-2")
			f.choosable(t)
			require.Equal(t, before, f.uids(t))
			requireNothingCut(t, records())
		})
	}
}

// wantedAgain is a spec that changes its mind.
func wantedAgain(t *testing.T, f *fronted) {
	t.Helper()
	f.scale(t, 3)
	f.told(t, names.EventRetirementCancelled, "qwen-server-2")
}
