package conformance

import (
	"archive/tar"
	"bytes"
	"os"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is an image that is made from files of this machine. There is no registry.
type image struct {
	reference string
	layers    []*layer
	config    v1.Config
}

// write writes the image to an archive.
func (i image) write(archive string) error {
	tag, err := name.NewTag(i.reference)
	if err != nil {
		return err
	}
	config := i.config
	config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	content, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}, Config: config,
	})
	if err != nil {
		return err
	}
	for _, layer := range i.layers {
		added, err := layer.layer()
		if err != nil {
			return err
		}
		if content, err = mutate.AppendLayers(content, added); err != nil {
			return err
		}
	}
	return tarball.WriteToFile(archive, tag, content)
}

// layer collects files. It keeps the first error, which layer returns.
type layer struct {
	buffer  bytes.Buffer
	archive *tar.Writer
	err     error
}

func newLayer() *layer {
	l := &layer{}
	l.archive = tar.NewWriter(&l.buffer)
	return l
}

func (l *layer) add(header *tar.Header, content []byte) *layer {
	header.Name, header.Size = strings.TrimPrefix(header.Name, "/"), int64(len(content))
	if l.err == nil {
		l.err = l.archive.WriteHeader(header)
	}
	if l.err == nil {
		_, l.err = l.archive.Write(content)
	}
	return l
}

func (l *layer) dir(path string, mode int64) *layer {
	return l.add(&tar.Header{Typeflag: tar.TypeDir, Name: path + "/", Mode: mode}, nil)
}

func (l *layer) link(path, target string) {
	l.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: path, Linkname: target, Mode: 0o777}, nil)
}

func (l *layer) text(path, content string) *layer {
	return l.add(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644}, []byte(content))
}

// copy adds a file of this machine.
func (l *layer) copy(path, source string, mode int64) *layer {
	content, err := os.ReadFile(source)
	if l.err == nil {
		l.err = err
	}
	return l.add(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: mode}, content)
}

func (l *layer) layer() (v1.Layer, error) {
	if l.err == nil {
		l.err = l.archive.Close()
	}
	return static.NewLayer(l.buffer.Bytes(), types.DockerUncompressedLayer), l.err
}
