// Command images builds the binaries of lastcall and packs each into a container
// image, as an archive that containerd, docker and kind can load. It needs
// neither a registry nor a daemon.
//
// The images have the names that the chart asks for by default, so once they are
// loaded a plain `helm install` finds them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
)

// binaries that run in a cluster.
var binaries = []string{"webhook", "operator"}

func main() {
	out := flag.String("out", "out/images", "folder to write the archives NAME.tar to")
	version := flag.String("version", "", "what the binaries say they are; the chart's appVersion when empty")
	flag.Parse()
	if err := run(context.Background(), *out, *version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, version string) error {
	registry, tag, err := chartDefaults()
	if err != nil {
		return err
	}
	if version == "" {
		version = tag
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lastcall-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	if err := build(ctx, dir, version); err != nil {
		return err
	}
	for _, name := range binaries {
		if err := write(filepath.Join(out, name+".tar"), filepath.Join(dir, name), registry+"/"+name+":"+tag); err != nil {
			return fmt.Errorf("image of %s: %w", name, err)
		}
	}
	return nil
}

// build builds all binaries at once, so that they are linked side by side.
func build(ctx context.Context, dir, version string) error {
	args := []string{"build", "-trimpath", "-ldflags", "-s -w -X main.version=" + version, "-o", dir + "/"}
	for _, name := range binaries {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// chartDefaults returns where the chart looks for images, and their tag.
func chartDefaults() (registry, tag string, err error) {
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	var values struct {
		Image struct {
			Registry string `json:"registry"`
		} `json:"image"`
	}
	for file, into := range map[string]any{"Chart.yaml": &chart, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join("charts/lastcall", file))
		if err != nil {
			return "", "", fmt.Errorf("run this in the root of the checkout: %w", err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			return "", "", fmt.Errorf("reading the chart's %s: %w", file, err)
		}
	}
	return values.Image.Registry, chart.AppVersion, nil
}

// write packs a binary into an image that runs it.
func write(archive, binary, reference string) error {
	name := filepath.Base(binary)
	image, err := ociimage.Build(ociimage.Spec{
		Files:      []ociimage.File{{Path: "/" + name, Source: binary, Mode: 0o755}},
		Entrypoint: []string{"/" + name},
		User:       "65532:65532",
	})
	if err != nil {
		return err
	}
	return ociimage.WriteTar(archive, reference, image)
}
