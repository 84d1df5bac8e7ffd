package controlplane

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/lastcall-dev/lastcall/test/cluster/binaries"
	"github.com/lastcall-dev/lastcall/test/cluster/kube"
)

const (
	// Kubelet is the user that kwok calls the API server as.
	Kubelet = "kwok"

	nodes = 10
	// unlimited is more calls a second than a controller makes, so that nothing is
	// measured of its client's patience.
	unlimited = "5000"
)

// Options tell what to start.
type Options struct {
	// Dir takes keys and logs; it must be there.
	Dir string
	// Kwok is the path of the program.
	Kwok string
	// CRDs are served before the controllers start.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// Audited are the users whose calls are written down, beside Kubelet.
	Audited []string
	// Exec is what kwok adds to its environment when it runs the command of a
	// pods/exec, on this machine; without it, none can be run.
	Exec map[string]string
}

// Plane is a control plane that runs.
type Plane struct {
	Cluster *kube.Cluster
	Calls   *Calls
	// ControllerManager is the process of kube-controller-manager.
	ControllerManager *Process

	dir         string
	running     context.Context // ends with Stop
	cancel      context.CancelFunc
	environment *envtest.Environment
	processes   []*Process
}

// Start starts a control plane with ten nodes that are Ready. Stop ends it.
func Start(ctx context.Context, o Options) (_ *Plane, err error) {
	programs, err := binaries.Provide(ctx, os.Stderr, binaries.Etcd, binaries.APIServer, binaries.Kubectl, binaries.ControllerManager, binaries.Scheduler)
	if err != nil {
		return nil, err
	}
	p := &Plane{dir: o.Dir}
	p.running, p.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Stop())
		}
	}()
	kubelet, err := p.startAPIServer(ctx, programs, o)
	if err != nil {
		return nil, fmt.Errorf("starting the API server: %w", err)
	}
	if err := p.startControllers(programs); err != nil {
		return nil, err
	}
	return p, p.startNodes(ctx, o, kubelet)
}

// startAPIServer returns the kubeconfig file of Kubelet as well.
func (p *Plane) startAPIServer(ctx context.Context, programs string, o Options) (kubelet string, err error) {
	policy, log := p.path("audit-policy.yaml"), p.path("audit.log")
	users := strings.Join(append([]string{Kubelet}, o.Audited...), ", ")
	if err := os.WriteFile(policy, []byte(fmt.Sprintf(`apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, users: [%s]}
- {level: None}
`, users)), 0o600); err != nil {
		return "", err
	}
	p.environment = &envtest.Environment{BinaryAssetsDirectory: programs, ControlPlaneStartTimeout: 2 * time.Minute, CRDs: o.CRDs}
	server := p.environment.ControlPlane.GetAPIServer()
	server.CertDir = p.path("certificates")
	if err := os.MkdirAll(server.CertDir, 0o700); err != nil {
		return "", err
	}
	server.Configure().
		Set("audit-policy-file", policy).Set("audit-log-path", log).
		// Above what a run writes: a rotated file would be read no further.
		Set("audit-log-maxsize", "1000").
		Set("service-cluster-ip-range", "10.128.0.0/16").
		// There is a controller for ServiceAccounts here, so Pods get their tokens.
		Disable("disable-admission-plugins")
	if _, err := p.environment.Start(); err != nil {
		return "", err
	}
	admin := p.path("admin.kubeconfig")
	if err := os.WriteFile(admin, p.environment.KubeConfig, 0o600); err != nil {
		return "", err
	}
	if p.Cluster, err = kube.Connect(ctx, admin); err != nil {
		return "", err
	}
	if p.Calls, err = openCalls(log); err != nil {
		return "", err
	}
	user, err := p.environment.AddUser(envtest.User{Name: Kubelet, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return "", err
	}
	content, err := user.KubeConfig()
	if err != nil {
		return "", err
	}
	kubelet = p.path("kubelet.kubeconfig")
	return kubelet, os.WriteFile(kubelet, content, 0o600)
}

func (p *Plane) startControllers(programs string) (err error) {
	common := []string{
		"--kubeconfig=" + p.Cluster.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=" + unlimited, "--kube-api-burst=" + unlimited,
	}
	manager := append([]string{
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + filepath.Join(p.environment.ControlPlane.APIServer.CertDir, "sa-signer.key"),
		"--concurrent-statefulset-syncs=8", // as many as the operator has workers
	}, common...)
	if p.ControllerManager, err = p.Run(filepath.Join(programs, binaries.ControllerManager), nil, manager...); err != nil {
		return err
	}
	_, err = p.Run(filepath.Join(programs, binaries.Scheduler), nil, common...)
	return err
}

//go:embed kwok.yaml
var stages []byte

const nodeAnnotation = "kwok.x-k8s.io/node"

func (p *Plane) startNodes(ctx context.Context, o Options, kubeconfig string) error {
	config := p.path("kwok.yaml")
	args := []string{
		"--kubeconfig=" + kubeconfig, "--config=" + config, "--cidr=10.0.0.0/16",
		"--manage-nodes-with-annotation-selector=" + nodeAnnotation + "=fake", "--node-lease-duration-seconds=40",
	}
	documents := stages
	if o.Exec != nil {
		port, err := freePort(ctx)
		if err != nil {
			return err
		}
		args = append(args, "--server-address=127.0.0.1:"+port, "--node-ip=127.0.0.1", "--node-port="+port)
		documents = append(slices.Clone(stages), clusterExec(o.Exec)...)
	}
	if err := os.WriteFile(config, documents, 0o600); err != nil {
		return err
	}
	if _, err := p.Run(o.Kwok, nil, args...); err != nil {
		return err
	}
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fake-%d", i), Annotations: map[string]string{nodeAnnotation: "fake"}}}
		if err := p.Cluster.Client.Create(ctx, node); err != nil {
			return fmt.Errorf("creating a node: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.Wait(ctx, "the nodes", func(ctx context.Context) error {
		var list corev1.NodeList
		if err := p.Cluster.Client.List(ctx, &list); err != nil {
			return err
		}
		for _, node := range list.Items {
			if len(node.Status.Conditions) == 0 || len(node.Spec.Taints) > 0 {
				return fmt.Errorf("node %s is not Ready", node.Name)
			}
		}
		return nil
	})
}

// Stop ends every process.
func (p *Plane) Stop() error {
	p.cancel()
	for _, process := range p.processes {
		<-process.ended
	}
	var err error
	if p.Calls != nil {
		err = p.Calls.file.Close()
	}
	if p.environment == nil {
		return err
	}
	return errors.Join(err, p.environment.Stop())
}

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

// pace is how often a wait looks again.
func (p *Plane) pace() <-chan time.Time { return time.After(500 * time.Millisecond) }
