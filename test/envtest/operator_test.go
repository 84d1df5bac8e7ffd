package envtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

// installOperator installs what the chart gives the operator of a release in a
// namespace of its own, and returns the ServiceAccount's name and so the Lease's.
func installOperator(t *testing.T) client.ObjectKey {
	t.Helper()
	ns := namespace(t, nil)
	documents, err := chart.Render(t.Context(), "lastcall", ns, "--show-only=templates/operator/rbac.yaml")
	require.NoError(t, err)
	install[*coordinationv1.Lease](t, documents, "Lease")
	return installPermissions(t, documents)
}

// clientOf calls the API server as the account.
func clientOf(t *testing.T, account client.ObjectKey) client.Client {
	t.Helper()
	as := rest.AnonymousClientConfig(config)
	as.BearerToken = tokenOf(t, account)
	c, err := client.New(as, client.Options{})
	require.NoError(t, err)
	return c
}

// rulesOf is all that an account may do in a namespace as the API server itself
// sums it up: the verbs on each resource, and on an object where one is named.
func rulesOf(t *testing.T, account client.ObjectKey, namespace string) map[string]string {
	t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	require.NoError(t, clientOf(t, account).Create(t.Context(), review))
	require.False(t, review.Status.Incomplete, review.Status.EvaluationError)
	rules := map[string]string{}
	add := func(what string, verbs []string) {
		rules[what] = strings.TrimSpace(rules[what] + " " + strings.Join(verbs, " "))
	}
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				what := schema.GroupResource{Group: group, Resource: resource}.String()
				if len(rule.ResourceNames) > 0 {
					what += " " + strings.Join(rule.ResourceNames, ",")
				}
				add(what, rule.Verbs)
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		add(strings.Join(rule.NonResourceURLs, ","), rule.Verbs)
	}
	return rules
}

// granted is what an account may do in a namespace beyond what every account may.
func granted(t *testing.T, account client.ObjectKey, namespace string) map[string]string {
	t.Helper()
	nobody := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, GenerateName: "nobody-"}}
	require.NoError(t, api.Create(t.Context(), nobody))
	anybody := rulesOf(t, client.ObjectKeyFromObject(nobody), namespace)
	rules := rulesOf(t, account, namespace)
	maps.DeleteFunc(rules, func(what, verbs string) bool { return anybody[what] == verbs })
	return rules
}

func TestTheOperatorMayDoJustWhatItNeeds(t *testing.T) {
	account := installOperator(t)
	want := map[string]string{
		"modeldeployments.lastcall.dev":            "get list watch patch",
		"modeldeployments/status.lastcall.dev":     "patch",
		"modeldeployments/finalizers.lastcall.dev": "update",
		"pods":                        "get list watch create delete",
		"services":                    "get list watch create patch delete",
		"poddisruptionbudgets.policy": "get list watch create patch",
		"events.events.k8s.io":        "create patch",
	}
	assert.Equal(t, want, granted(t, account, "default"), "anywhere")
	want["leases.coordination.k8s.io"] = "create"
	want["leases.coordination.k8s.io "+account.Name] = "get update"
	assert.Equal(t, want, granted(t, account, account.Namespace), "in its own namespace")

	as := clientOf(t, account)
	pod := enginePod("default", "any", nil)
	for what, err := range map[string]error{
		"to read Secrets":          as.List(t.Context(), &corev1.SecretList{}, client.InNamespace(account.Namespace)),
		"to run something in Pods": as.SubResource("exec").Create(t.Context(), pod, pod.DeepCopy()),
		"to evict":                 as.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{}),
		"to delete all Pods":       as.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace("default")),
		"to delete a budget":       as.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: pod.ObjectMeta}),
		"to change a spec":         as.Update(t.Context(), modelDeployment("default", "any")),
		"to delete the intent":     as.Delete(t.Context(), modelDeployment("default", "any")),
	} {
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
}

func TestAnOperatorThatMayNotWatchIsNotReady(t *testing.T) {
	ns := namespace(t, nil)
	documents, err := chart.Render(t.Context(), "lastcall", ns, "--show-only=templates/operator/rbac.yaml")
	require.NoError(t, err)
	install[*coordinationv1.Lease](t, documents, "Lease")
	install[*rbacv1.Role](t, documents, "Role")
	install[*rbacv1.RoleBinding](t, documents, "RoleBinding")
	account := client.ObjectKeyFromObject(install[*corev1.ServiceAccount](t, documents, "ServiceAccount")[0])
	replica := startReplica(t, built(t, "operator"), "--namespace="+ns, "--name="+account.Name, "--kubeconfig="+kubeconfigOf(t, account))
	requireLeader(t, account)
	eventually(t, func() error {
		if replica.health("/readyz") == nil {
			return errors.New("it is ready")
		}
		return nil
	})
	require.NoError(t, replica.health("/livez"), "to restart it would not help")
}

// running is an operator's ModelDeployment as a test sees it.
type running struct{ *v1alpha1.ModelDeployment }

// pods returns the Pods once there are as many, by name.
func (r running) pods(t *testing.T, count int) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	eventually(t, func() error {
		err := api.List(t.Context(), &pods, client.InNamespace(r.Namespace), client.MatchingLabels{names.LabelInstance: r.Name})
		if err == nil && len(pods.Items) != count {
			err = fmt.Errorf("there are %d Pods instead of %d", len(pods.Items), count)
		}
		return err
	})
	return pods.Items
}

// becomeReady plays the kubelet of the Pods.
func (r running) becomeReady(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		pods[i].Status.Phase = corev1.PodRunning
		pods[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		require.NoError(t, api.Status().Update(t.Context(), &pods[i]))
	}
}

// reaches returns once the status says so much.
func (r running) reaches(t *testing.T, phase v1alpha1.Phase, roleSummary string) {
	t.Helper()
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(r), r.ModelDeployment); err != nil {
			return err
		}
		if s := r.Status; s.Phase != phase || s.RoleSummary != roleSummary || s.ObservedGeneration != r.Generation {
			return fmt.Errorf("it is %s %s at %d of %d", s.Phase, s.RoleSummary, s.ObservedGeneration, r.Generation)
		}
		return nil
	})
}

// change changes the spec, whoever else writes at the same time.
func (r running) change(t *testing.T, change func(*v1alpha1.ModelDeploymentSpec)) {
	t.Helper()
	eventually(t, func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(r), r.ModelDeployment); err != nil {
			return err
		}
		change(&r.Spec)
		return api.Update(t.Context(), r.ModelDeployment)
	})
}

// holder is who the Lease says leads; empty for nobody.
func holder(t *testing.T, lease client.ObjectKey) (string, error) {
	t.Helper()
	var found coordinationv1.Lease
	if err := api.Get(t.Context(), lease, &found); err != nil || found.Spec.HolderIdentity == nil {
		return "", err
	}
	return *found.Spec.HolderIdentity, nil
}

// requireLeader waits until somebody leads.
func requireLeader(t *testing.T, lease client.ObjectKey) (leader string) {
	t.Helper()
	eventually(t, func() (err error) {
		if leader, err = holder(t, lease); err == nil && leader == "" {
			err = errors.New("nobody leads")
		}
		return err
	})
	return leader
}

// leaseDuration is the manager's default; a waiting replica looks every 2 s, and up
// to 1.2 times that later.
const leaseDuration = 15 * time.Second

// The program itself, with the permissions of the chart, two replicas of it, and
// the admission webhook that the Pods go through.
func TestTwoReplicasOfTheOperator(t *testing.T) {
	account := installOperator(t)
	binary := built(t, "operator")
	flags := []string{"--namespace=" + account.Namespace, "--name=" + account.Name, "--kubeconfig=" + kubeconfigOf(t, account)}
	first := startReplica(t, binary, flags...)
	eventually(t, func() error { return first.health("/livez") })
	leader := requireLeader(t, account)
	second := startReplica(t, binary, flags...)
	for _, replica := range []*replica{first, second} {
		eventually(t, func() error { return replica.health("/readyz") })
	}

	md := running{modelDeployment(namespace(t, nil), "chat")}
	md.Spec.Roles = []v1alpha1.Role{{Name: "server", Replicas: new(int32(2))}, {Name: "spare", Replicas: new(int32(0))}}
	require.NoError(t, api.Create(t.Context(), md.ModelDeployment))
	pods := md.pods(t, 2)
	for i := range pods {
		assert.True(t, injected(&pods[i]), "%s has its drain window", pods[i].Name)
		assert.True(t, metav1.IsControlledBy(&pods[i], md), pods[i].Name)
	}
	md.reaches(t, v1alpha1.PhaseStarting, "0S")
	md.becomeReady(t, pods)
	md.reaches(t, v1alpha1.PhaseReady, "2S")
	assert.Equal(t, []string{"chat", "chat-server", "chat-spare"}, md.objects(t, &corev1.ServiceList{}))
	assert.Equal(t, []string{"chat-server", "chat-spare"}, md.objects(t, &policyv1.PodDisruptionBudgetList{}))
	eventually(t, func() error { return md.told(t, names.EventReplicaCreated) })
	t.Logf("resident memory: %d KiB of the leader, %d KiB of the other", first.resident(t), second.resident(t))

	t.Run("when the leader is killed the other goes on", func(t *testing.T) {
		require.NoError(t, first.process.Process.Kill())
		_ = first.process.Wait()
		killed := time.Now()
		md.change(t, func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles[0].Replicas = new(int32(3)) })
		pods := md.pods(t, 3)
		t.Logf("the other worked %s after the kill", time.Since(killed).Round(100*time.Millisecond))
		assert.Less(t, time.Since(killed), leaseDuration+10*time.Second)
		md.becomeReady(t, pods[2:])
		md.reaches(t, v1alpha1.PhaseReady, "3S")
		now, err := holder(t, account)
		require.NoError(t, err)
		assert.NotEqual(t, leader, now)
	})

	t.Run("a Pod that failed is made again", func(t *testing.T) {
		pods := md.pods(t, 3)
		failed := pods[1]
		failed.Status.Phase = corev1.PodFailed
		require.NoError(t, api.Status().Update(t.Context(), &failed))
		eventually(t, func() error {
			var again corev1.Pod
			err := api.Get(t.Context(), client.ObjectKeyFromObject(&failed), &again)
			if err == nil && again.UID == failed.UID {
				err = errors.New("it is still the same")
			}
			return err
		})
		md.becomeReady(t, md.pods(t, 3)[1:2])
		md.reaches(t, v1alpha1.PhaseReady, "3S")
	})

	t.Run("a role that was dropped leaves no Service", func(t *testing.T) {
		md.change(t, func(spec *v1alpha1.ModelDeploymentSpec) { spec.Roles = spec.Roles[:1] })
		eventually(t, func() error {
			if services := md.objects(t, &corev1.ServiceList{}); slices.Contains(services, "chat-spare") {
				return errors.New("chat-spare is still there")
			}
			return nil
		})
		assert.Equal(t, []string{"chat", "chat-server"}, md.objects(t, &corev1.ServiceList{}))
	})

	t.Run("a Lease that was deleted comes back", func(t *testing.T) {
		require.NoError(t, api.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: account.Name}}))
		requireLeader(t, account)
		eventually(t, func() error { return second.health("/readyz") })
	})

	t.Run("a leader that leaves gives the lease back", func(t *testing.T) {
		require.NoError(t, second.process.Process.Signal(syscall.SIGTERM))
		signalled := time.Now()
		require.NoError(t, second.process.Wait(), "it ends in order")
		assert.Less(t, time.Since(signalled), 15*time.Second)
		now, err := holder(t, account)
		require.NoError(t, err)
		assert.Empty(t, now)
	})

	for _, replica := range []*replica{first, second} {
		assert.NotContains(t, replica.said(t), "forbidden", "the permissions suffice")
	}
}

// objects are the names of what is there of the list's kind.
func (r running) objects(t *testing.T, list client.ObjectList) (found []string) {
	t.Helper()
	require.NoError(t, api.List(t.Context(), list, client.InNamespace(r.Namespace)))
	require.NoError(t, meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err == nil {
			found = append(found, accessor.GetName())
		}
		return err
	}))
	return found
}

// told has nothing to say once an event with the reason is there.
func (r running) told(t *testing.T, reason string) error {
	t.Helper()
	var events eventsv1.EventList
	if err := api.List(t.Context(), &events, client.InNamespace(r.Namespace)); err != nil {
		return err
	}
	if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == reason && e.Regarding.Name == r.Name }) {
		return fmt.Errorf("no event %s among %d", reason, len(events.Items))
	}
	return nil
}
