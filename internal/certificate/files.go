package certificate

import (
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// filesInterval is how often the files are read. The kubelet takes a minute to
// renew a mounted Secret, and reading three small files costs less than being
// told about changes to a directory that is replaced through symbolic links.
const filesInterval = 5 * time.Second

// Files serves the certificate of a directory: tls.crt, tls.key and ca.crt, as
// cert-manager's Secrets have them. The files may come later than the process
// and may change under it.
type Files struct {
	Directory string
	Serving   *Serving
}

// Start reads the files until ctx ends. It never fails: a directory that cannot
// be served is logged once for each reason.
func (f *Files) Start(ctx context.Context) error {
	logger := log.FromContext(ctx).WithValues("directory", f.Directory)
	ticker := time.NewTicker(filesInterval)
	defer ticker.Stop()
	logged := ""
	for {
		switch changed, err := f.read(); {
		case err == nil && changed:
			logger.Info("Serving a new certificate")
			logged = ""
		case err != nil && err.Error() != logged:
			logger.Error(err, "Could not use the certificate files")
			logged = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// NeedLeaderElection is false: each replica serves.
func (f *Files) NeedLeaderElection() bool { return false }

func (f *Files) read() (changed bool, err error) {
	data := map[string][]byte{}
	for _, name := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, authorityKey} {
		if data[name], err = os.ReadFile(filepath.Join(f.Directory, name)); err != nil {
			return false, err
		}
	}
	return f.Serving.load(pairOf(data))
}
