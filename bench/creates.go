package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/internal/admission"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
)

const (
	warmUp      = 50
	creates     = 1000              // Pods for each side
	createsTime = 100 * time.Second // fewer Pods if they take longer
	unscheduled = "bench.lastcall.dev/nobody"
)

// label on a Pod is the name of its side, which chooses the webhook that is asked.
const label = "bench.lastcall.dev/side"

// A side is one way for a Pod to be created.
type side struct {
	name       string
	webhook    *webhook // nil if none is asked
	path       string
	annotation string // that the webhook leaves on a Pod, if any
	times      []time.Duration
}

// measureCreates takes the figures of (c): Pods that nobody schedules are created
// one by one, for each side in turn, and deleted before the next turn.
func measureCreates(ctx context.Context, dir string, cluster *kube.Cluster) (_ []figure, err error) {
	program, noop, stop, err := startBoth(ctx, dir, cluster.HostAddress())
	if err != nil {
		return nil, err
	}
	defer stop()
	lastcall := &side{name: "lastcall", webhook: program, path: admission.PathPods, annotation: names.AnnotationStatus}
	nothing := &side{name: "no-op", webhook: noop, path: admission.PathPods}
	annotating := &side{name: "annotating", webhook: noop, path: "/annotate-pods", annotation: "bench.lastcall.dev/annotated"}
	none := &side{name: "none"}

	namespace, err := cluster.CreateNamespace(ctx, "lastcall-bench", nil)
	if err != nil {
		return nil, err
	}
	cleanUp := context.WithoutCancel(ctx)
	defer func() {
		err = errors.Join(err, cluster.Clientset.CoreV1().Namespaces().Delete(cleanUp, namespace, metav1.DeleteOptions{}))
	}()
	configurations := cluster.Clientset.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := configurations.Create(ctx, configuration(namespace, lastcall, nothing, annotating), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, configurations.Delete(cleanUp, namespace, metav1.DeleteOptions{})) }()
	pod, err := enginePod()
	if err != nil {
		return nil, err
	}
	c := creator{pods: cluster.Clientset.CoreV1().Pods(namespace), pod: pod, sides: []*side{lastcall, nothing, annotating, none}}
	if err := c.createAll(ctx); err != nil {
		return nil, err
	}
	what := fmt.Sprintf("(c) Pod create, %d each", len(lastcall.times))
	figures := latencies(what, lastcall.times, nothing.times, "no-op webhook")
	figures = append(figures, latencies(what, lastcall.times, annotating.times, "webhook that adds an annotation")...)
	return append(figures, latencies(what, lastcall.times, none.times, "no webhook")...), nil
}

// A creator creates the same Pod for each of its sides in turn.
type creator struct {
	pods  clientcorev1.PodInterface
	pod   *corev1.Pod
	sides []*side
}

// createAll fills in the times of the sides.
func (c creator) createAll(ctx context.Context) error {
	if err := c.warmUp(ctx); err != nil {
		return err
	}
	before, err := c.answered(ctx)
	if err != nil {
		return err
	}
	say("(c) %d Pods for each side", creates)
	begin := time.Now()
	rounds := 0
	for ; rounds < creates && time.Since(begin) < createsTime; rounds++ {
		if err := c.round(ctx, rounds); err != nil {
			return err
		}
	}
	after, err := c.answered(ctx)
	if err != nil {
		return err
	}
	for name, n := range after {
		if n-before[name] != rounds {
			return fmt.Errorf("the webhook of side %s answered %d times for %d Pods", name, n-before[name], rounds)
		}
	}
	return nil
}

// warmUp creates Pods until the API server asks the webhooks, and some more so
// that caches are filled and connections open.
func (c creator) warmUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the API server does not call the webhooks"))
	defer cancel()
	for round, warm := 0, 0; warm < warmUp; round++ {
		err := c.round(ctx, round)
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		if err == nil {
			warm++
		}
	}
	for _, s := range c.sides {
		s.times = nil
	}
	return nil
}

// answered is how often the webhook of each side has answered.
func (c creator) answered(ctx context.Context) (map[string]int, error) {
	counts := map[string]int{}
	for _, s := range c.sides {
		if s.webhook == nil {
			continue
		}
		var err error
		if counts[s.name], err = s.webhook.answered(ctx, s.path); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// round creates a Pod for each side, another side first in each round.
func (c creator) round(ctx context.Context, round int) error {
	for i := range c.sides {
		s := c.sides[(round+i)%len(c.sides)]
		pod := c.pod.DeepCopy()
		pod.Labels[label] = s.name
		begin := time.Now()
		created, err := c.pods.Create(ctx, pod, metav1.CreateOptions{})
		s.times = append(s.times, time.Since(begin))
		if err != nil {
			return err
		}
		for _, other := range c.sides {
			if _, has := created.Annotations[other.annotation]; has != (other == s && s.annotation != "") {
				return fmt.Errorf("creating Pod %s of side %s: its annotation %s is there: %t", created.Name, s.name, other.annotation, has)
			}
		}
	}
	return c.pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
}

// enginePod is a Pod as a user would create it from what enginePodFile came from.
// What else has to exist for it is taken out.
func enginePod() (*corev1.Pod, error) {
	text, err := os.ReadFile(enginePodFile)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		return nil, fmt.Errorf("reading %s: %w", enginePodFile, err)
	}
	pod.ObjectMeta = metav1.ObjectMeta{GenerateName: pod.GenerateName, Labels: pod.Labels, Annotations: pod.Annotations}
	delete(pod.Labels, names.LabelDrain) // a lastcall installed in the cluster is not asked
	pod.Spec.SchedulerName = unscheduled
	pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount = "", ""
	pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = "", nil, nil
	return pod, nil
}

// configuration sends the Pods of a namespace to the webhooks of their sides, with
// the settings of the chart, except that a webhook that does not answer is an
// error.
func configuration(namespace string, sides ...*side) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	for _, s := range sides {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name:                    s.name + ".bench.lastcall.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new(s.webhook.url + s.path), CABundle: s.webhook.authorities},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{label: s.name}},
			FailurePolicy:           new(admissionregistrationv1.Fail),
			ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			MatchPolicy:             new(admissionregistrationv1.Equivalent),
			TimeoutSeconds:          new(int32(5)),
			AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
					Scope: new(admissionregistrationv1.NamespacedScope),
				},
			}},
		})
	}
	return c
}
