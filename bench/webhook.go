package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"

	"github.com/lastcall-dev/lastcall/internal/admission"
)

// A webhook is one of the two programs, running.
type webhook struct {
	name        string
	url         string // without a path
	metricsURL  string
	authorities []byte // PEM, what its certificate is verified with
	client      *http.Client

	process *os.Process
	ended   chan struct{} // closed once the process has, with what it wrote in log
	log     bytes.Buffer
}

// startBoth starts lastcall's webhook and the yardstick. They serve at address,
// until stop is called.
func startBoth(ctx context.Context, dir, address string) (lastcall, noop *webhook, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	lastcall, err = start(ctx, dir, "webhook", address)
	if err == nil {
		noop, err = start(ctx, dir, "noop", address)
	}
	stop = func() {
		cancel()
		for _, w := range []*webhook{lastcall, noop} {
			if w != nil {
				<-w.ended
			}
		}
	}
	if err != nil {
		stop()
		return nil, nil, nil, err
	}
	return lastcall, noop, stop, nil
}

// start runs a program of dir until ctx ends, and waits until it serves.
func start(ctx context.Context, dir, name, address string) (*webhook, error) {
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	w := &webhook{
		name:       name,
		url:        "https://" + net.JoinHostPort(address, ports[0]),
		metricsURL: "http://" + net.JoinHostPort("127.0.0.1", ports[1]) + "/metrics",
		ended:      make(chan struct{}),
	}
	certificates := filepath.Join(dir, name+"-certificate")
	if w.authorities, err = writeCertificate(certificates, address); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.authorities)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	w.client = &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: posters},
	}

	cmd := exec.CommandContext(ctx, filepath.Join(dir, name), "--certificate-dir="+certificates,
		"--port="+ports[0], "--metrics-address=127.0.0.1:"+ports[1], "--health-address=127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=128MiB") // as the chart has it
	cmd.Stderr = &w.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w.process = cmd.Process
	go func() {
		_ = cmd.Wait() // it is killed, or its log says why it ended
		close(w.ended)
	}()
	return w, w.waitServing(ctx, net.JoinHostPort(address, ports[0]), config)
}

// waitServing waits for a first TLS handshake, not for a first request: what a
// process needs while idle is measured before it has answered anything.
func (w *webhook) waitServing(ctx context.Context, address string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: config}
	for {
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-w.ended:
			return fmt.Errorf("%s ended:\n%s", w.name, w.log.String())
		case <-ctx.Done():
			_ = w.process.Kill()
			<-w.ended
			return fmt.Errorf("%s does not serve at %s: %w\n%s", w.name, address, err, w.log.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// answered is how many requests to a path the process has answered with a 200, by
// its own count.
func (w *webhook) answered(ctx context.Context, path string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.metricsURL, nil)
	if err != nil {
		return 0, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		series := fmt.Sprintf(`controller_runtime_webhook_requests_total{code="200",webhook=%q} `, path)
		if value, ok := strings.CutPrefix(lines.Text(), series); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("%s does not count requests to %s", w.name, path))
}

// admit posts a review and returns how long the whole answer took.
func (w *webhook) admit(ctx context.Context, review []byte) (time.Duration, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+admission.PathPods, bytes.NewReader(review))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	response, err := w.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	answer, err := io.ReadAll(response.Body)
	return time.Since(begin), answer, err
}

// usage is what Linux says of a process.
type usage struct {
	resident, peak float64 // bytes
	cpu            time.Duration
}

func (w *webhook) usage() (usage, error) { return usageOf(w.process.Pid) }

func usageOf(pid int) (usage, error) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return usage{}, err
	}
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(string(status), string(stat))
}

// parseUsage reads /proc/PID/status and /proc/PID/stat.
func parseUsage(status, stat string) (usage, error) {
	var u usage
	for field, value := range map[string]*float64{"VmRSS:": &u.resident, "VmHWM:": &u.peak} {
		_, rest, _ := strings.Cut(status, field)
		if _, err := fmt.Sscanf(rest, "%f kB", value); err != nil {
			return usage{}, fmt.Errorf("reading %s of a process: %w", field, err)
		}
		*value *= 1 << 10
	}
	// Fields 14 and 15 are user and system time. The second field may hold
	// anything, in parentheses.
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("reading the times of a process: %q", stat)
	}
	for _, field := range fields[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return usage{}, fmt.Errorf("reading the times of a process: %w", err)
		}
		u.cpu += time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on every Linux
	}
	return u, nil
}

// writeCertificate makes a certificate for an address, as files that both
// programs serve, and returns what verifies it.
func writeCertificate(dir, address string) ([]byte, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(address, nil, nil)
	if err != nil {
		return nil, err
	}
	return certificate, errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, corev1.TLSCertKey), certificate, 0o600),
		os.WriteFile(filepath.Join(dir, corev1.TLSPrivateKeyKey), key, 0o600),
		os.WriteFile(filepath.Join(dir, "ca.crt"), certificate, 0o600),
	)
}

// freePorts are ports that nothing listened on a moment ago.
func freePorts(ctx context.Context, n int) ([]string, error) {
	var ports []string
	for range n {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() //nolint:errcheck // held until all are chosen
		_, port, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
