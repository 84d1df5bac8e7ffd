package render

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestDigest(t *testing.T) {
	term := func(s *metav1.LabelSelector) any { return corev1.PodAffinityTerm{NamespaceSelector: s} }
	tests := map[string]struct {
		a, b any
		same bool
	}{
		"nil and empty lists":                 {corev1.Container{}, corev1.Container{Args: []string{}}, true},
		"nil and empty maps":                  {corev1.PodSpec{}, corev1.PodSpec{NodeSelector: map[string]string{}}, true},
		"an empty word":                       {corev1.Container{Args: []string{"a"}}, corev1.Container{Args: []string{"a", ""}}, false},
		"a label without a value":             {corev1.PodSpec{}, corev1.PodSpec{NodeSelector: map[string]string{"a": ""}}, false},
		"a selector of everything":            {term(nil), term(&metav1.LabelSelector{}), false},
		"such a selector, with an empty map":  {term(&metav1.LabelSelector{MatchLabels: map[string]string{}}), term(&metav1.LabelSelector{}), true},
		"false and unset":                     {corev1.PodSpec{}, corev1.PodSpec{EnableServiceLinks: new(false)}, false},
		"a port's number and its name":        {intstr.FromInt32(80), intstr.FromString("80"), false},
		"two ports":                           {intstr.FromInt32(80), intstr.FromInt32(81), false},
		"a volume's source":                   {corev1.Volume{Name: "a"}, corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, false},
		"the order of arguments":              {[]string{"a", "b"}, []string{"b", "a"}, false},
		"words that only look alike together": {[]string{"a b"}, []string{"a", "b"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.same, digest(test.a) == digest(test.b))
		})
	}
}
