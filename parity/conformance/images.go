package conformance

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/heraldnode/herald/parity/containerd"
)

// registry is where the suite's images would come from.
const registry = "registry.k8s.io/e2e-test-images/"

// pauseImage is the image of pods that only have to run.
const pauseImage = "registry.k8s.io/pause:3.10.2"

// images returns the images that the selected specs use, with the names in test/utils/image of Kubernetes. agnhost and nonewprivs are
// Kubernetes' own programs. Debian's busybox stands for Alpine and, where a spec only needs some server or a shell, for nginx and others.
func images(ctx context.Context, programs Programs) ([]image, error) {
	base, err := busybox(ctx, programs.Shells)
	if err != nil {
		return nil, err
	}
	tools, err := agnhostTools(ctx, programs)
	if err != nil {
		return nil, err
	}
	shell := v1.Config{Cmd: []string{"sh"}}
	nonRoot := v1.Config{Cmd: []string{"sh"}, User: "1234"}
	server := v1.Config{Cmd: []string{"httpd", "-f", "-p", "80"}}
	privileges := newLayer().copy("usr/local/bin/nnp", programs.Nonewprivs, 0o4755)
	return []image{
		{registry + "agnhost:2.63.0", []*layer{base, tools}, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}},
		{registry + "agnhost:2.55", []*layer{base, tools}, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}},
		{registry + "busybox:1.37.0-1", []*layer{base}, shell},
		{registry + "glibc-dns-testing:2.0.0", []*layer{base}, shell},
		{registry + "nginx:1.15-4", []*layer{base}, server},
		{registry + "nonewprivs:1.4", []*layer{base, privileges}, v1.Config{Cmd: []string{"nnp"}}},
		{registry + "nonroot:1.5", []*layer{base}, nonRoot},
	}, nil
}

// busybox is a layer with the commands of a small Linux.
func busybox(ctx context.Context, shells string) (*layer, error) {
	program := filepath.Join(shells, "busybox")
	applets, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the commands of %s: %w", program, err)
	}
	l := newLayer()
	for _, dir := range []string{"bin", "sbin", "etc", "home", "root", "usr", "usr/bin", "usr/sbin", "usr/local", "usr/local/bin", "var"} {
		l.dir(dir, 0o755)
	}
	l.dir("tmp", 0o1777)
	l.copy("bin/busybox", program, 0o755)
	for lines := bufio.NewScanner(bytes.NewReader(applets)); lines.Scan(); {
		if applet := lines.Text(); applet != "busybox" {
			l.link("bin/"+applet, "busybox")
		}
	}
	l.copy("bin/bash", filepath.Join(shells, "bash-static"), 0o755)
	// Debian's /bin/sh of busybox drops variables whose names are not identifiers. The specs that set such call sh without a path; those
	// that compare messages of busybox call /bin/sh.
	l.link("usr/local/bin/sh", "/bin/bash")
	l.text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"+
		"user-defined-in-image:x:1000:1000::/home:/bin/sh\n")
	return l.text("etc/group", "root:x:0:root\nnogroup:x:65533:\nnobody:x:65534:\nuser-defined-in-image:x:1000:\n"+
		"group-defined-in-image:x:50000:user-defined-in-image\n"), nil
}

// agnhostTools is the layer with Kubernetes' agnhost and what its image installs besides, as far as the specs use it.
func agnhostTools(ctx context.Context, programs Programs) (*layer, error) {
	l := newLayer().dir("uploads", 0o755)
	l.copy("agnhost", programs.Agnhost, 0o755)
	l.link("agnhost-2", "agnhost")
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		l.copy(name, filepath.Join(programs.Kubernetes, "test/images/agnhost/porter", name), 0o644)
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		return nil, err
	}
	l.copy("usr/bin/curl", curl, 0o755)
	libraries, err := sharedLibraries(ctx, curl)
	for _, library := range libraries {
		l.copy(library, library, 0o755)
	}
	return l, err
}

// sharedLibraries returns the paths of the libraries that a program is linked with, and of the loader.
func sharedLibraries(ctx context.Context, program string) ([]string, error) {
	output, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", program, err)
	}
	var paths []string
	for line := range strings.Lines(string(output)) {
		for field := range strings.FieldsSeq(line) { // "libz.so.1 => /lib/libz.so.1 (0x7f..)" or "/lib64/ld-linux.so.2 (0x7f..)"
			if strings.HasPrefix(field, "/") {
				paths = append(paths, field)
			}
		}
	}
	return paths, nil
}

// importImages makes the images and imports them into containerd.
func importImages(ctx context.Context, runtime *containerd.Containerd, programs Programs) error {
	all, err := images(ctx, programs)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "herald-conformance-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, image := range all {
		archive := filepath.Join(dir, "image.tar")
		if err := image.write(archive); err != nil {
			return fmt.Errorf("image %s: %w", image.reference, err)
		}
		if err := runtime.ImportArchive(ctx, archive, image.reference); err != nil {
			return err
		}
	}
	return runtime.ImportImage(ctx, pauseImage, runtime.Testpod(), "pause")
}
