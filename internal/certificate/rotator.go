package certificate

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// lifetime of a certificate; it is renewed when two thirds are over.
	lifetime = 365 * 24 * time.Hour
	// propagation is how long API servers have to read the configurations that
	// trust the next certificate before a replica may serve it.
	propagation = 10 * time.Second
	// checkInterval bounds the wait for a renewal, so that a clock that was
	// changed is noticed.
	checkInterval = time.Hour
)

// Rotator keeps a valid certificate in the Secret and keeps both webhook
// configurations, which have the Secret's name, trusting it. It runs on the
// elected replica.
//
// Each certificate comes with a CA of its own, whose key is never stored. A
// configuration trusts the next CA beside the present one before the certificate
// changes, so there is no moment in which the API server would refuse a replica.
type Rotator struct {
	Client client.Client
	// Clock says when a certificate is due.
	Clock  clock.PassiveClock
	Secret client.ObjectKey
	// DNSNames are the names that the API server calls the webhook by.
	DNSNames []string

	// next is made but not seen in the Secret yet; trustedAt is when the
	// configurations came to trust it.
	next      *pair
	trustedAt time.Time
}

// Register adds the rotator to mgr.
func (r *Rotator) Register(mgr ctrl.Manager) error {
	toSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: r.Secret}}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("certificate-rotation").
		For(&corev1.Secret{}).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, toSecret).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, toSecret).
		Complete(reconcile.AsReconciler(r.Client, r))
}

// Reconcile takes the next step of a rotation, or only repairs what the
// configurations trust.
func (r *Rotator) Reconcile(ctx context.Context, secret *corev1.Secret) (ctrl.Result, error) {
	result, err := r.step(ctx, secret)
	if apierrors.IsConflict(err) { // it was read from a cache that is behind
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	return result, err
}

func (r *Rotator) step(ctx context.Context, secret *corev1.Secret) (ctrl.Result, error) {
	now := r.Clock.Now()
	present := pairOf(secret.Data)
	serves, invalid := present.parse(r.DNSNames...)
	if invalid == nil && now.Before(renewal(serves.Leaf)) {
		r.next = nil
		untilRenewal := renewal(serves.Leaf).Sub(now)
		return ctrl.Result{RequeueAfter: min(untilRenewal, checkInterval)}, r.trust(ctx, func([]byte) []byte {
			return present.authorities
		})
	}

	if r.next == nil {
		next, err := issue(r.DNSNames)
		if err != nil {
			return ctrl.Result{}, err
		}
		next.authorities = append(next.authorities, unexpired(present.authorities, now)...)
		r.next, r.trustedAt = &next, time.Time{}
	}
	// What is trusted stays so until the Secret is seen to have changed: this
	// replica may be the one that reads late.
	if err := r.trust(ctx, func(bundle []byte) []byte {
		if bytes.Contains(bundle, r.next.authorities) {
			return bundle
		}
		return slices.Concat(r.next.authorities, bundle)
	}); err != nil {
		return ctrl.Result{}, err
	}
	if r.trustedAt.IsZero() {
		r.trustedAt = now
	}
	inService := invalid == nil && now.Before(serves.Leaf.NotAfter)
	if wait := propagation - now.Sub(r.trustedAt); inService && wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}

	secret = secret.DeepCopy()
	secret.Data = r.next.data()
	if err := r.Client.Update(ctx, secret); err != nil {
		return ctrl.Result{}, fmt.Errorf("storing the next certificate: %w", err)
	}
	log.FromContext(ctx).Info("Stored a new certificate")
	return ctrl.Result{}, nil
}

// trust changes the CA bundles of both configurations where change wants so. One
// that is missing does not hold up the other: it is seen when it comes back.
func (r *Rotator) trust(ctx context.Context, change func(bundle []byte) []byte) error {
	mutating := r.trustIn(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{}, change)
	validating := r.trustIn(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{}, change)
	if apierrors.IsNotFound(mutating) && apierrors.IsNotFound(validating) {
		return mutating
	}
	for _, err := range []error{mutating, validating} {
		if apierrors.IsNotFound(err) {
			log.FromContext(ctx).Error(err, "A webhook configuration is missing; "+remedy)
		}
	}
	return errors.Join(client.IgnoreNotFound(mutating), client.IgnoreNotFound(validating))
}

func (r *Rotator) trustIn(ctx context.Context, configuration client.Object, change func(bundle []byte) []byte) error {
	if err := r.Client.Get(ctx, client.ObjectKey{Name: r.Secret.Name}, configuration); err != nil {
		return fmt.Errorf("reading what to write the CA bundle into: %w", err)
	}
	before := configuration.DeepCopyObject().(client.Object)
	for _, config := range clientConfigs(configuration) {
		config.CABundle = change(config.CABundle)
	}
	if equality.Semantic.DeepEqual(before, configuration) {
		return nil
	}
	// The lock keeps an upgrade that adds an entry from meeting a list without it.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, configuration, patch); err != nil {
		return fmt.Errorf("writing the CA bundle: %w", err)
	}
	log.FromContext(ctx).Info("Wrote the CA bundle into a webhook configuration", "kind", fmt.Sprintf("%T", configuration))
	return nil
}

func clientConfigs(configuration client.Object) (configs []*admissionregistrationv1.WebhookClientConfig) {
	switch c := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			configs = append(configs, &c.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			configs = append(configs, &c.Webhooks[i].ClientConfig)
		}
	}
	return configs
}

// renewal is when leaf is to be replaced.
func renewal(leaf *x509.Certificate) time.Time {
	return leaf.NotAfter.Add(-leaf.NotAfter.Sub(leaf.NotBefore) / 3)
}

// issue makes a CA and a certificate for names that it signed, and forgets the
// CA's key.
func issue(names []string) (pair, error) {
	chain, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{
		Host:         names[0],
		AlternateDNS: names[1:],
		MaxAge:       lifetime,
	})
	if err != nil {
		return pair{}, fmt.Errorf("making a certificate: %w", err)
	}
	_, authority := pem.Decode(chain)
	return pair{certificate: chain, key: key, authorities: bytes.Clone(authority)}, nil
}

// unexpired returns the certificates of bundle that are valid at now or later.
func unexpired(bundle []byte, now time.Time) []byte {
	var kept []byte
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return kept
		}
		if authority, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(authority.NotAfter) {
			kept = append(kept, pem.EncodeToMemory(block)...)
		}
	}
}
