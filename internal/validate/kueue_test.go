package validate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func TestKueue(t *testing.T) {
	const one = ": must not be set with more than 1 replica: Kueue would admit all of them as one, and take them away as one; leave it out, and each replica is admitted by itself"
	queued := map[string]string{"kueue.x-k8s.io/queue-name": "gpus"}
	grouped := map[string]string{"kueue.x-k8s.io/queue-name": "gpus", "kueue.x-k8s.io/pod-group-name": "mine"}
	tests := map[string]struct {
		edit           func(r *v1alpha1.Role)
		errs, warnings []string
	}{
		"a queue and nothing else": {edit: func(r *v1alpha1.Role) {
			r.Labels, r.Replicas, r.Size = queued, new(int32(4)), new(int32(2))
		}},
		"a group for several replicas": {
			edit: func(r *v1alpha1.Role) { r.Labels, r.Replicas = grouped, new(int32(2)) },
			errs: []string{`spec.roles[0].labels[kueue.x-k8s.io/pod-group-name]: Invalid value: "mine"` + one},
		},
		"a group for the only replica": {edit: func(r *v1alpha1.Role) {
			r.Labels, r.Size, r.Annotations = grouped, new(int32(2)), map[string]string{"kueue.x-k8s.io/pod-group-total-count": "2"}
		}},
		"a Workload for several replicas": {
			edit: func(r *v1alpha1.Role) {
				r.Labels, r.Replicas = map[string]string{"kueue.x-k8s.io/prebuilt-workload-name": "mine"}, new(int32(2))
			},
			errs: []string{`spec.roles[0].labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: "mine"` + one},
		},
		"a count that is not the size": {
			edit: func(r *v1alpha1.Role) {
				r.Labels, r.Size, r.Annotations = queued, new(int32(2)), map[string]string{"kueue.x-k8s.io/pod-group-total-count": "4"}
			},
			errs: []string{`spec.roles[0].annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: "4": must be the role's size, 2: Kueue waits for that many Pods of a replica; leave it out, and lastcall writes it`},
		},
		"a count of a single Pod": {
			edit: func(r *v1alpha1.Role) {
				r.Labels, r.Annotations = queued, map[string]string{"kueue.x-k8s.io/pod-group-total-count": "1"}
			},
			errs: []string{`spec.roles[0].annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: "1": must not be set at size 1: the replica is no group of Pods, and Kueue would refuse its Pod; leave it out`},
		},
		"a group that does not serve": {
			edit: func(r *v1alpha1.Role) {
				r.Labels, r.Size, r.Annotations = queued, new(int32(2)), map[string]string{"kueue.x-k8s.io/pod-group-serving": "false"}
			},
			warnings: []string{`spec.roles[0].annotations[kueue.x-k8s.io/pod-group-serving]: "false" lets Kueue take a replica whose Pods have ended for one that has done its work, and not admit the Pods that replace them; leave it out, and lastcall writes "true"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			md := minimal(t)
			test.edit(&md.Spec.Roles[0])
			errs, warnings := ModelDeployment(md)
			var texts []string
			for _, err := range errs {
				texts = append(texts, err.Error())
			}
			require.Equal(t, test.errs, texts)
			require.Equal(t, test.warnings, warnings)
		})
	}
}
