package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/api/v1alpha1"
)

const (
	// lookInterval is between two looks at the cluster.
	lookInterval = 500 * time.Millisecond
	// lookTimeout bounds one look and the deed that follows from it, so that an API
	// server that does not answer is asked again.
	lookTimeout = 20 * time.Second
	// lostAfter is how long after its grace period a Pod is taken for lost: its node
	// does not answer, and would keep an uninstall waiting for ever.
	lostAfter = 10 * time.Second
)

// Values of names.LabelComponent on what the chart installs, and the ends of the names.
const (
	componentWebhook  = "webhook"
	componentOperator = "operator"
	componentRetirer  = "retirer"
)

// The kinds of what an uninstall takes away itself.
var (
	mutatingConfiguration   = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}
	validatingConfiguration = schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}
)

// newUninstall is what the chart's Job runs before helm deletes anything.
func newUninstall(s Streams) *cobra.Command {
	var at cluster
	var name string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:    "uninstall --name NAME",
		Short:  "Leave nothing stuck behind; the chart runs this before it is uninstalled",
		Hidden: true,
		Long: `Scales the operator and the retirer to zero and waits until their Pods are gone, then
deletes the webhook configurations, then takes the finalizer ` + names.Finalizer + `
off every ModelDeployment. ` + finalizersCost + `

What is gone already is passed over, what fails is tried again until --timeout, and it
can be run again.

Exit codes: 0 nothing is left to do, 1 it could not be done in time, 3 the command could
not be run as asked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case name == "":
				return usage("--name is needed: what the names of the release's Deployments begin with, such as lastcall for lastcall-operator")
			case timeout <= 0:
				return badTimeout(timeout)
			}
			c, namespace, err := at.connect()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			u := uninstaller{client: c, namespace: namespace, name: name, clock: clock.RealClock{}, out: s.Out}
			if err := u.run(ctx); err != nil {
				return exit{exitFailed, fmt.Errorf("not done after %s: %w", timeout, err)}
			}
			return nil
		},
	}
	at.addFlags(cmd)
	cmd.Flags().StringVar(&name, "name", "", "what the names of the release's objects begin with: NAME-operator, NAME-retirer, NAME-webhook")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long all of it may take")
	return cmd
}

// situation is what one look found that an uninstall has to care about.
type situation struct {
	// running are the Deployments that are to have replicas.
	running []string
	// stopping are Deployments whose end their controller has not confirmed, and Pods
	// that are there, in words.
	stopping []string
	// configurations of webhooks are there.
	configurations []metav1.PartialObjectMetadata
	// held are the ModelDeployments with the finalizer. They are looked for last,
	// because until the rest is gone more could come.
	held []v1alpha1.ModelDeployment
}

// A step is the one thing to do in a situation.
type step int

const (
	stepScale step = iota
	stepWait
	stepDeleteConfigurations
	stepReleaseHeld
	stepDone
)

// next keeps the order whatever happens: somebody who scales the operator up again
// is undone before another finalizer is taken off.
func (s situation) next() step {
	switch {
	case len(s.running) > 0:
		return stepScale
	case len(s.stopping) > 0:
		return stepWait
	case len(s.configurations) > 0:
		return stepDeleteConfigurations
	case len(s.held) > 0:
		return stepReleaseHeld
	}
	return stepDone
}

// describe is the step in words, for the log and for who has to finish it by hand.
func (s situation) describe() string {
	switch s.next() {
	case stepScale:
		return "scaling to zero: " + strings.Join(s.running, ", ")
	case stepWait:
		return "waiting for the end of " + strings.Join(s.stopping, ", ")
	case stepDeleteConfigurations:
		var all []string
		for _, c := range s.configurations {
			all = append(all, c.Kind+"/"+c.Name)
		}
		return "deleting " + strings.Join(all, ", ")
	case stepReleaseHeld:
		return fmt.Sprintf("taking the finalizer %s off %d ModelDeployments", names.Finalizer, len(s.held))
	}
	return "done: nothing of lastcall holds anything"
}

type uninstaller struct {
	client          client.Client
	namespace, name string
	clock           clock.Clock
	out             io.Writer
}

// run looks and acts until there is nothing left to do. It ends with ctx.
func (u *uninstaller) run(ctx context.Context) error {
	said := ""
	say := func(text string) {
		if text != said {
			fmt.Fprintln(u.out, text)
			said = text
		}
	}
	var failed error
	for {
		s, err := u.pass(ctx, say)
		if err == nil && s.next() == stepDone {
			return nil
		}
		// The end of our own time is no news; what went wrong before it is.
		if err != nil && ctx.Err() == nil {
			say("trying again: " + err.Error())
		}
		if ctx.Err() == nil {
			failed = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s. Run it again, or finish by hand: helm uninstall --no-hooks, and kubectl lastcall finalizers --remove --all --all-namespaces", s.describe()), failed)
		case <-u.clock.After(lookInterval):
		}
	}
}

// pass is one look and the deed that follows from it.
func (u *uninstaller) pass(ctx context.Context, say func(string)) (situation, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s, err := u.look(ctx)
	if err != nil {
		return s, err
	}
	say(s.describe())
	switch s.next() {
	case stepScale:
		for _, name := range s.running {
			if err := u.scaleToZero(ctx, name); err != nil {
				return s, err
			}
		}
	case stepDeleteConfigurations:
		for i := range s.configurations {
			c := &s.configurations[i]
			err := u.client.Delete(ctx, c, client.Preconditions{UID: &c.UID})
			if client.IgnoreNotFound(err) != nil {
				return s, fmt.Errorf("deleting %s %q: %w", c.Kind, c.Name, err)
			}
		}
	case stepReleaseHeld:
		_, err := removeFinalizers(ctx, u.client, s.held)
		return s, err
	}
	return s, nil
}

func (u *uninstaller) look(ctx context.Context) (s situation, err error) {
	for _, component := range []string{componentOperator, componentRetirer} {
		if err := u.lookAt(ctx, &s, component); err != nil {
			return s, err
		}
	}
	for _, kind := range []schema.GroupVersionKind{mutatingConfiguration, validatingConfiguration} {
		var c metav1.PartialObjectMetadata
		c.SetGroupVersionKind(kind)
		err := u.client.Get(ctx, client.ObjectKey{Name: u.name + "-" + componentWebhook}, &c)
		if client.IgnoreNotFound(err) != nil {
			return s, fmt.Errorf("reading the %s: %w", kind.Kind, err)
		}
		if err == nil {
			c.SetGroupVersionKind(kind)
			s.configurations = append(s.configurations, c)
		}
	}
	if s.next() == stepDone {
		s.held, err = withFinalizer(ctx, u.client, "", nil)
	}
	return s, err
}

// lookAt adds the Deployment and the Pods of a component.
func (u *uninstaller) lookAt(ctx context.Context, s *situation, component string) error {
	var d appsv1.Deployment
	err := u.client.Get(ctx, client.ObjectKey{Namespace: u.namespace, Name: u.name + "-" + component}, &d)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Deployment of the %s: %w", component, err)
	}
	switch {
	case err != nil: // it is gone; Pods of it may not be
	case d.Spec.Replicas == nil || *d.Spec.Replicas > 0: // unset means one
		s.running = append(s.running, d.Name)
	case d.Status.ObservedGeneration < d.Generation || d.Status.Replicas > 0:
		s.stopping = append(s.stopping, "Deployment/"+d.Name)
	}
	var pods corev1.PodList
	if err := u.client.List(ctx, &pods, client.InNamespace(u.namespace), client.MatchingLabels{
		names.LabelPartOf: names.PartOf, names.LabelComponent: component,
	}); err != nil {
		return fmt.Errorf("reading the Pods of the %s: %w", component, err)
	}
	for i := range pods.Items {
		if mayWork(&pods.Items[i], u.clock.Now()) {
			s.stopping = append(s.stopping, "Pod/"+pods.Items[i].Name)
		}
	}
	return nil
}

// mayWork is whether something may still run in the Pod. A Deployment that is scaled
// to zero leaves the Pods that were evicted.
func mayWork(pod *corev1.Pod, now time.Time) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	// The timestamp is the end of its grace period.
	return pod.DeletionTimestamp == nil || now.Sub(pod.DeletionTimestamp.Time) < lostAfter
}

func (u *uninstaller) scaleToZero(ctx context.Context, name string) error {
	var d unstructured.Unstructured
	d.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	d.SetNamespace(u.namespace)
	d.SetName(name)
	err := u.client.SubResource("scale").Patch(ctx, &d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("scaling Deployment %q to zero: %w", name, err)
	}
	return nil
}
