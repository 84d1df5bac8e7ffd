package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/engine/standin"
	"github.com/lastcall-dev/lastcall/test/load"
	"github.com/lastcall-dev/lastcall/test/load/clients"
	"github.com/lastcall-dev/lastcall/test/router"
	"github.com/lastcall-dev/lastcall/test/router/bundle"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// A request that waits for its prefill is in no engine, and bound to the replica that
// will decode it: that stays, whatever its engine says.
func TestRoutersThatHoldRequests(t *testing.T) {
	for what, row := range map[string]struct {
		release bundle.Release
		args    []string
		// split is whether the roles say that they prefill and decode, or only the router
		// makes pairs of them.
		split  bool
		reason string
		// counted is whether the router counts what it holds, so that the end of that is
		// seen.
		counted bool
	}{
		"roles that prefill and decode are refused": {release: vllmRouter, split: true, reason: names.HeldPrefillDecode},
		"a router that cannot be told is not":       {release: vllmRouter, reason: names.HeldRouterSelects},
		"a router that counts what it holds is believed": {
			release: bundle.Release{Family: fake.SMG, Version: "1.10.0"}, args: []string{"--drain-settle-secs", "120"}, reason: names.HeldRouterHolds, counted: true,
		},
		"a router whose count two requests can share is not": {release: llmdRouter, reason: names.HeldRouterHolds},
	} {
		t.Run(what, func(t *testing.T) {
			decode, prefill := server(2), server(1)
			decode.Name, prefill.Name = "decode", "prefill"
			for _, role := range []*v1alpha1.Role{&decode, &prefill} {
				role.Labels = map[string]string{"llm-d.ai/role": role.Name}
			}
			if row.split {
				decode.Kind, prefill.Kind = v1alpha1.Decode, v1alpha1.Prefill
			}
			r := router.Router{Release: row.release, Policy: "round_robin", PrefillSelector: chosenBy(&prefill), DecodeSelector: chosenBy(&decode), Args: row.args}
			if row.release.Family == fake.LLMD { // it goes by the role label
				r.PrefillSelector, r.DecodeSelector = "", ""
				r.Args = []string{"--pd", fake.Sequential}
			}
			budgets := v1alpha1.RetirementBudgets{DrainSeconds: new(int32(15)), TotalSeconds: new(int32(25))}
			if row.counted {
				budgets = v1alpha1.RetirementBudgets{}
			}
			f := behind(t, r, budgets, decode, prefill)
			before := f.uids(t)
			f.fault(t, fake.Fault{Name: fake.PrefillHold, Pod: "qwen-decode-1"})
			first, held := f.engine(t, "qwen-prefill-0"), f.engine(t, "qwen-decode-1")
			answers, err := clients.Once(t.Context(), f.cluster, client.ObjectKey{Namespace: f.key.Namespace, Name: f.router.Name},
				"--clients=6", "--min-tokens=40", "--max-tokens=40", fmt.Sprintf("--tokens-per-second=%d", rate))
			require.NoError(t, err)
			require.NoError(t, until(t.Context(), "every prefill to end", func() (bool, error) { return len(first.events(standin.RequestEnded)) >= 6, nil }))
			bound := time.Now()
			f.scale(t, 1)
			if row.counted {
				f.target(t, "decode", 1, v1alpha1.StateWithdrawing, row.reason)
			} else {
				last, _ := f.over(t, v1alpha1.EndAborted, time.Time{})
				require.Equal(t, row.reason, last.Reason)
			}
			require.Contains(t, f.command(t, "explain", "qwen"), row.reason)
			if row.counted { // nothing but time could take it for idle
				require.NoError(t, until(t.Context(), "longer to pass than any window", func() (bool, error) { return time.Since(bound) > 40*time.Second, nil }))
				f.target(t, "decode", 1, v1alpha1.StateWithdrawing, row.reason)
			}
			require.Empty(t, held.events(standin.RequestStarted), "the engine has read 0 all the time")
			require.Equal(t, before, f.uids(t))

			t.Log("the prefill is over")
			f.fault(t, fake.Fault{Name: fake.PrefillHold, Off: true})
			records, err := answers()
			require.NoError(t, err)
			require.Len(t, records, 6)
			for _, r := range records {
				require.Equal(t, load.Completed, r.Outcome, r.Error)
			}
			require.True(t, slices.ContainsFunc(records, func(r load.Request) bool { return r.ServedBy == "qwen-decode-1" && r.Start.Before(bound) }))
			if row.counted {
				f.over(t, v1alpha1.EndCompleted, time.Time{})
				return
			}
			f.serves(t, "qwen-decode-1")
			f.choosable(t)
		})
	}
}
