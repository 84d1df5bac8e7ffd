package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lastcall-dev/lastcall/api/names"
	"github.com/lastcall-dev/lastcall/bench/controlplane"
	"github.com/lastcall-dev/lastcall/test/envtest/chart"
	"github.com/lastcall-dev/lastcall/test/install"
)

const (
	owners    = 200 // ModelDeployments, and StatefulSets
	replicas  = 5   // of each
	quietTime = time.Minute
)

// The users whose calls are counted.
const (
	operatorUser    = "system:serviceaccount:" + install.Namespace + ":" + names.Operator
	statefulSetUser = "system:serviceaccount:kube-system:statefulset-controller"
)

// measureOperator takes the figures of (e), and a table of the API calls behind
// them: first the operator creates its Pods, then the StatefulSet controller the
// same ones, and then nothing changes for a minute.
func measureOperator(ctx context.Context, dir string) (_ []figure, calls string, err error) {
	say("(e) bringing up a control plane whose nodes kwok plays")
	documents, err := chart.Render(ctx, install.Release, install.Namespace)
	if err != nil {
		return nil, "", err
	}
	crds, err := chart.Decode[*apiextensionsv1.CustomResourceDefinition](documents, "CustomResourceDefinition")
	if err != nil {
		return nil, "", err
	}
	limited, cancel := limit(ctx)
	defer cancel()
	plane, err := controlplane.Start(limited, controlplane.Options{
		Dir: dir, Kwok: filepath.Join(dir, "kwok"), CRDs: crds, Audited: []string{operatorUser, statefulSetUser},
	})
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	stop, err := admit(limited, dir, plane, documents)
	if err != nil {
		return nil, "", err
	}
	defer stop()
	operator, err := startOperator(limited, dir, plane)
	if err != nil {
		return nil, "", err
	}
	lastcall, yardstick := modelDeployments(plane, operator), statefulSets(plane)
	return race(limited, plane, lastcall, yardstick)
}

// race has both create their Pods, one after the other, and leaves them alone then.
func race(ctx context.Context, plane *controlplane.Plane, lastcall, yardstick *contender) ([]figure, string, error) {
	for _, c := range []*contender{lastcall, yardstick} {
		if err := c.warmUp(ctx); err != nil {
			return nil, "", fmt.Errorf("warming up with %ss: %w", c.kind, err)
		}
	}
	for _, c := range []*contender{lastcall, yardstick} {
		say("(e) %d %ss with %d replicas", owners, c.kind, replicas)
		if err := c.run(ctx); err != nil {
			return nil, "", fmt.Errorf("running %ss: %w", c.kind, err)
		}
	}
	say("(e) nothing changes for %s", quietTime)
	for _, c := range []*contender{lastcall, yardstick} {
		var err error
		if c.idle, err = usageOf(c.pid); err != nil {
			return nil, "", err
		}
	}
	quiet := time.Now()
	select {
	case <-time.After(quietTime):
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	}
	if err := errors.Join(plane.Check(), plane.Calls.Read()); err != nil {
		return nil, "", err
	}
	for _, c := range []*contender{lastcall, yardstick} {
		c.quiet = plane.Calls.Between(c.user, quiet, quiet.Add(quietTime))
		var err error
		if c.settled, err = usageOf(c.pid); err != nil {
			return nil, "", err
		}
	}
	return operatorFigures(lastcall, yardstick), callTable(lastcall, yardstick), nil
}

// admit starts the webhook and installs what the chart gives the operator and the
// API server, the Service of the webhook apart, which has no Pods here.
func admit(ctx context.Context, dir string, plane *controlplane.Plane, documents []chart.Document) (stop func(), err error) {
	mutating, err := chart.Decode[*admissionregistrationv1.MutatingWebhookConfiguration](documents, "MutatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	validating, err := chart.Decode[*admissionregistrationv1.ValidatingWebhookConfiguration](documents, "ValidatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	access, err := chart.Render(ctx, install.Release, install.Namespace, "--show-only=templates/operator/rbac.yaml")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := start(ctx, dir, "webhook", "127.0.0.1")
	if err != nil {
		cancel()
		return nil, err
	}
	stop = func() { cancel(); <-w.ended }
	direct := func(c *admissionregistrationv1.WebhookClientConfig) {
		*c = admissionregistrationv1.WebhookClientConfig{URL: new(w.url + *c.Service.Path), CABundle: w.authorities}
	}
	for _, c := range mutating {
		for i := range c.Webhooks {
			direct(&c.Webhooks[i].ClientConfig)
		}
		err = errors.Join(err, plane.Cluster.Client.Create(ctx, c))
	}
	for _, c := range validating {
		for i := range c.Webhooks {
			direct(&c.Webhooks[i].ClientConfig)
		}
		err = errors.Join(err, plane.Cluster.Client.Create(ctx, c))
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: install.Namespace}}
	err = errors.Join(err, plane.Cluster.Client.Create(ctx, namespace))
	err = errors.Join(err, plane.Cluster.Apply(ctx, install.Namespace, string(bytes.Join(raw(access), []byte("\n---\n")))))
	if err != nil {
		stop()
		return nil, fmt.Errorf("installing what the chart renders: %w", err)
	}
	return stop, nil
}

func raw(documents []chart.Document) (all [][]byte) {
	for _, d := range documents {
		all = append(all, d)
	}
	return all
}

// startOperator runs the program with the permissions and the memory limit of the
// chart.
func startOperator(ctx context.Context, dir string, plane *controlplane.Plane) (*controlplane.Process, error) {
	token, err := plane.Cluster.Clientset.CoreV1().ServiceAccounts(install.Namespace).
		CreateToken(ctx, names.Operator, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("making a token for the operator: %w", err)
	}
	config := rest.CopyConfig(plane.Cluster.Config)
	kubeconfig := filepath.Join(dir, "operator.kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		return nil, err
	}
	return plane.Run(filepath.Join(dir, "operator"), []string{"GOMEMLIMIT=256MiB"}, "--kubeconfig="+kubeconfig,
		"--name="+names.Operator, "--namespace="+install.Namespace, "--metrics-address=0", "--health-address=127.0.0.1:0")
}
