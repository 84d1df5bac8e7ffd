// Command images builds the binaries of lastcall and packs them into container
// images, each as an archive that containerd, docker and kind can load. It needs
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

// images by their names, each with its binaries: it runs the first. An uninstall runs
// kubectl-lastcall, from an image that the nodes have then.
var images = map[string][]string{
	"webhook":  {"webhook"},
	"operator": {"operator"},
	"retirer":  {"retirer", "kubectl-lastcall"},
}

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
	for name, binaries := range images {
		if err := write(filepath.Join(out, name+".tar"), dir, binaries, registry+"/"+name+":"+tag); err != nil {
			return fmt.Errorf("image of %s: %w", name, err)
		}
	}
	return nil
}

// build builds all binaries at once, so that they are linked side by side.
func build(ctx context.Context, dir, version string) error {
	args := []string{"build", "-trimpath", "-ldflags", "-s -w -X main.version=" + version, "-o", dir + "/"}
	for _, binaries := range images {
		for _, name := range binaries {
			args = append(args, "./cmd/"+name)
		}
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

// write packs binaries of dir into an image that runs the first of them.
func write(archive, dir string, binaries []string, reference string) error {
	spec := ociimage.Spec{Entrypoint: []string{"/" + binaries[0]}, User: "65532:65532"}
	for _, name := range binaries {
		spec.Files = append(spec.Files, ociimage.File{Path: "/" + name, Source: filepath.Join(dir, name), Mode: 0o755})
	}
	image, err := ociimage.Build(spec)
	if err != nil {
		return err
	}
	return ociimage.WriteTar(archive, reference, image)
}
