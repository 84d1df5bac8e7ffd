// Package chart renders the Helm chart, so that tests look at what a user
// installs and not at a copy of it.
package chart

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// A Document is one rendered object in YAML.
type Document []byte

// Render runs `helm template` for a release in a namespace, with further flags.
// It is the helm that the tools module pins.
func Render(ctx context.Context, release, namespace string, flags ...string) ([]Document, error) {
	out, err := Helm(ctx, append([]string{"template", release, "charts/lastcall", "--namespace", namespace}, flags...)...)
	if err != nil {
		return nil, err
	}
	var documents []Document
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(out))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("splitting what helm rendered: %w", err)
		}
		documents = append(documents, document)
	}
}

// helm is the program that `go tool` runs, which it builds first where need be.
// To ask it each time would cost a second.
var helm = sync.OnceValues(func() (string, error) {
	path, err := output(context.Background(), "go", "tool", "-modfile=hack/tools/go.mod", "-n", "helm")
	return strings.TrimSpace(string(path)), err
})

// Helm runs the real helm in the root of the checkout and returns its output. An
// error has what it said.
func Helm(ctx context.Context, args ...string) ([]byte, error) {
	helm, err := helm()
	if err != nil {
		return nil, err
	}
	return output(ctx, helm, args...)
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = Root()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// Root is the root of the checkout, above the working directory.
func Root() string {
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return "."
}

// Decode returns the documents of T's kind, decoded strictly: a field that the
// API does not know is an error.
func Decode[T any](documents []Document, kind string) ([]T, error) {
	var objects []T
	for _, document := range documents {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			return nil, err
		}
		if meta.Kind != kind {
			continue
		}
		var object T
		if err := yaml.UnmarshalStrict(document, &object); err != nil {
			return nil, fmt.Errorf("decoding a %s: %w", kind, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
