package binaries

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

const (
	connectTimeout  = 5 * time.Second
	downloadTimeout = 5 * time.Minute
)

func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: 2 * connectTimeout,
	}}
}

// download fetches the official build of a program to path, and fails unless it has the published checksum.
func (g *getter) download(ctx context.Context, name, path string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	if name == Etcd {
		return g.downloadEtcd(ctx, path)
	}
	address := fmt.Sprintf("https://dl.k8s.io/release/%s/bin/%s/%s/%s", g.source.kubernetes, runtime.GOOS, runtime.GOARCH, name)
	sum, err := g.fetchText(ctx, address+".sha256")
	if err != nil {
		return err
	}
	return g.fetchChecked(ctx, address, strings.TrimSpace(sum), path)
}

func (g *getter) downloadEtcd(ctx context.Context, target string) error {
	folder := "https://github.com/etcd-io/etcd/releases/download/" + g.source.etcd + "/"
	archive := fmt.Sprintf("etcd-%s-%s-%s.tar.gz", g.source.etcd, runtime.GOOS, runtime.GOARCH)
	sums, err := g.fetchText(ctx, folder+"SHA256SUMS")
	if err != nil {
		return err
	}
	packed := target + ".tar.gz"
	defer os.Remove(packed) //nolint:errcheck // may never have been made
	if err := g.fetchChecked(ctx, folder+archive, sumOf(sums, archive), packed); err != nil {
		return err
	}
	return unpack(packed, Etcd, target)
}

// sumOf finds a file's line in the output of sha256sum; it returns "" when there is none.
func sumOf(sums, file string) string {
	for line := range strings.Lines(sums) {
		if fields := strings.Fields(line); len(fields) == 2 && strings.TrimPrefix(fields[1], "*") == file {
			return fields[0]
		}
	}
	return ""
}

func (g *getter) get(ctx context.Context, address string) (*http.Response, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if err := g.unreachable[parsed.Host]; err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := g.client.Do(request)
	if err != nil {
		g.unreachable[parsed.Host] = fmt.Errorf("%s cannot be reached", parsed.Host)
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close() //nolint:errcheck // nothing was read
		return nil, fmt.Errorf("%s answered %s", address, response.Status)
	}
	return response, nil
}

func (g *getter) fetchText(ctx context.Context, address string) (string, error) {
	response, err := g.get(ctx, address)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	const limit = 1 << 20
	text, err := io.ReadAll(io.LimitReader(response.Body, limit))
	return string(text), err
}

func (g *getter) fetchChecked(ctx context.Context, address, sum, target string) error {
	response, err := g.get(ctx, address)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	g.say("downloading %s (%d MiB)", address, response.ContentLength>>20)
	file, err := os.Create(target)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // closed below on success
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(file, hash), response.Body); err != nil {
		return fmt.Errorf("downloading %s: %w", address, err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("%s has SHA-256 %s, not the published %q", address, got, sum)
	}
	return file.Close()
}

// unpack takes the one file called name out of a gzipped tar archive.
func unpack(archive, name, target string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // only read
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", archive, err)
	}
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if err != nil {
			return fmt.Errorf("looking for %s in %s: %w", name, archive, err)
		}
		if header.Typeflag != tar.TypeReg || path.Base(header.Name) != name {
			continue
		}
		out, err := os.Create(target)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, reader); err != nil {
			out.Close() //nolint:errcheck // the copy's error says more
			return fmt.Errorf("unpacking %s: %w", archive, err)
		}
		return out.Close()
	}
}
