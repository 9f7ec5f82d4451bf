package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	testpodPackage = "github.com/heraldnode/herald/parity/containerd/testpod"
	testpodName    = "testpod"
)

// ImportImage imports an image of one static program, which is its entrypoint, with args as its default arguments. When it
// returns, pods can use the image with imagePullPolicy Never or IfNotPresent.
func (c *Containerd) ImportImage(ctx context.Context, reference, program string, args ...string) error {
	if c.process == nil {
		return errNotRunning
	}
	if err := c.importImage(ctx, imageSpec{reference: reference, program: program, args: args}); err != nil {
		return fmt.Errorf("containerd: import image %s from %s: %w", reference, program, err)
	}
	return nil
}

// ImportTestpodOfUser imports an image like TestpodImage that runs as this user: a UID or a name of its /etc/passwd, and optionally a
// colon and a group. The image knows the user web with UID 1000 and group 2000, who is also in group 3000, and root, who is in
// group 4000.
func (c *Containerd) ImportTestpodOfUser(ctx context.Context, reference, user string) error {
	if c.process == nil {
		return errNotRunning
	}
	if err := c.importImage(ctx, imageSpec{reference: reference, program: c.Testpod(), user: user}); err != nil {
		return fmt.Errorf("containerd: import image %s with user %s: %w", reference, user, err)
	}
	return nil
}

// Testpod returns the path of the static program testpod.
func (c *Containerd) Testpod() string { return filepath.Join(c.dir, testpodName) }

// imageSpec describes an image of one program.
type imageSpec struct {
	reference, program string
	args               []string
	user               string // "" is root, in an image without users
}

// userFiles are the users of an image that runs as one of them.
var userFiles = map[string]string{
	"/etc/passwd": "root:x:0:0::/:\nweb:x:1000:2000::/:\n",
	"/etc/group":  "root:x:0:\nweb:x:2000:\nextra:x:3000:web\nadmin:x:4000:root\n",
}

func (c *Containerd) importImage(ctx context.Context, spec imageSpec) error {
	tag, err := name.NewTag(spec.reference)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.dir, "image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "image.tar")
	if err := spec.write(archive); err != nil {
		return err
	}
	return c.importArchive(ctx, archive, tag)
}

// ImportArchive imports an image from an archive like that of WriteImage, whose only reference is the given one.
func (c *Containerd) ImportArchive(ctx context.Context, archive, reference string) error {
	if c.process == nil {
		return errNotRunning
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	if err := c.importArchive(ctx, archive, tag); err != nil {
		return fmt.Errorf("containerd: import image %s: %w", reference, err)
	}
	return nil
}

func (c *Containerd) importArchive(ctx context.Context, archive string, tag name.Tag) error {
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
	return imageSpec{reference: reference, program: program, args: args}.write(archive)
}

func (s imageSpec) write(archive string) error {
	tag, err := name.NewTag(s.reference)
	if err != nil {
		return err
	}
	image, err := s.image()
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, image)
}

func (s imageSpec) image() (v1.Image, error) {
	path := "/" + filepath.Base(s.program)
	content, err := os.ReadFile(s.program)
	if err != nil {
		return nil, err
	}
	files := map[string]string{path: string(content)}
	if s.user != "" {
		maps.Copy(files, userFiles)
	}
	layer, err := newLayer(files)
	if err != nil {
		return nil, err
	}
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS:           "linux",
		Architecture: goruntime.GOARCH,
		RootFS:       v1.RootFS{Type: "layers"},
		Config:       v1.Config{Entrypoint: []string{path}, Cmd: s.args, User: s.user},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

// newLayer returns a layer with the files, by path. All are executable.
func newLayer(files map[string]string) (v1.Layer, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, path := range slices.Sorted(maps.Keys(files)) { // the same files make the same image
		header := &tar.Header{Name: path, Mode: 0o755, Size: int64(len(files[path]))}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(archive, files[path]); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(buffer.Bytes(), types.DockerUncompressedLayer), nil
}

// buildTestpod builds testpod into dir. Go's build cache makes this fast after the first time.
func buildTestpod(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, testpodName)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, testpodPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w: %s", build.Args, err, output)
	}
	return program, nil
}
