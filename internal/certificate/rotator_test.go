package certificate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var own = client.ObjectKey{Namespace: "lastcall", Name: "lastcall-webhook"}

// A cluster is what the chart leaves before the first replica runs: an empty
// Secret and two configurations without a CA bundle. After every write it checks
// that the configurations trust the certificate in the Secret.
type cluster struct {
	client.Client
	rotator *Rotator
	writes  int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	meta := metav1.ObjectMeta{Name: own.Name}
	c := &cluster{}
	wrote := func(err error) error {
		if err == nil {
			c.writes++
			c.requireTrust(t)
		}
		return err
	}
	c.Client = fake.NewClientBuilder().
		WithObjects(
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: own.Name}},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{
				{Name: "a.lastcall.dev"}, {Name: "b.lastcall.dev"},
			}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: "c.lastcall.dev"},
			}},
		).
		WithInterceptorFuncs(interceptor.Funcs{
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return wrote(w.Update(ctx, o, opts...))
			},
			Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				return wrote(w.Patch(ctx, o, p, opts...))
			},
		}).
		Build()
	c.rotator = &Rotator{Client: c, Clock: realTime, Secret: own, DNSNames: []string{host, host + ".cluster.local"}}
	return c
}

func (c *cluster) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	require.NoError(t, c.Get(t.Context(), own, secret))
	return secret
}

func (c *cluster) bundles(t *testing.T) [][]byte {
	t.Helper()
	bundles := c.bundlesThere(t)
	require.Len(t, bundles, 3)
	return bundles
}

// bundlesThere are those of the configurations that exist.
func (c *cluster) bundlesThere(t *testing.T) (bundles [][]byte) {
	t.Helper()
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{},
		&admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		require.NoError(t, client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKey{Name: own.Name}, configuration)))
		for _, config := range clientConfigs(configuration) {
			bundles = append(bundles, config.CABundle)
		}
	}
	return bundles
}

// requireTrust fails if a configuration that has a bundle would refuse a replica
// that serves the Secret's certificate.
func (c *cluster) requireTrust(t *testing.T) {
	t.Helper()
	p := pairOf(c.secret(t).Data)
	if parsed, err := p.parse(); err != nil || realTime.Now().After(parsed.Leaf.NotAfter) {
		return
	}
	for _, bundle := range c.bundlesThere(t) {
		if len(bundle) == 0 {
			continue
		}
		p.authorities = bundle
		_, err := p.parse(host)
		require.NoError(t, err, "the API server would refuse the certificate that replicas serve")
	}
}

// settle reconciles until the rotator waits for more than a minute, as a
// controller does, and returns how long it then waits.
func (c *cluster) settle(t *testing.T) time.Duration {
	t.Helper()
	for range 10 {
		before := c.writes
		result, err := c.rotator.Reconcile(t.Context(), c.secret(t))
		require.NoError(t, err)
		switch {
		case result.RequeueAfter > time.Minute:
			return result.RequeueAfter
		case c.writes == before:
			pass(result.RequeueAfter)
		}
	}
	t.Fatal("the rotator does not come to rest")
	return 0
}

func TestTheFirstCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		began := realTime.Now()
		assert.Equal(t, checkInterval, c.settle(t))
		assert.Zero(t, realTime.Since(began), "nobody is served yet, so nothing has to wait")

		p := pairOf(c.secret(t).Data)
		parsed, err := p.parse(host, host+".cluster.local")
		require.NoError(t, err)
		assert.WithinDuration(t, realTime.Now().Add(lifetime), parsed.Leaf.NotAfter, 2*time.Hour)
		for _, bundle := range c.bundles(t) {
			assert.Equal(t, string(p.authorities), string(bundle))
		}

		settled := c.writes
		c.settle(t)
		assert.Equal(t, settled, c.writes, "at rest nothing is written")
	})
}

func TestRenewalRefusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.settle(t)
		first := pairOf(c.secret(t).Data)

		pass(lifetime * 2 / 3)
		result, err := c.rotator.Reconcile(t.Context(), c.secret(t))
		require.NoError(t, err)
		assert.Equal(t, propagation, result.RequeueAfter)
		assert.Equal(t, first, pairOf(c.secret(t).Data), "API servers have yet to hear of the next CA")
		for _, bundle := range c.bundles(t) {
			assert.Contains(t, string(bundle), string(first.authorities), "the present CA stays trusted")
			assert.NotEqual(t, string(first.authorities), string(bundle))
		}

		pass(result.RequeueAfter)
		c.settle(t)
		second := pairOf(c.secret(t).Data)
		assert.NotEqual(t, first, second)

		late := first
		late.authorities = c.bundles(t)[0]
		_, err = late.parse(host)
		assert.NoError(t, err, "a replica that has yet to hear of the new certificate is trusted")

		pass(lifetime * 2 / 3)
		c.settle(t)
		assert.NotContains(t, string(c.bundles(t)[0]), string(first.authorities), "a CA that has expired is dropped")
	})
}

func TestWhatIsRepaired(t *testing.T) {
	ruin := func(key string, value []byte) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) {
			secret := c.secret(t)
			secret.Data[key] = value
			require.NoError(t, c.Update(t.Context(), secret))
		}
	}
	for name, breakIt := range map[string]func(*testing.T, *cluster){
		"the certificate has expired": func(*testing.T, *cluster) { pass(2 * lifetime) },
		"the key is lost":             ruin(corev1.TLSPrivateKeyKey, nil),
		"the certificate is garbage":  ruin(corev1.TLSCertKey, []byte("garbage")),
		"the Secret is emptied": func(t *testing.T, c *cluster) {
			secret := c.secret(t)
			secret.Data = nil
			require.NoError(t, c.Update(t.Context(), secret))
		},
		"the Service has another name": func(_ *testing.T, c *cluster) {
			c.rotator.DNSNames = []string{host, "renamed.lastcall.svc"}
		},
		"a GitOps tool empties a bundle": func(t *testing.T, c *cluster) {
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: own.Name}, configuration))
			configuration.Webhooks[1].ClientConfig.CABundle = nil
			require.NoError(t, c.Update(t.Context(), configuration))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.settle(t)
				breakIt(t, c)
				c.settle(t)

				p := pairOf(c.secret(t).Data)
				parsed, err := p.parse(c.rotator.DNSNames...)
				require.NoError(t, err)
				assert.True(t, realTime.Now().Before(parsed.Leaf.NotAfter))
				for _, bundle := range c.bundles(t) {
					assert.Equal(t, string(p.authorities), string(bundle))
				}
			})
		})
	}
}

func TestASecretFromAnotherAuthorityIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.rotator.DNSNames = []string{host}
		theirs := newAuthority(t, "theirs").issue(t, lifetime)
		secret := c.secret(t)
		secret.Data = theirs.data()
		require.NoError(t, c.Update(t.Context(), secret))

		c.settle(t)
		assert.Equal(t, theirs, pairOf(c.secret(t).Data))
		assert.Equal(t, string(theirs.authorities), string(c.bundles(t)[0]))
	})
}

func TestNothingIsServedBeforeItIsTrusted(t *testing.T) {
	c := newCluster(t)
	configurations := c.deleteConfigurations(t)

	_, err := c.rotator.Reconcile(t.Context(), c.secret(t))
	require.Error(t, err)
	assert.True(t, apierrors.IsNotFound(err), "got %v", err)
	assert.Empty(t, c.secret(t).Data)

	for _, configuration := range configurations {
		require.NoError(t, c.Create(t.Context(), configuration))
	}
	c.settle(t)
	assert.NotEmpty(t, c.secret(t).Data)
}

func TestAMissingConfigurationDoesNotHoldUpTheOther(t *testing.T) {
	for i := range 2 {
		c := newCluster(t)
		configurations := c.deleteConfigurations(t)
		missing, there := configurations[i], configurations[1-i]
		require.NoError(t, c.Create(t.Context(), there))

		c.settle(t)
		stored := pairOf(c.secret(t).Data)
		require.NotEmpty(t, stored.authorities)
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(there), there))
		assert.Equal(t, string(stored.authorities), string(clientConfigs(there)[0].CABundle))

		require.NoError(t, c.Create(t.Context(), missing))
		c.settle(t)
		assert.Equal(t, stored, pairOf(c.secret(t).Data))
		for _, bundle := range c.bundles(t) {
			assert.Equal(t, string(stored.authorities), string(bundle))
		}
	}
}

// deleteConfigurations returns both as they can be created again.
func (c *cluster) deleteConfigurations(t *testing.T) []client.Object {
	t.Helper()
	configurations := []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{},
		&admissionregistrationv1.ValidatingWebhookConfiguration{},
	}
	for _, configuration := range configurations {
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: own.Name}, configuration))
		require.NoError(t, c.Delete(t.Context(), configuration))
		configuration.SetResourceVersion("")
	}
	return configurations
}

func TestTwoLeadersDoNotUndoEachOther(t *testing.T) {
	c := newCluster(t)
	stale := c.secret(t)
	c.settle(t)
	stored := c.secret(t)

	other := &Rotator{Client: c.Client, Clock: realTime, Secret: own, DNSNames: c.rotator.DNSNames}
	result, err := other.Reconcile(t.Context(), stale)
	require.NoError(t, err)
	assert.Equal(t, time.Second, result.RequeueAfter, "it read the Secret before it was filled, and reads it again")
	assert.Equal(t, stored.Data, c.secret(t).Data)
}
