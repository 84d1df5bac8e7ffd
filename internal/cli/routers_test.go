package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func statusOf(s *told) string {
	var out strings.Builder
	reportRetirement(s.md()).print(&out)
	return out.String()
}

func TestStatusListsTheProcessesThatLackSomething(t *testing.T) {
	s := newTold()
	s.set(v1alpha1.StateWithdrawing, names.HeldRouterUnread)
	s.routed(v1alpha1.VLLMRouter, process("vr-0", "", "", 5e9), process("vr-1", names.HeldRouterUnread, "GET /workers: no answer in time", 5e9),
		v1alpha1.RetirementRouter{Pod: "vr-2"})
	_, table, _ := strings.Cut(statusOf(s), "ROUTER POD")
	assert.Equal(t, `  MISSING       ASKED      TOLD
    server  2        vr-1        RouterUnread  02:59:58Z  02:59:55Z
    server  2        vr-2                      never      never
`, table)
	s.routed(v1alpha1.VLLMRouter, process("vr-0", "", "", 5e9))
	assert.NotContains(t, statusOf(s), "vr-0", "nothing is missing")
	s.target(0).State = v1alpha1.StateAborted
	assert.Contains(t, statusOf(s), "vr-0", "it was told, and is not seen to choose it again")
}

func TestStatusListsSoManyProcessesAndNoMore(t *testing.T) {
	s := newTold()
	s.set(v1alpha1.StateWithdrawing, names.HeldRouterUnread)
	var all []v1alpha1.RetirementRouter
	for i := range 64 {
		all = append(all, process(fmt.Sprintf("gw-%02d", i), names.HeldRouterUnread, "", 0))
	}
	s.routed(v1alpha1.SGLangGateway, all...)
	text := statusOf(s)
	assert.Equal(t, mostRouters, strings.Count(text, " gw-"))
	assert.Contains(t, text, fmt.Sprintf("    and %d more\n", 64-mostRouters))
}

func TestWithoutARouterTheListIsEmptyAndNotNull(t *testing.T) {
	s := newTold()
	require.Contains(t, string(encode(reportRetirement(s.md()), "json")), `"routers": []`)
	require.Contains(t, string(encode(explain(atNight, s.facts), "json")), `"routers": []`)
}
