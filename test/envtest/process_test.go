package envtest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lastcall-dev/lastcall/test/envtest/chart"
)

func TestTheWebhookMayDoJustWhatItNeeds(t *testing.T) {
	documents, err := chart.Render(t.Context(), "lastcall", releaseNamespace, "--show-only=templates/webhook/rbac.yaml")
	require.NoError(t, err)
	account := installPermissions(t, documents)
	user := fmt.Sprintf("system:serviceaccount:%s:%s", account.Namespace, account.Name)
	may := func(verb, group, resource, namespace, name string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name,
			},
		}}
		require.NoError(t, api.Create(t.Context(), review))
		return review.Status.Allowed
	}
	const admissionGroup = "admissionregistration.k8s.io"
	own := []struct {
		group, resource, namespace string
		verbs                      string
	}{
		{"", "secrets", account.Namespace, "get list watch update"},
		{"coordination.k8s.io", "leases", account.Namespace, "get update"},
		{admissionGroup, "mutatingwebhookconfigurations", "", "get list watch patch"},
		{admissionGroup, "validatingwebhookconfigurations", "", "get list watch patch"},
	}
	for _, object := range own {
		for _, verb := range strings.Fields("get list watch create update patch delete deletecollection") {
			allowed := strings.Contains(" "+object.verbs+" ", " "+verb+" ")
			assert.Equal(t, allowed, may(verb, object.group, object.resource, object.namespace, account.Name), "%s its own %s", verb, object.resource)
			assert.False(t, may(verb, object.group, object.resource, object.namespace, "another"), "%s another of the %s", verb, object.resource)
			assert.False(t, may(verb, object.group, object.resource, object.namespace, ""), "%s all %s", verb, object.resource)
		}
	}
	for _, resource := range []string{"pods", "pods/exec", "configmaps", "events", "serviceaccounts/token"} {
		for _, verb := range strings.Fields("get list watch create update patch delete") {
			assert.False(t, may(verb, "", resource, account.Namespace, account.Name), "%s %s", verb, resource)
		}
	}
	assert.False(t, may("get", "lastcall.dev", "modeldeployments", account.Namespace, "any"))
}

// The program itself, with the permissions of the chart, two replicas of it.
func TestTwoReplicasMakeAndServeTheirCertificate(t *testing.T) {
	documents, err := chart.Render(t.Context(), "own", "kube-public", "--show-only=templates/webhook/*")
	require.NoError(t, err)
	secret := install[*corev1.Secret](t, documents, "Secret")[0]
	lease := install[*coordinationv1.Lease](t, documents, "Lease")[0]
	kubeconfig := kubeconfigOf(t, installPermissions(t, documents))
	own := []string{"--namespace=" + secret.Namespace, "--name=" + secret.Name, "--kubeconfig=" + kubeconfig}

	first := startWebhook(t, own...)
	eventually(t, func() error { return first.health("/livez") })
	require.ErrorContains(t, first.health("/readyz"), "500", "the configurations are not installed yet")

	// Nothing must reach the other tests' objects: these configurations have no
	// server that the API server could reach.
	nobody := func(selectors ...**metav1.LabelSelector) {
		for _, selector := range selectors {
			*selector = &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-this"}}
		}
	}
	mutating, err := chart.Decode[*admissionregistrationv1.MutatingWebhookConfiguration](documents, "MutatingWebhookConfiguration")
	require.NoError(t, err)
	for i := range mutating[0].Webhooks {
		nobody(&mutating[0].Webhooks[i].ObjectSelector)
	}
	validating, err := chart.Decode[*admissionregistrationv1.ValidatingWebhookConfiguration](documents, "ValidatingWebhookConfiguration")
	require.NoError(t, err)
	nobody(&validating[0].Webhooks[0].ObjectSelector)
	for _, configuration := range []client.Object{mutating[0], validating[0]} {
		require.NoError(t, api.Create(t.Context(), configuration))
		t.Cleanup(func() { require.NoError(t, api.Delete(context.Background(), configuration)) })
	}

	second := startWebhook(t, own...)
	for _, replica := range []*webhookReplica{first, second} {
		eventually(t, func() error { return replica.health("/readyz") })
	}
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(mutating[0]), mutating[0]))
	bundle := mutating[0].Webhooks[2].ClientConfig.CABundle
	require.NotEmpty(t, bundle)
	caller := callerOf(secret.Name+"."+secret.Namespace+".svc", bundle)
	require.NoError(t, first.admit(caller))
	require.NoError(t, second.admit(caller))
	for _, replica := range []*webhookReplica{first, second} {
		t.Logf("resident memory after the first admission: %d KiB", replica.resident(t))
	}

	t.Run("a bundle that is emptied comes back", func(t *testing.T) {
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(validating[0]), validating[0]))
		validating[0].Webhooks[0].ClientConfig.CABundle = nil
		require.NoError(t, api.Update(t.Context(), validating[0]))
		eventually(t, func() error {
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(validating[0]), validating[0]); err != nil {
				return err
			}
			if !bytes.Equal(bundle, validating[0].Webhooks[0].ClientConfig.CABundle) {
				return errors.New("the bundle is another")
			}
			return nil
		})
	})

	t.Run("a replica that leaves answers until it is forgotten", func(t *testing.T) {
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		holder := *lease.Spec.HolderIdentity
		require.NoError(t, first.process.Process.Signal(syscall.SIGTERM))
		signalled := time.Now()
		answered := 0
		for ; first.admit(caller) == nil; answered++ {
			require.Less(t, time.Since(signalled), 20*time.Second, "it does not end")
			time.Sleep(20 * time.Millisecond)
		}
		assert.GreaterOrEqual(t, time.Since(signalled), shutdownDelay)
		assert.Greater(t, answered, 10)
		require.NoError(t, first.process.Wait(), "it ends in order")
		require.NoError(t, second.admit(caller))

		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		assert.NotEqual(t, holder, *lease.Spec.HolderIdentity, "the lease is given back")
	})

	for _, replica := range []*webhookReplica{first, second} {
		assert.NotContains(t, replica.said(t), "forbidden", "the permissions suffice")
	}
}

// With cert-manager the files come from a mounted Secret, and there is no token
// to talk to the API server with.
func TestWithCertificateFilesTheWebhookNeedsNoAPIServer(t *testing.T) {
	const service = "lastcall-webhook.lastcall-system.svc"
	dir := t.TempDir()
	nowhere := filepath.Join(dir, "no-kubeconfig")
	replica := startWebhook(t, "--certificate-dir="+dir, "--kubeconfig="+nowhere)
	eventually(t, func() error { return replica.health("/livez") })
	require.ErrorContains(t, replica.health("/readyz"), "500", "there are no files yet")

	chain, key, err := cert.GenerateSelfSignedCertKey(service, nil, nil)
	require.NoError(t, err)
	for name, content := range map[string][]byte{"tls.crt": chain, "tls.key": key, "ca.crt": chain} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	eventually(t, func() error { return replica.health("/readyz") })
	require.NoError(t, replica.admit(callerOf(service, chain)))
}

const shutdownDelay = 2 * time.Second

// webhookReplica is a replica that answers admissions.
type webhookReplica struct {
	*replica
	address string
}

func startWebhook(t *testing.T, flags ...string) *webhookReplica {
	t.Helper()
	port := freePort(t)
	return &webhookReplica{
		replica: startReplica(t, built(t, "webhook"), append(flags, "--port="+port, "--shutdown-delay="+shutdownDelay.String())...),
		address: "127.0.0.1:" + port,
	}
}

// callerOf trusts and calls a webhook as the API server does.
func callerOf(service string, bundle []byte) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: service},
	}}
}

// admit has the replica answer one admission.
func (r *webhookReplica) admit(caller *http.Client) error {
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE","resource":{"version":"v1","resource":"pods"}}}`
	response, err := caller.Post("https://"+r.address+"/mutate-pods", "application/json", strings.NewReader(review))
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}
