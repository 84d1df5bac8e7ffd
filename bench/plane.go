package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

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

// The users whose calls are counted.
const (
	operatorUser    = serviceAccounts + names.Operator
	retirerUser     = serviceAccounts + names.Retirer
	statefulSetUser = "system:serviceaccount:kube-system:statefulset-controller"

	serviceAccounts = "system:serviceaccount:" + install.Namespace + ":"
)

// accounts are the names under which the chart installs controllers.
var accounts = map[string]string{"operator": names.Operator, "retirer": names.Retirer}

// running is a control plane with lastcall in it.
type running struct {
	plane       *controlplane.Plane
	controllers map[string]*controlplane.Process
	stopWebhook func()
}

// bringUp starts a control plane whose nodes kwok plays, the webhook, and these
// controllers. For exec see controlplane.Options.
func bringUp(ctx context.Context, dir string, exec map[string]string, controllers ...string) (r *running, err error) {
	documents, err := chart.Render(ctx, install.Release, install.Namespace)
	if err != nil {
		return nil, err
	}
	crds, err := chart.Decode[*apiextensionsv1.CustomResourceDefinition](documents, "CustomResourceDefinition")
	if err != nil {
		return nil, err
	}
	r = &running{controllers: map[string]*controlplane.Process{}}
	if r.plane, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, Kwok: filepath.Join(dir, "kwok"), CRDs: crds, Exec: exec,
		Audited: []string{operatorUser, retirerUser, statefulSetUser},
	}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.stopWebhook, err = admit(ctx, dir, r.plane, documents, controllers); err != nil {
		return nil, err
	}
	for _, controller := range controllers {
		if r.controllers[controller], err = startController(ctx, dir, r.plane, controller); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *running) stop() error {
	if r.stopWebhook != nil {
		r.stopWebhook()
	}
	return r.plane.Stop()
}

// admit starts the webhook and installs what the chart gives the controllers and the
// API server, the Service of the webhook apart, which has no Pods here.
func admit(ctx context.Context, dir string, plane *controlplane.Plane, documents []chart.Document, controllers []string) (stop func(), err error) {
	mutating, err := chart.Decode[*admissionregistrationv1.MutatingWebhookConfiguration](documents, "MutatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	validating, err := chart.Decode[*admissionregistrationv1.ValidatingWebhookConfiguration](documents, "ValidatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	var shown []string
	for _, controller := range controllers {
		shown = append(shown, "--show-only=templates/"+controller+"/rbac.yaml")
	}
	access, err := chart.Render(ctx, install.Release, install.Namespace, shown...)
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

// startController runs the program with the permissions and the memory limit of the
// chart.
func startController(ctx context.Context, dir string, plane *controlplane.Plane, controller string) (*controlplane.Process, error) {
	account := accounts[controller]
	token, err := plane.Cluster.Clientset.CoreV1().ServiceAccounts(install.Namespace).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("making a token for the %s: %w", controller, err)
	}
	config := rest.CopyConfig(plane.Cluster.Config)
	kubeconfig := filepath.Join(dir, controller+".kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, kubeconfig); err != nil {
		return nil, err
	}
	return plane.Run(filepath.Join(dir, controller), []string{"GOMEMLIMIT=256MiB"}, "--kubeconfig="+kubeconfig,
		"--name="+account, "--namespace="+install.Namespace, "--metrics-address=0", "--health-address=127.0.0.1:0")
}
