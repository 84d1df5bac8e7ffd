package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func TestScaleSaysWhatWillHappen(t *testing.T) {
	drain := int32(1200)
	for sentence, c := range map[string]struct {
		to    int32
		given func(*v1alpha1.ModelDeployment)
	}{
		"down, and provable":          {1, func(*v1alpha1.ModelDeployment) {}},
		"down, and not provable":      {1, func(md *v1alpha1.ModelDeployment) { md.Spec.Withdrawal.Direct = v1alpha1.DirectHold }},
		"down, and not said how":      {1, func(md *v1alpha1.ModelDeployment) { md.Spec.Withdrawal.Direct = "" }},
		"down, with a router":         {1, foreseenRouter},
		"down to none, with a router": {0, foreseenRouter},
		"down, of theirs with a router": {1, func(md *v1alpha1.ModelDeployment) {
			foreseenRouter(md)
			md.Spec.Roles[0].Command = []string{"sh"}
		}},
		"down, of a split role":          {1, func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Kind = v1alpha1.Prefill }},
		"down, of a role that is theirs": {1, func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Command = []string{"sh"} }},
		"down, of theirs with their budget": {1, func(md *v1alpha1.ModelDeployment) {
			md.Spec.Roles[0].Command, md.Spec.Retirement.DrainSeconds = []string{"sh"}, &drain
		}},
		"down, while another goes": {1, func(md *v1alpha1.ModelDeployment) {
			md.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{{Role: "other", State: v1alpha1.StateDraining}}}
		}},
		"down, while another was given up": {1, func(md *v1alpha1.ModelDeployment) {
			md.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{{Role: "other", State: v1alpha1.StateAborted}}}
		}},
		"down by many": {0, func(md *v1alpha1.ModelDeployment) { hundred := int32(100); md.Spec.Roles[0].Replicas = &hundred }},
		"the same":     {3, func(*v1alpha1.ModelDeployment) {}},
		"up": {8, func(md *v1alpha1.ModelDeployment) {
			md.Status.Retirement = &v1alpha1.RetirementStatus{Targets: []v1alpha1.RetirementTarget{
				{Role: "server", Ordinal: 3, State: v1alpha1.StateAborted}, {Role: "server", Ordinal: 4, State: v1alpha1.StateDraining},
				{Role: "server", Ordinal: 5, State: v1alpha1.StateDeleting}, {Role: "server", Ordinal: 6, State: v1alpha1.StateSettling},
				{Role: "other", Ordinal: 7, State: v1alpha1.StateDraining},
			}}
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			md := &newTold().deployments[0]
			three := int32(3)
			md.Spec.Roles[0].Replicas, md.Status.Retirement = &three, nil
			c.given(md)
			name := strings.ReplaceAll(strings.ReplaceAll(sentence, ",", ""), " ", "-") + ".txt"
			golden(t, filepath.Join("foresee", name), foresee(md, "server", c.to))
		})
	}
}

func foreseenRouter(md *v1alpha1.ModelDeployment) {
	md.Spec.Withdrawal.Direct = ""
	md.Spec.Router = &v1alpha1.Router{Name: v1alpha1.LLMDRouter, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "epp"}}}
}

func TestScaleChangesOnlyWhatWasRead(t *testing.T) {
	md := &newTold().deployments[0]
	md.Spec.Roles = append([]v1alpha1.Role{{Name: "first"}}, md.Spec.Roles...)
	patch, err := scalePatch(md, "server", 1)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"op": "test", "path": "/spec/roles/1/name", "value": "server"},
		{"op": "test", "path": "/spec/roles/1/replicas", "value": 2},
		{"op": "add", "path": "/spec/roles/1/replicas", "value": 1}]`, string(patch))
	patch, err = scalePatch(md, "first", 0)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"op": "test", "path": "/spec/roles/0/name", "value": "first"},
		{"op": "add", "path": "/spec/roles/0/replicas", "value": 0}]`, string(patch))
	patch, err = scalePatch(md, "first", 1)
	require.NoError(t, err)
	require.Nil(t, patch, "unset is one replica already")
	_, err = scalePatch(md, "servers", 1)
	require.EqualError(t, err, `ModelDeployment "qwen" in namespace team-a has no role "servers": its roles are first, server`)
	now := metav1.NewTime(atNight)
	md.DeletionTimestamp = &now
	_, err = scalePatch(md, "server", 1)
	require.ErrorContains(t, err, "is being deleted")
}

func TestWhatScaleSaysOfAChangeInBetween(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.ModelDeployment){
		"": func(*v1alpha1.ModelDeployment) {},
		"the replicas of role server were 2 when they were read, and somebody has set them to 7 meanwhile": func(md *v1alpha1.ModelDeployment) {
			seven := int32(7)
			md.Spec.Roles[0].Replicas = &seven
		},
		"role server was dropped meanwhile": func(md *v1alpha1.ModelDeployment) { md.Spec.Roles[0].Name = "other" },
		"somebody has changed the list of roles meanwhile": func(md *v1alpha1.ModelDeployment) {
			md.Spec.Roles = append([]v1alpha1.Role{{Name: "first"}}, md.Spec.Roles...)
		},
	} {
		before := &newTold().deployments[0]
		after := before.DeepCopy()
		change(after)
		assert.Equal(t, want, changedMeanwhile(before, after, "server"))
	}
}

func TestRetryHasSomethingToRetryOrSaysWhyNot(t *testing.T) {
	for sentence, c := range map[string]struct {
		given func(*told)
		want  string // an error where it begins with nothing
	}{
		"given up":      {func(s *told) { s.set(v1alpha1.StateAborted, names.HeldServingRequests) }, "asked the retirer to begin again with qwen-server-2.\nSee"},
		"under way":     {func(*told) {}, `nothing to retry: no replica of ModelDeployment "qwen" is Aborted`},
		"none":          {func(s *told) { s.md().Status.Retirement = nil }, `nothing to retry: no retirement of ModelDeployment "qwen"`},
		"being deleted": {func(s *told) { s.set(v1alpha1.StateAborted, ""); s.delete(0, names.Finalizer) }, "nothing to retry: ModelDeployment \"qwen\" is being deleted"},
		"wanted again": {func(s *told) {
			three := int32(3)
			s.md().Spec.Roles[0].Replicas = &three
			s.set(v1alpha1.StateAborted, "")
		}, "nothing to retry: no replica"},
		"others go":    {func(s *told) { s.set(v1alpha1.StateAborted, ""); s.addTarget("old", 0, v1alpha1.StateDraining, "") }, "It does when the replicas that are under way have ended."},
		"asked before": {func(s *told) { s.set(v1alpha1.StateAborted, ""); s.annotate("t1") }, "It has not acted on what was asked before, t1, either"},
		"acted on it": {func(s *told) {
			s.set(v1alpha1.StateAborted, "")
			s.annotate("t1")
			s.operation().LastConsumedRetryToken = "t1"
		}, "begin again with qwen-server-2.\nSee"},
		"a dropped role": {func(s *told) { s.addTarget("old", 0, v1alpha1.StateAborted, "") }, "begin again with qwen-old-0.\n"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newTold()
			c.given(s)
			said, err := retriable(s.md())
			if strings.HasPrefix(c.want, "nothing") {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Contains(t, said, c.want)
		})
	}
}

func (s *told) annotate(token string) {
	s.md().Annotations = map[string]string{names.AnnotationRetryRetirement: token}
}

func TestEveryRetryHasItsOwnToken(t *testing.T) {
	require.Regexp(t, `^20260101T030000Z-[A-Z0-9]{8}$`, retryToken(atNight))
	require.NotEqual(t, retryToken(atNight), retryToken(atNight))
}
