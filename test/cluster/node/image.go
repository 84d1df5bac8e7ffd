package node

import (
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"github.com/lastcall-dev/lastcall/hack/ociimage"
)

// BusyboxImage is in every cluster that Up starts: busybox with all its commands, which sleeps if it is told nothing
// else. Pod sandboxes run it as their pause container, and tests may for a client.
const BusyboxImage = "lastcall.dev/busybox:v1"

func (c *Cluster) loadBusybox(ctx context.Context) error {
	busybox := staticBusybox()
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("listing the commands of busybox: %w", err)
	}
	files := []ociimage.File{
		{Path: "/bin/busybox", Source: busybox, Mode: 0o755},
		{Path: "/tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	for applet := range strings.FieldsSeq(string(applets)) {
		if applet != "busybox" {
			files = append(files, ociimage.File{Path: "/bin/" + applet, Link: "busybox"})
		}
	}
	image, err := ociimage.Build(ociimage.Spec{Files: files, Cmd: []string{"/bin/sleep", "infinity"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		return err
	}
	archive := c.path("busybox.tar")
	if err := ociimage.WriteTar(archive, BusyboxImage, image); err != nil {
		return err
	}
	return c.Load(ctx, archive)
}

// Load imports image archives, as ociimage.WriteTar, docker save or kind's image-archive write them. Pods use the
// images with imagePullPolicy IfNotPresent or Never.
func (c *Cluster) Load(ctx context.Context, archives ...string) error {
	for _, archive := range archives {
		err := run(ctx, "ctr", "--address="+c.path("run", "containerd.sock"), "--namespace=k8s.io", "images", "import", archive)
		if err != nil {
			return fmt.Errorf("loading image %s: %w", archive, err)
		}
	}
	return nil
}
