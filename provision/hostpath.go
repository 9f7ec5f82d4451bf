package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// hostPathKinds are the types of which something must be there, with what the host's file then is.
var hostPathKinds = map[v1.HostPathType]struct {
	mode fs.FileMode
	name string
}{
	v1.HostPathDirectory:         {fs.ModeDir, "a directory"},
	v1.HostPathDirectoryOrCreate: {fs.ModeDir, "a directory"},
	v1.HostPathFile:              {0, "a file"},
	v1.HostPathFileOrCreate:      {0, "a file"},
	v1.HostPathSocket:            {fs.ModeSocket, "a socket"},
	v1.HostPathCharDev:           {fs.ModeDevice | fs.ModeCharDevice, "a character device"},
	v1.HostPathBlockDev:          {fs.ModeDevice, "a block device"},
}

// prepareHostPath looks whether what the volume is about is there, or makes it if the type says so. Without a type
// anything will do, also nothing.
func prepareHostPath(source *v1.HostPathVolumeSource) error {
	switch {
	case !filepath.IsAbs(source.Path):
		return fmt.Errorf("hostPath.path: %q is not an absolute path", source.Path)
	case slices.Contains(strings.Split(source.Path, "/"), ".."):
		return fmt.Errorf(`hostPath.path: %q must not contain ".."`, source.Path)
	case source.Type == nil || *source.Type == v1.HostPathUnset:
		return nil
	}
	kind, known := hostPathKinds[*source.Type]
	if !known {
		return fmt.Errorf("hostPath.type: %q is not known here", *source.Type)
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = makeHostPath(source)
	}
	if err != nil {
		return fmt.Errorf("hostPath of type %s: %w", *source.Type, err)
	}
	if info.Mode().Type() != kind.mode {
		return fmt.Errorf("hostPath of type %s: %s is not %s", *source.Type, source.Path, kind.name)
	}
	return nil
}

// makeHostPath makes the folders above a directory, but not those above a file.
func makeHostPath(source *v1.HostPathVolumeSource) (fs.FileInfo, error) {
	switch *source.Type {
	case v1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(source.Path, 0o755); err != nil {
			return nil, err
		}
	case v1.HostPathFileOrCreate:
		made, err := os.OpenFile(source.Path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return nil, err
		}
		if err := made.Close(); err != nil {
			return nil, err
		}
	}
	return os.Stat(source.Path)
}
