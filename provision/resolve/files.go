package resolve

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// File is a file of a volume.
type File struct {
	Data []byte
	Mode int32 // the nine permission bits
	// Owner is the user who owns the file. If nil, the agent's user does.
	Owner *int64
}

// Files are the files of a volume by their relative path. A later file replaces an earlier one.
type Files map[string]File

// DefaultMode is the mode of files if the spec sets none.
const DefaultMode int32 = 0o644

const (
	maxNameLength = 255
	maxPathLength = 4096
)

// Add adds a file. It fails if the path leads out of the volume or the mode is invalid.
func (f Files) Add(filePath string, file File) error {
	clean, err := cleanPath(filePath)
	if err != nil {
		return err
	}
	if file.Mode < 0 || file.Mode > 0o777 {
		return fmt.Errorf("path %q: mode %#o is not between 0 and 0777", filePath, file.Mode)
	}
	f[clean] = file
	return nil
}

// cleanPath rejects paths that lead out of the volume, and names that are reserved for the volume's own links.
func cleanPath(filePath string) (string, error) {
	elements := strings.Split(filePath, "/")
	switch {
	case filePath == "" || path.Clean(filePath) == ".":
		return "", fmt.Errorf("path %q: must name a file", filePath)
	case path.IsAbs(filePath):
		return "", fmt.Errorf("path %q: must be relative to the volume", filePath)
	case slices.Contains(elements, ".."):
		return "", fmt.Errorf(`path %q: must not contain ".."`, filePath)
	case strings.HasPrefix(path.Clean(filePath), ".."):
		return "", fmt.Errorf("path %q: must not begin with two dots", filePath)
	case strings.ContainsRune(filePath, 0):
		return "", fmt.Errorf("path %q: must not contain a NUL byte", filePath)
	case len(filePath) > maxPathLength || slices.ContainsFunc(elements, func(e string) bool { return len(e) > maxNameLength }):
		return "", fmt.Errorf("path %.40q...: is too long", filePath)
	}
	return path.Clean(filePath), nil
}

// Validate fails if a path is both a file and a directory.
func (f Files) Validate() error {
	for _, filePath := range slices.Sorted(maps.Keys(f)) {
		for parent := path.Dir(filePath); parent != "."; parent = path.Dir(parent) {
			if _, isFile := f[parent]; isFile {
				return fmt.Errorf("path %q: %q is both a file and a directory", filePath, parent)
			}
		}
	}
	return nil
}

// ErrKeyNotFound reports that an object does not have a key.
var ErrKeyNotFound = errors.New("key not found")

// KeySelection selects the keys of an object that become files.
type KeySelection struct {
	// Items selects keys and their paths. If empty, all keys become files of the same name.
	Items []v1.KeyToPath
	// Mode is the mode of files for which Items sets none. If nil, DefaultMode.
	Mode *int32
	// Optional ignores missing keys.
	Optional bool
}

// AddKeys adds the selected keys of an object's data.
func (f Files) AddKeys(data map[string][]byte, selection KeySelection) error {
	mode := ptr.Deref(selection.Mode, DefaultMode)
	if len(selection.Items) == 0 {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			if err := f.Add(key, File{Data: data[key], Mode: mode}); err != nil {
				return fmt.Errorf("key %q: %w", key, err)
			}
		}
		return nil
	}
	for _, item := range selection.Items {
		value, found := data[item.Key]
		if !found && selection.Optional {
			continue
		}
		if !found {
			return fmt.Errorf("key %q: %w", item.Key, ErrKeyNotFound)
		}
		if err := f.Add(item.Path, File{Data: value, Mode: ptr.Deref(item.Mode, mode)}); err != nil {
			return fmt.Errorf("key %q: %w", item.Key, err)
		}
	}
	return nil
}

// ConfigMapData returns the text and binary data of a config map.
func ConfigMapData(configMap *v1.ConfigMap) map[string][]byte {
	data := maps.Clone(configMap.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range configMap.Data {
		data[key] = []byte(text)
	}
	return data
}

// FSGroup returns the group that owns the pod's volumes, or nil.
func FSGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// FSUser returns the user of all containers of the pod, or nil if they differ or the spec does not set it.
func FSUser(pod *v1.Pod) *int64 {
	var common *int64
	for i, container := range allContainers(pod) {
		user := runAsUser(pod, &container)
		if user == nil || i > 0 && *user != *common {
			return nil
		}
		common = user
	}
	return common
}

func runAsUser(pod *v1.Pod, container *v1.Container) *int64 {
	if security := container.SecurityContext; security != nil && security.RunAsUser != nil {
		return security.RunAsUser
	}
	if security := pod.Spec.SecurityContext; security != nil {
		return security.RunAsUser
	}
	return nil
}

func allContainers(pod *v1.Pod) []v1.Container {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for _, ephemeral := range pod.Spec.EphemeralContainers {
		all = append(all, v1.Container(ephemeral.EphemeralContainerCommon))
	}
	return all
}

// NestedMounts returns the mount points of other volumes inside the volume, relative to it. They must exist before the
// volume is mounted read-only.
func NestedMounts(pod *v1.Pod, volumeName string) []string {
	var mountPoints []string
	for _, container := range allContainers(pod) {
		for _, outer := range container.VolumeMounts {
			if outer.Name != volumeName || outer.SubPath != "" || outer.SubPathExpr != "" {
				continue
			}
			for _, inner := range container.VolumeMounts {
				below, isBelow := strings.CutPrefix(path.Clean(inner.MountPath), path.Clean(outer.MountPath)+"/")
				if isBelow && !strings.HasPrefix(below, "..") { // reserved for the volume's own links
					mountPoints = append(mountPoints, below)
				}
			}
		}
	}
	slices.Sort(mountPoints)
	return slices.Compact(mountPoints)
}
