package resolve

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// File is one file of a volume.
type File struct {
	Data []byte
	Mode int32 // the nine permission bits
	// Owner is the user that alone may read it; nil: whoever the mode says.
	Owner *int64
}

// Files are a volume's, by their path in it. What comes later takes the place of what was there.
type Files map[string]File

// DefaultMode is that of files for which the spec names none.
const DefaultMode int32 = 0o644

const (
	longestName = 255
	longestPath = 4096
)

// Add puts a file into the volume, if its path stays inside and its mode is one.
func (f Files) Add(at string, file File) error {
	clean, err := cleanPath(at)
	if err != nil {
		return err
	}
	if file.Mode < 0 || file.Mode > 0o777 {
		return fmt.Errorf("path %q: mode %#o is not between 0 and 0777", at, file.Mode)
	}
	f[clean] = file
	return nil
}

// cleanPath refuses what would lead out of the volume, and names that begin as those of the volume's own bookkeeping do.
func cleanPath(at string) (string, error) {
	elements := strings.Split(at, "/")
	switch {
	case at == "" || path.Clean(at) == ".":
		return "", fmt.Errorf("path %q: must name a file", at)
	case path.IsAbs(at):
		return "", fmt.Errorf("path %q: must be relative to the volume", at)
	case slices.Contains(elements, ".."):
		return "", fmt.Errorf(`path %q: must not contain ".."`, at)
	case strings.HasPrefix(path.Clean(at), ".."):
		return "", fmt.Errorf("path %q: must not begin with two dots", at)
	case strings.ContainsRune(at, 0):
		return "", fmt.Errorf("path %q: must not contain a NUL byte", at)
	case len(at) > longestPath || slices.ContainsFunc(elements, func(e string) bool { return len(e) > longestName }):
		return "", fmt.Errorf("path %.40q...: is longer than a path can be", at)
	}
	return path.Clean(at), nil
}

// Check says which file stands where another needs a folder.
func (f Files) Check() error {
	for _, at := range slices.Sorted(maps.Keys(f)) {
		for above := path.Dir(at); above != "."; above = path.Dir(above) {
			if _, isFile := f[above]; isFile {
				return fmt.Errorf("path %q: %q is a file, it cannot be a folder too", at, above)
			}
		}
	}
	return nil
}

// ErrKeyNotFound is that an object has no such key.
var ErrKeyNotFound = errors.New("no such key")

// KeySelection is which keys of an object become files, and how.
type KeySelection struct {
	Items []v1.KeyToPath
	// Mode of files for which Items names none; nil: DefaultMode.
	Mode     *int32
	Optional bool
}

// AddKeys puts what is chosen of an object's data into the volume: all keys under their own names, or the items.
func (f Files) AddKeys(data map[string][]byte, choice KeySelection) error {
	mode := ModeOr(choice.Mode, DefaultMode)
	if len(choice.Items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if err := f.Add(key, File{Data: data[key], Mode: mode}); err != nil {
				return fmt.Errorf("key %q: %w", key, err)
			}
		}
		return nil
	}
	for _, item := range choice.Items {
		value, known := data[item.Key]
		if !known && choice.Optional {
			continue
		}
		if !known {
			return fmt.Errorf("key %q: %w", item.Key, ErrKeyNotFound)
		}
		if err := f.Add(item.Path, File{Data: value, Mode: ModeOr(item.Mode, mode)}); err != nil {
			return fmt.Errorf("key %q: %w", item.Key, err)
		}
	}
	return nil
}

// ModeOr is the mode, or the other one if there is none.
func ModeOr(mode *int32, other int32) int32 {
	if mode == nil {
		return other
	}
	return *mode
}

// ConfigMapData is all that a config map holds.
func ConfigMapData(object *v1.ConfigMap) map[string][]byte {
	data := maps.Clone(object.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range object.Data {
		data[key] = []byte(text)
	}
	return data
}
