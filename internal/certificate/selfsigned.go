package certificate

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/internal/election"
)

// remedy ends the sentence about an object of the chart that somebody deleted. The
// webhook may create none of them.
const remedy = "`helm upgrade` with the same values brings it back"

// SelfSigned is a webhook that makes its own certificate. One name is that of
// its Service, its Secret, its Lease and its two webhook configurations.
type SelfSigned struct {
	Namespace, Name string
}

// CacheOptions limits a manager's cache to the objects of this webhook, which
// are also all that its permissions reach.
func (s SelfSigned) CacheOptions() cache.Options {
	name := fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name)
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{s.Namespace: {FieldSelector: name}}},
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   {Field: name},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: name},
	}}
}

// Lock is what the replicas elect with.
func (s SelfSigned) Lock(config *rest.Config) (resourcelock.Interface, error) {
	found, err := election.New(config, client.ObjectKey{Namespace: s.Namespace, Name: s.Name})
	if err != nil {
		return nil, err
	}
	return lock{found}, nil
}

// lock is a Lease that is never created, only found: the election logs why.
type lock struct{ resourcelock.Interface }

var errLeaseMissing = errors.New("the Lease is missing and nobody renews the certificate; " + remedy)

func (lock) Create(context.Context, resourcelock.LeaderElectionRecord) error { return errLeaseMissing }

// Register keeps the certificate on the elected replica and fills serving on
// each. The cache of mgr must be limited by CacheOptions.
func (s SelfSigned) Register(mgr ctrl.Manager, serving *Serving) error {
	secret := client.ObjectKey{Namespace: s.Namespace, Name: s.Name}
	follower := &Follower{Client: mgr.GetClient(), Secret: secret, Serving: serving}
	if err := follower.Register(mgr); err != nil {
		return err
	}
	rotator := &Rotator{
		Client: mgr.GetClient(),
		Clock:  serving.Clock,
		Secret: secret,
		DNSNames: []string{
			fmt.Sprintf("%s.%s.svc", s.Name, s.Namespace),
			fmt.Sprintf("%s.%s.svc.cluster.local", s.Name, s.Namespace),
		},
	}
	return rotator.Register(mgr)
}
