package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority is the cluster's one certificate authority, and the folder it writes to.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

const validity = 10 * 365 * 24 * time.Hour

// newAuthority writes ca.crt and ca.key.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, cert: &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kubernetes"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}}
	der, err := a.sign(a.cert, key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, a.write("ca", der, key)
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(validity)
	return x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

func (a *authority) write(name string, der []byte, key *ecdsa.PrivateKey) error {
	if err := a.writeKey(name+".key", key); err != nil {
		return err
	}
	return os.WriteFile(a.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func (a *authority) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// signing writes NAME.key, for signing tokens.
func (a *authority) signing(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return a.writeKey(name+".key", key)
}

// issue writes NAME.crt and NAME.key for a server at the given addresses and names, or for a client if there are none.
func (a *authority) issue(name string, subject pkix.Name, addresses []netip.Addr, dnsNames ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     subject,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    dnsNames,
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := a.sign(template, key)
	if err != nil {
		return err
	}
	return a.write(name, der, key)
}

// kubeconfig issues a client certificate and writes a kubeconfig that uses it, everything embedded, to path.
func (a *authority) kubeconfig(path, clusterName, server string, subject pkix.Name) error {
	name := filepath.Base(path)
	if err := a.issue(name, subject, nil); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server = server
	for file, field := range map[string]*[]byte{
		"ca.crt":      &cluster.CertificateAuthorityData,
		name + ".crt": &user.ClientCertificateData,
		name + ".key": &user.ClientKeyData,
	} {
		content, err := os.ReadFile(a.path(file))
		if err != nil {
			return err
		}
		*field = content
	}
	config.Clusters[clusterName] = cluster
	config.AuthInfos[clusterName] = user
	config.Contexts[clusterName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: clusterName}
	config.CurrentContext = clusterName
	return clientcmd.WriteToFile(*config, path)
}

// writePKI makes every certificate and kubeconfig of the cluster.
func (c *Cluster) writePKI() error {
	pki, err := newAuthority(c.path("pki"))
	if err != nil {
		return fmt.Errorf("making the certificate authority: %w", err)
	}
	net := c.network()
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	server := "https://" + netip.AddrPortFrom(net.node(), apiServerPort).String()
	steps := []error{
		pki.signing("service-account"),
		pki.issue("kube-apiserver", pkix.Name{CommonName: "kube-apiserver"},
			[]netip.Addr{net.node(), net.kubernetes(), loopback},
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"),
		pki.issue("kubelet", pkix.Name{CommonName: "kubelet"}, []netip.Addr{net.node(), loopback}, c.name),
		pki.issue("kube-apiserver-kubelet", pkix.Name{CommonName: "kube-apiserver", Organization: []string{masters}}, nil),
	}
	for file, subject := range map[string]pkix.Name{
		"kubeconfig":                       {CommonName: "admin", Organization: []string{masters}},
		"pki/kubelet.conf":                 {CommonName: "system:node:" + c.name, Organization: []string{"system:nodes"}},
		"pki/kube-controller-manager.conf": {CommonName: "system:kube-controller-manager"},
		"pki/kube-scheduler.conf":          {CommonName: "system:kube-scheduler"},
		"pki/kube-proxy.conf":              {CommonName: "system:kube-proxy"},
	} {
		steps = append(steps, pki.kubeconfig(c.path(file), c.name, server, subject))
	}
	for _, err := range steps {
		if err != nil {
			return fmt.Errorf("making certificates: %w", err)
		}
	}
	return nil
}

// masters is the group that RBAC lets do everything.
const masters = "system:masters"
