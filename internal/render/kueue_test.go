package render_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/render"
)

func TestEachReplicaIsAGroupOfItsOwn(t *testing.T) {
	md := given(t, "queued")
	pair := &md.Spec.Roles[1]
	for ordinal, group := range []string{"qwen-pair-0", "qwen-pair-1"} {
		for _, pod := range render.Replica(md, pair, int32(ordinal)) {
			require.Equal(t, group, pod.Labels[names.LabelKueueGroup], pod.Name)
			require.Equal(t, "2", pod.Annotations[names.AnnotationKueueCount], pod.Name)
			require.Equal(t, names.KueueServing, pod.Annotations[names.AnnotationKueueServing], pod.Name)
			require.Equal(t, render.Hash(md, pair), pod.Annotations[names.AnnotationSpecHash], "one digest for all ordinals")
		}
	}
}

// An upgrade of lastcall must roll nothing that Kueue has no part in.
func TestWithoutAQueueNothingIsKueues(t *testing.T) {
	for name, md := range cases(t) {
		for i := range md.Spec.Roles {
			role := &md.Spec.Roles[i]
			if render.Queued(role) {
				continue
			}
			for _, pod := range render.Replica(md, role, 0) {
				for _, all := range []map[string]string{pod.Labels, pod.Annotations} {
					for key := range all {
						require.False(t, strings.HasPrefix(key, names.KueueGroup), "%s: %s has %s", name, pod.Name, key)
					}
				}
			}
		}
	}
}
