package envtest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/internal/validate"
)

// edit is a change of a valid ModelDeployment, and the field that it is refused
// for; empty where the schema has nothing against it.
type edit struct {
	field  string
	change func(*v1alpha1.ModelDeploymentSpec)
}

// A webhook that is away must not let through what cannot be undone, nor hold up
// more than it has to; see https://github.com/cozystack/cozystack/issues/3125
func TestTheSchemaAloneRefusesChangesOfWhatIsFrozen(t *testing.T) {
	md := modelDeployment(namespace(t, nil), "frozen")
	md.Spec.Roles = []v1alpha1.Role{role("server", 1, 2), {Name: "own", Command: []string{"serve", "m"}}}
	require.NoError(t, api.Create(t.Context(), md))
	server.down(t)
	for what, e := range map[string]edit{
		"another size":             {"spec.roles[0].size", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Size = new(int32(3)) }},
		"no size":                  {"spec.roles[0].size", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Size = nil }},
		"another kind":             {"spec.roles[0].kind", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Kind = v1alpha1.Prefill }},
		"another command":          {"spec.roles[1].command", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[1].Command[1] = "n" }},
		"a command where was none": {"spec.roles[0].command", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Command = []string{"a"} }},
		"no command where was one": {"spec.roles[1].command", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[1].Command = nil }},
		"another engine":           {"spec.engine.name", func(s *v1alpha1.ModelDeploymentSpec) { s.Engine.Name = v1alpha1.SGLang }},
		"another size of a role in another place": {"spec.roles[1].size", func(s *v1alpha1.ModelDeploymentSpec) {
			s.Roles[0], s.Roles[1] = s.Roles[1], s.Roles[0]
			s.Roles[1].Size = new(int32(1))
		}},
		"a kind that is the default, unset": {"", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0].Kind, s.Roles[0].Replicas = "", new(int32(5)) }},
		"another order of the roles":        {"", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles[0], s.Roles[1] = s.Roles[1], s.Roles[0] }},
		"another image, replicas and grace": {"", func(s *v1alpha1.ModelDeploymentSpec) { s.Engine.Image, s.Roles[0].Replicas = "n", new(int32(5)) }},
		"a role dropped and another one added": {"", func(s *v1alpha1.ModelDeploymentSpec) {
			s.Roles[1] = v1alpha1.Role{Name: "added", Kind: v1alpha1.Decode, Size: new(int32(4))}
		}},
	} {
		changed := md.DeepCopy()
		e.change(&changed.Spec)
		err := api.Update(t.Context(), changed)
		errs, _ := validate.ModelDeploymentUpdate(md, changed)
		if e.field == "" {
			assert.ErrorContains(t, err, "failed calling webhook", what)
			assert.Empty(t, errs, what)
			continue
		}
		assert.True(t, apierrors.IsInvalid(err), "%s: %v", what, err)
		if assert.Len(t, errs, 1, what) {
			assert.Equal(t, e.field, errs[0].Field, what)
			assert.ErrorContains(t, err, e.field+": ", what)
			assert.ErrorContains(t, err, errs[0].Detail, "%s: the schema answers in the webhook's words", what)
		}
	}
}

func TestTheSchemaAloneRefusesWhatIsOutOfRange(t *testing.T) {
	ns := namespace(t, nil)
	server.down(t)
	roleIs := func(change func(*v1alpha1.Role)) func(*v1alpha1.ModelDeploymentSpec) {
		return func(s *v1alpha1.ModelDeploymentSpec) { change(&s.Roles[0]) }
	}
	roles := func(count int) func(*v1alpha1.ModelDeploymentSpec) {
		return func(s *v1alpha1.ModelDeploymentSpec) {
			s.Roles = nil
			for i := range count {
				s.Roles = append(s.Roles, v1alpha1.Role{Name: string(rune('a' + i))})
			}
		}
	}
	for what, e := range map[string]edit{
		"size 0":              {"spec.roles[0].size", roleIs(func(r *v1alpha1.Role) { r.Size = new(int32(0)) })},
		"size 64":             {"", roleIs(func(r *v1alpha1.Role) { r.Size = new(int32(64)) })},
		"size 65":             {"spec.roles[0].size", roleIs(func(r *v1alpha1.Role) { r.Size = new(int32(65)) })},
		"-1 replicas":         {"spec.roles[0].replicas", roleIs(func(r *v1alpha1.Role) { r.Replicas = new(int32(-1)) })},
		"no replicas":         {"", roleIs(func(r *v1alpha1.Role) { r.Replicas = new(int32(0)) })},
		"1024 replicas":       {"", roleIs(func(r *v1alpha1.Role) { r.Replicas = new(int32(1024)) })},
		"1025 replicas":       {"spec.roles[0].replicas", roleIs(func(r *v1alpha1.Role) { r.Replicas = new(int32(1025)) })},
		"port 0":              {"spec.roles[0].port", roleIs(func(r *v1alpha1.Role) { r.Port = new(int32(0)) })},
		"port 65536":          {"spec.roles[0].port", roleIs(func(r *v1alpha1.Role) { r.Port = new(int32(65536)) })},
		"an unknown kind":     {"spec.roles[0].kind", roleIs(func(r *v1alpha1.Role) { r.Kind = "Both" })},
		"a pull policy":       {"spec.roles[0].imagePullPolicy", roleIs(func(r *v1alpha1.Role) { r.ImagePullPolicy = corev1.PullPolicy("Often") })},
		"a name with a dash":  {"spec.roles[0].name", roleIs(func(r *v1alpha1.Role) { r.Name = "a-b" })},
		"a name that is long": {"spec.roles[0].name", roleIs(func(r *v1alpha1.Role) { r.Name = strings.Repeat("a", 33) })},
		"no roles":            {"spec.roles", roles(0)},
		"10 roles":            {"", roles(10)},
		"11 roles":            {"spec.roles", roles(11)},
		"two roles of a name": {"spec.roles[1]", func(s *v1alpha1.ModelDeploymentSpec) { s.Roles = append(s.Roles, s.Roles[0]) }},
		"an unknown engine":   {"spec.engine.name", func(s *v1alpha1.ModelDeploymentSpec) { s.Engine.Name = "TGI" }},
		"no image":            {"spec.engine.image", func(s *v1alpha1.ModelDeploymentSpec) { s.Engine.Image = "" }},
		"a drain of 14 s":     {"spec.retirement.drainSeconds", func(s *v1alpha1.ModelDeploymentSpec) { s.Retirement.DrainSeconds = new(int32(14)) }},
		"a total below the drain": {"spec.retirement.totalSeconds", func(s *v1alpha1.ModelDeploymentSpec) {
			s.Retirement.DrainSeconds, s.Retirement.TotalSeconds = new(int32(60)), new(int32(59))
		}},
	} {
		md := modelDeployment(ns, "ranges")
		e.change(&md.Spec)
		err := api.Create(t.Context(), md)
		errs, _ := validate.ModelDeployment(md)
		if e.field == "" {
			assert.ErrorContains(t, err, "failed calling webhook", what)
			assert.Empty(t, errs, what)
			continue
		}
		assert.True(t, apierrors.IsInvalid(err), "%s: %v", what, err)
		assert.ErrorContains(t, err, e.field, what)
		assert.NotEmpty(t, errs, "%s: the webhook holds the same rule", what)
	}
}

// Whatever state the webhook and the spec are in, an object that is being deleted
// can be let go. Mutations of what is leaving have kept objects for ever in
// https://github.com/kubernetes-sigs/lws/issues/346 and
// https://github.com/open-feature/open-feature-operator/issues/781
func TestAnObjectThatIsBeingDeletedIsNeverHeldUp(t *testing.T) {
	md := withBadAnnotation(modelDeployment(namespace(t, nil), "held"))
	md.Finalizers = []string{names.Finalizer, "example.com/other"}
	restore := withoutValidatingWebhook(t)
	require.NoError(t, api.Create(t.Context(), md))
	restore()
	require.NoError(t, api.Delete(t.Context(), md))
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(md), md))
	require.NotNil(t, md.DeletionTimestamp)

	md.Finalizers = md.Finalizers[:1]
	require.NoError(t, api.Update(t.Context(), md), "while the webhook is up and would refuse the spec")
	md.Spec.Roles[0].Replicas = new(int32(0))
	require.NoError(t, api.Update(t.Context(), md), "even a change of the spec")
	server.down(t)
	md.Finalizers = nil
	require.NoError(t, api.Update(t.Context(), md), "while the webhook is down")
	assert.True(t, apierrors.IsNotFound(api.Get(context.Background(), client.ObjectKeyFromObject(md), md)), "it is gone")
}
