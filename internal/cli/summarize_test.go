package cli

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

func TestEqualFactsGiveEqualReports(t *testing.T) {
	two := int32(2)
	f := facts{owners: map[types.UID]owner{}, optedIn: map[string]bool{"b": true}}
	for _, name := range []string{"x", "y"} {
		uid := types.UID(name)
		f.deployments = append(f.deployments, v1alpha1.ModelDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid},
			Spec:       v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{{Name: "server", Replicas: &two}}},
		})
		for _, ordinal := range []string{"0", "1"} {
			isController := true
			p := engineIn("a", name+"-server-"+ordinal)
			p.Labels = map[string]string{names.LabelManagedBy: names.Operator, names.LabelComponent: "server", names.LabelOrdinal: ordinal}
			p.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: &isController}}
			f.pods = append(f.pods, p)
		}
		f.labelled = append(f.labelled, labelledWorkload{owner{"a", "apps", "Deployment", name}, names.DrainEnabled, ""})
		for _, pod := range []string{"1", "2"} {
			p := engineIn("b", name+pod)
			f.owners[p.UID] = owner{"b", "apps", "Deployment", name}
			f.pods = append(f.pods, p)
		}
	}
	want := summarize(f)
	require.Len(t, want.ModelDeployments, 2)
	require.Len(t, want.ModelDeployments[0].Roles[0].Replicas, 2)
	require.Len(t, want.Workloads, 4)
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		random.Shuffle(len(f.deployments), func(i, j int) { f.deployments[i], f.deployments[j] = f.deployments[j], f.deployments[i] })
		random.Shuffle(len(f.pods), func(i, j int) { f.pods[i], f.pods[j] = f.pods[j], f.pods[i] })
		random.Shuffle(len(f.labelled), func(i, j int) { f.labelled[i], f.labelled[j] = f.labelled[j], f.labelled[i] })
		require.Equal(t, want, summarize(f))
	}
}

func TestWhichReplicasHaveAnOlderSpec(t *testing.T) {
	no, yes := new(bool), new(true)
	for name, c := range map[string]struct {
		role             string // of the spec and the status; the Pods are of the role server
		specHash         string
		generation, seen int64
		pods             []string // the digests of replica 0's Pods, oldest first
		want             *bool
	}{
		"made from the present spec":                             {"server", "a", 2, 2, []string{"a"}, no},
		"made from another":                                      {"server", "b", 2, 2, []string{"a"}, yes},
		"the newest Pod, after an edit was taken back":           {"server", "a", 3, 3, []string{"b"}, yes},
		"the oldest Pod, after an edit was taken back":           {"server", "a", 3, 3, []string{"a"}, no},
		"all Pods alike, and the edit has not replaced any":      {"server", "b", 2, 2, []string{"a", "a"}, yes},
		"one Pod of several":                                     {"server", "b", 2, 2, []string{"a", "b"}, yes},
		"a Pod that lost its digest, which is replaced too":      {"server", "a", 2, 2, []string{""}, yes},
		"an edit the operator has not seen says nothing":         {"server", "a", 3, 2, []string{"b"}, nil},
		"and not of a Pod that is as before it":                  {"server", "a", 3, 2, []string{"a"}, nil},
		"a status without a digest says nothing":                 {"server", "", 2, 2, []string{"a"}, nil},
		"a role the status does not know, such as a dropped one": {"other", "a", 2, 2, []string{"a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			md := v1alpha1.ModelDeployment{
				ObjectMeta: metav1.ObjectMeta{Generation: c.generation},
				Spec:       v1alpha1.ModelDeploymentSpec{Roles: []v1alpha1.Role{{Name: c.role}}},
				Status: v1alpha1.ModelDeploymentStatus{
					ObservedGeneration: c.seen,
					Roles:              []v1alpha1.RoleStatus{{Name: c.role, SpecHash: c.specHash}},
				},
			}
			var pods []corev1.Pod
			for i, hash := range c.pods {
				p := engineIn("a", "md-server-0-"+strconv.Itoa(i))
				p.CreationTimestamp = metav1.Time{Time: time.Unix(int64(i), 0)}
				p.Labels = map[string]string{names.LabelComponent: "server"}
				p.Annotations = map[string]string{names.AnnotationSpecHash: hash}
				pods = append(pods, p)
			}
			var got []replicaReport
			for _, role := range summarizeDeployment(md, pods).Roles {
				got = append(got, role.Replicas...)
			}
			require.Len(t, got, 1)
			require.Equal(t, c.want, got[0].OlderSpec)
		})
	}
}

func TestWhatTheHookOfAPodIsCalled(t *testing.T) {
	for name, c := range map[string]struct {
		pod  podReport
		want string
	}{
		"a leader":                           {podReport{Hook: true, HookReason: names.ReasonEngineRecognized}, "injected"},
		"a leader that cannot be measured":   {podReport{Hook: true, HookReason: names.ReasonNotMeasurable}, "injected: NotMeasurable"},
		"a worker, its leader answers":       {podReport{Member: 1, Hook: true, HookReason: names.ReasonNotMeasurable}, "injected (worker)"},
		"a worker that answers for itself":   {podReport{Member: 1, Hook: true, HookReason: names.ReasonEngineRecognized}, "injected"},
		"a worker without the hook":          {podReport{Member: 1, HookReason: names.ReasonNoRecord}, "no: NoRecord"},
		"a worker with a preStop of its own": {podReport{Member: 1, HookReason: names.ReasonUserPreStop}, "no: UserPreStop"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.pod.hook()) })
	}
}

func TestWhichPodsTheWebhookIsAskedAbout(t *testing.T) {
	for name, c := range map[string]struct {
		namespace        string
		labels           map[string]string
		namespaceOptedIn bool
		want             bool
	}{
		"a Pod that says nothing":                        {"a", nil, false, false},
		"a Pod that opts in":                             {"a", map[string]string{names.LabelDrain: "enabled"}, false, true},
		"a Pod of a namespace that opts in":              {"a", nil, true, true},
		"a Pod that opts out of it":                      {"a", map[string]string{names.LabelDrain: "disabled"}, true, false},
		"a Pod with another value, in it":                {"a", map[string]string{names.LabelDrain: "true"}, true, true},
		"a Pod with another value":                       {"a", map[string]string{names.LabelDrain: "true"}, false, false},
		"a Pod of the operator":                          {"a", map[string]string{names.LabelManagedBy: names.Operator}, false, true},
		"a Pod of lastcall, in a namespace that opts in": {"a", map[string]string{names.LabelPartOf: names.PartOf}, true, false},
		"a Pod of lastcall that opts in":                 {"a", map[string]string{names.LabelPartOf: names.PartOf, names.LabelDrain: "enabled"}, false, false},
		"a Pod of Kubernetes itself":                     {"kube-system", map[string]string{names.LabelDrain: "enabled"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := engineIn(c.namespace, "p")
			p.Labels = c.labels
			require.Equal(t, c.want, isCovered(&p, c.namespaceOptedIn))
		})
	}
}

func TestWhatIsSaidAboutAPod(t *testing.T) {
	for name, c := range map[string]struct {
		record, image string
		hooked        bool
		reason        string
		message       string // part of it
	}{
		"with the hook nothing is said":               {`{"outcome":"injected","reason":"EngineRecognized"}`, "vllm/vllm-openai", true, "", ""},
		"a record that cannot be read is none":        {`{`, "vllm/vllm-openai", false, names.ReasonNoRecord, "the webhook was away"},
		"a restart is advised where it would help":    {"", "vllm/vllm-openai", false, names.ReasonNoRecord, "restart to inject"},
		"and not for what is no engine":               {"", "redis", false, names.ReasonNoEngine, ""},
		"a record that admission would not make anew": {`{"outcome":"skipped","reason":"SeveralEngines"}`, "vllm/vllm-openai", false, names.ReasonSeveralEngines, "admission said so"},
	} {
		t.Run(name, func(t *testing.T) {
			p := engineIn("a", "p")
			p.Spec.Containers[0].Image = c.image
			if c.record != "" {
				p.Annotations = map[string]string{names.AnnotationStatus: c.record}
			}
			hooked, found := inspectPod(&p, owner{"a", "apps", "Deployment", "d"})
			require.Equal(t, c.hooked, hooked)
			if c.reason == "" {
				require.Nil(t, found)
				return
			}
			require.Equal(t, c.reason, found.Reason)
			if c.message == "" {
				require.Empty(t, found.Message)
			}
			require.Contains(t, found.Message, c.message)
		})
	}
}

func engineIn(namespace, name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "vllm/vllm-openai"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}
