package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const testpodPackage = "github.com/heraldnode/herald/parity/containerd/testpod"

// ImportImage imports an image of one static program, which is its entrypoint, with args as its default arguments. When it
// returns, pods can use the image with imagePullPolicy Never or IfNotPresent.
func (c *Containerd) ImportImage(ctx context.Context, reference, program string, args ...string) error {
	if c.process == nil {
		return errNotRunning
	}
	if err := c.importImage(ctx, reference, program, args); err != nil {
		return fmt.Errorf("containerd: import image %s from %s: %w", reference, program, err)
	}
	return nil
}

func (c *Containerd) importImage(ctx context.Context, reference, program string, args []string) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.dir, "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "image.tar")
	if err := WriteImage(archive, reference, program, args...); err != nil {
		return err
	}
	client, err := c.release.program("ctr")
	if err != nil {
		return err
	}
	ctr := exec.CommandContext(ctx, client, "-a", c.socket(), "-n", "k8s.io", "images", "import", archive)
	if output, err := ctr.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", ctr.Args, err, output)
	}
	return c.awaitImage(ctx, tag.Name())
}

// WriteImage writes the image that ImportImage imports to an archive, which `ctr images import` reads.
func WriteImage(archive, reference, program string, args ...string) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	image, err := newImage(program, args)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, image)
}

func newImage(program string, args []string) (v1.Image, error) {
	path := "/" + filepath.Base(program)
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	layer, err := newLayer(path, content)
	if err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: goruntime.GOARCH,
		RootFS:       v1.RootFS{Type: "layers"},
		Config:       v1.Config{Entrypoint: []string{path}, Cmd: args},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

func newLayer(path string, content []byte) (v1.Layer, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	header := &tar.Header{Name: path, Mode: 0o755, Size: int64(len(content))}
	if err := archive.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := archive.Write(content); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(buffer.Bytes(), types.DockerUncompressedLayer), nil
}

// buildTestpod builds testpod into dir. Go's build cache makes this fast after the first time.
func buildTestpod(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "testpod")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, testpodPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", build.Args, err, output)
	}
	return program, nil
}
