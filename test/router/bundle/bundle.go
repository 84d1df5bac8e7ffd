package bundle

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
	"github.com/lastcall-dev/lastcall/test/router/fake"
)

// Release is one router as it was released.
type Release struct {
	Family  fake.Family
	Version string
}

// Releases are those that differ in what can be seen of them.
var Releases = []Release{
	{fake.VLLMRouter, "0.1.15"},
	{fake.SGLModelGateway, "0.3.0"},
	{fake.SMG, "1.9.0"},
	{fake.SMG, "1.10.0"},
	{fake.LLMD, "0.8.0"},
	{fake.LLMD, "0.9.0"},
	{fake.LLMD, "0.10.0"},
	{fake.LLMD, "0.11.0"},
}

// images are what the routers' own images are called.
var images = map[fake.Family]string{
	fake.VLLMRouter: "vllm-router", fake.SGLModelGateway: "sgl-model-gateway", fake.SMG: "smg", fake.LLMD: "llm-d-router-endpoint-picker",
}

// Ref is the name of a release's image, with a tag.
func (r Release) Ref() string {
	return fmt.Sprintf("lastcall.dev/test/%s:v%s", images[r.Family], r.Version)
}

// Program is what the release is called in its image.
func (r Release) Program() string {
	if r.Family == fake.LLMD {
		return "epp"
	}
	return string(r.Family)
}

// Write builds the image and writes it as one tar into dir, in which it has the name of
// each release. It returns the file's name.
func Write(ctx context.Context, dir string, releases ...Release) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	image, err := Build(ctx)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "test-router.tar")
	return file, write(file, image, releases)
}

func write(file string, image v1.Image, releases []Release) error {
	tags := map[name.Tag]v1.Image{}
	for _, r := range releases {
		tag, err := name.NewTag(r.Ref(), name.StrictValidation)
		if err != nil {
			return fmt.Errorf("image name %q: %w", r.Ref(), err)
		}
		tags[tag] = image
	}
	if err := tarball.MultiWriteToFile(file, tags); err != nil {
		return fmt.Errorf("writing the routers' image: %w", err)
	}
	return nil
}

// Build builds the image. Its program is there under the name of each router.
func Build(ctx context.Context) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "test-router-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	program := filepath.Join(dir, "router")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/lastcall-dev/lastcall/test/router/process")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the fake router: %w\n%s", err, out)
	}
	files := []ociimage.File{{Path: "/usr/local/bin/router", Source: program, Mode: 0o755}}
	for _, family := range fake.Families {
		files = append(files, ociimage.File{Path: "/usr/local/bin/" + Release{Family: family}.Program(), Link: "router"})
	}
	return ociimage.Build(ociimage.Spec{
		Files: files, Env: []string{"PATH=/usr/local/bin"}, Entrypoint: []string{"router"}, User: "65532:65532",
	})
}
