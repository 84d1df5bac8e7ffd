package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

// retiring is a ModelDeployment whose status has one target, of the Pod "a".
func retiring(state v1alpha1.RetirementState, since float64) *v1alpha1.ModelDeployment {
	return &v1alpha1.ModelDeployment{Status: v1alpha1.ModelDeploymentStatus{Retirement: &v1alpha1.RetirementStatus{
		Targets: []v1alpha1.RetirementTarget{{
			State: state, PhaseStartedAt: metav1.NewMicroTime(at(since)), Members: []v1alpha1.RetirementMember{{Name: "a"}},
		}},
	}}}
}

func TestStatesAreReadFromTheStatus(t *testing.T) {
	type seen struct {
		md   *v1alpha1.ModelDeployment
		gone bool
		at   float64
	}
	draining := seen{retiring(v1alpha1.StateDraining, 1), false, 1.2}
	for what, tt := range map[string]struct {
		seen []seen
		want []Span
	}{
		"nothing is being taken away":                                 {[]seen{{&v1alpha1.ModelDeployment{}, false, 1}}, nil},
		"a state begins when the status says so, not when it is seen": {[]seen{draining}, []Span{{State: v1alpha1.StateDraining, From: at(1)}}},
		"a state that is written again goes on":                       {[]seen{draining, draining}, []Span{{State: v1alpha1.StateDraining, From: at(1)}}},
		"a state ends where the next begins": {
			[]seen{draining, {retiring(v1alpha1.StateSettling, 7), false, 7.3}},
			[]Span{{v1alpha1.StateDraining, at(1), at(7)}, {State: v1alpha1.StateSettling, From: at(7)}},
		},
		"the last ends with the retirement": {
			[]seen{draining, {&v1alpha1.ModelDeployment{}, false, 9}, {&v1alpha1.ModelDeployment{}, false, 12}},
			[]Span{{v1alpha1.StateDraining, at(1), at(9)}},
		},
		"or with the ModelDeployment, whose status still has it": {
			[]seen{draining, {retiring(v1alpha1.StateDraining, 1), true, 9}},
			[]Span{{v1alpha1.StateDraining, at(1), at(9)}},
		},
		"the same state in a later retirement is another": {
			[]seen{draining, {&v1alpha1.ModelDeployment{}, false, 9}, {retiring(v1alpha1.StateDraining, 20), false, 20}},
			[]Span{{v1alpha1.StateDraining, at(1), at(9)}, {State: v1alpha1.StateDraining, From: at(20)}},
		},
	} {
		t.Run(what, func(t *testing.T) {
			p := &protocol{spans: map[string][]Span{}, reasons: map[string]string{}}
			for _, s := range tt.seen {
				p.see(s.md, s.gone, at(s.at))
			}
			assert.Equal(t, tt.want, p.of("a"))
		})
	}
}

func TestKeptIsWhatWasGivenUpAndIsThere(t *testing.T) {
	p := &protocol{spans: map[string][]Span{
		"gone":    {{v1alpha1.StateSettling, at(1), at(7)}},
		"leaving": {{State: v1alpha1.StateSettling, From: at(1)}},
		"retried": {{v1alpha1.StateAborted, at(1), at(2)}, {State: v1alpha1.StateDraining, From: at(2)}},
		"z":       {{v1alpha1.StateDraining, at(1), at(7)}, {State: v1alpha1.StateAborted, From: at(7)}},
		"a":       {{State: v1alpha1.StateAborted, From: at(7)}},
	}, reasons: map[string]string{"a": "ReadFailed", "z": "ServingRequests", "gone": "Idle"}}
	assert.Equal(t, []Replica{{Pod: "a", Kept: "ReadFailed"}, {Pod: "z", Kept: "ServingRequests"}}, p.kept())
}
