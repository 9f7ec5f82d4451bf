package provision

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/provision/resolve"
)

// Mount creates the pod's volumes and updates their files from the API server and the pod. The error names each volume that
// has never been complete, in the kubelet's wording for events. If a complete volume cannot be updated, it keeps its files
// and an event is recorded.
func (p *Provisioner) Mount(ctx context.Context, pod *v1.Pod) error {
	p.prefetchServices(pod)
	var errs []error
	for i := range pod.Spec.Volumes {
		if err := p.mountVolume(ctx, pod, &pod.Spec.Volumes[i]); err != nil {
			errs = append(errs, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", pod.Spec.Volumes[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Provisioner) mountVolume(ctx context.Context, pod *v1.Pod, volume *v1.Volume) error {
	start := time.Now()
	plugin, err := pluginName(volume)
	if err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case volume.HostPath != nil:
		err = prepareHostPath(volume.HostPath)
	case volume.EmptyDir != nil:
		err = p.createEmptyDir(pod, volume)
	default:
		err = p.mountFiles(ctx, pod, volume)
	}
	p.metrics.observeMount(plugin, start, err)
	p.recordVolume(podid.UID(pod.UID), volume.Name, volumeState{plugin: plugin, isMounted: err == nil})
	return err
}

// mountFiles creates or updates a volume of files.
func (p *Provisioner) mountFiles(ctx context.Context, pod *v1.Pod, volume *v1.Volume) error {
	dir, err := p.volumeDir(pod, volume)
	if err != nil {
		return err
	}
	wasComplete := hasFiles(dir)
	files, err := p.collectFiles(ctx, pod, volume)
	if err == nil {
		err = writeFiles(pod, volume, dir, files)
	}
	if err != nil && wasComplete && ctx.Err() == nil {
		p.reportStale(pod, volume, err)
		return nil
	}
	return err
}

func (p *Provisioner) reportStale(pod *v1.Pod, volume *v1.Volume, err error) {
	p.config.Logger.Warn("Failed to update volume, keeping its files",
		"pod", podid.FullNameOf(pod).Key(), "podUID", pod.UID, "volume", volume.Name, "err", err)
	p.config.Events.Event(pod, v1.EventTypeWarning, "FailedMount",
		fmt.Sprintf("volume %q keeps its files because they could not be updated: %v", volume.Name, err))
}

func writeFiles(pod *v1.Pod, volume *v1.Volume, dir string, files resolve.Files) error {
	group := resolve.FSGroup(pod)
	mode, err := createFilesDir(volume, dir, group)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open volume directory: %w", err)
	}
	defer root.Close()
	if err := setModeAndGroup(root, ".", mode, group); err != nil {
		return err
	}
	return (&atomicWriter{root: root, group: group, nested: resolve.NestedMounts(pod, volume.Name)}).write(files)
}

// createFilesDir creates the volume's directory and returns its mode. As in the kubelet, all volumes but those of config maps
// are in memory if possible: a kubelet that takes over mounts a tmpfs over files on disk. A volume on disk that may contain
// secrets has a directory that only this process's user and the pod's group can enter.
func createFilesDir(volume *v1.Volume, dir string, group *int64) (os.FileMode, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return 0, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		return 0, fmt.Errorf("%s is not a directory", dir)
	}
	if volume.ConfigMap != nil {
		return 0o755, nil
	}
	isMounted, err := isTmpfs(dir)
	if err != nil {
		return 0, err
	}
	// Files that are already on disk are in use: nothing is mounted over them.
	if !isMounted && !hasFiles(dir) && mayMount() {
		err := mountTmpfs(dir, tmpfsOptions{mode: 0o755, restricted: true})
		if err != nil && !isPermissionError(err) {
			return 0, err
		}
		isMounted = err == nil
	}
	switch {
	case isMounted || volume.DownwardAPI != nil:
		return 0o755, nil
	case group != nil:
		return 0o750, nil
	}
	return 0o700, nil
}

// emptyDirMode lets containers of any user in. In memory the volume is also sticky, as the kubelet's is: a tmpfs is by default.
const emptyDirMode os.FileMode = 0o777

// createEmptyDir creates the directory once. From then on it belongs to the containers, which may change its mode and owner.
func (p *Provisioner) createEmptyDir(pod *v1.Pod, volume *v1.Volume) error {
	dir, err := p.volumeDir(pod, volume)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	switch medium := volume.EmptyDir.Medium; medium {
	case v1.StorageMediumDefault:
		err = createEmptyDirOnDisk(dir, resolve.FSGroup(pod))
	case v1.StorageMediumMemory:
		size := resolve.EmptyDirMemorySize(pod, volume.EmptyDir, p.config.NodeInfo().Allocatable)
		err = createEmptyDirInMemory(dir, tmpfsOptions{mode: emptyDirMode | os.ModeSticky, group: resolve.FSGroup(pod), size: size})
	default:
		err = fmt.Errorf(`emptyDir.medium: %q is not supported, use "" or Memory`, medium)
	}
	if err != nil {
		return err
	}
	return markReady(p.dirs.Of(podid.UID(pod.UID)), volume.Name)
}

// The kubelet marks a complete emptyDir by the file <pod>/plugins/kubernetes.io~empty-dir/<volume>/ready.
const (
	pluginsDir     = "plugins"
	emptyDirPlugin = "kubernetes.io~empty-dir"
	readyFile      = "ready"
)

// markReady marks the volume as complete for a kubelet that takes over the node. Without the mark, the kubelet resets the mode
// and the group that containers may have changed.
func markReady(podDir, volume string) error {
	dir := filepath.Join(podDir, pluginsDir, emptyDirPlugin, volume)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, readyFile), os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return fmt.Errorf("mark emptyDir as ready: %w", err)
	}
	return file.Close()
}

// createEmptyDirOnDisk prepares the directory under a name that no volume can have. A directory with the volume's name is
// complete.
func createEmptyDirOnDisk(dir string, group *int64) error {
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer parent.Close()
	name := filepath.Base(dir)
	temporary := "..new-" + name
	if err := parent.Mkdir(temporary, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := setModeAndGroup(parent, temporary, emptyDirMode, group); err != nil {
		return err
	}
	if err := parent.Rename(temporary, name); err != nil {
		return err
	}
	return nil
}

// createEmptyDirInMemory sets mode and group in the mount call itself, so an existing mount is complete.
func createEmptyDirInMemory(dir string, options tmpfsOptions) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	isMounted, err := isTmpfs(dir)
	if err != nil || isMounted {
		return err
	}
	err = mountTmpfs(dir, options)
	if isPermissionError(err) {
		return fmt.Errorf("emptyDir.medium: Memory requires a mount, which this process may not make (%w); "+
			"run it as root with CAP_SYS_ADMIN, or omit the medium", err)
	}
	return err
}

// hostPathTypes lists the types that require a file of a certain kind.
var hostPathTypes = map[v1.HostPathType]struct {
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

// prepareHostPath checks that the path has the volume's type, and creates it if the type says so. Without a type nothing is
// checked.
func prepareHostPath(source *v1.HostPathVolumeSource) error {
	switch {
	case !filepath.IsAbs(source.Path):
		return fmt.Errorf("hostPath.path: %q is not an absolute path", source.Path)
	case slices.Contains(strings.Split(source.Path, "/"), ".."):
		return fmt.Errorf(`hostPath.path: %q must not contain ".."`, source.Path)
	case source.Type == nil || *source.Type == v1.HostPathUnset:
		return nil
	}
	want, known := hostPathTypes[*source.Type]
	if !known {
		return fmt.Errorf("hostPath.type: %q is not supported", *source.Type)
	}
	info, err := os.Stat(source.Path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = createHostPath(source)
	}
	if err != nil {
		return fmt.Errorf("hostPath of type %s: %w", *source.Type, err)
	}
	if info.Mode().Type() != want.mode {
		return fmt.Errorf("hostPath of type %s: %s is not %s", *source.Type, source.Path, want.name)
	}
	return nil
}

// createHostPath creates the parents of a directory, but not those of a file.
func createHostPath(source *v1.HostPathVolumeSource) (fs.FileInfo, error) {
	switch *source.Type {
	case v1.HostPathDirectoryOrCreate:
		if err := os.MkdirAll(source.Path, 0o755); err != nil {
			return nil, err
		}
	case v1.HostPathFileOrCreate:
		file, err := os.OpenFile(source.Path, os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return nil, err
		}
		if err := file.Close(); err != nil {
			return nil, err
		}
	}
	return os.Stat(source.Path)
}

// tmpfsOptions are the options of a volume in memory.
type tmpfsOptions struct {
	mode  os.FileMode
	group *int64
	size  int64 // bytes; 0 means the kernel's default
	// restricted disables devices and set-user-ID programs, for volumes that only this process writes.
	restricted bool
}

func mayMount() bool { return os.Geteuid() == 0 }

func isPermissionError(err error) bool { return errors.Is(err, fs.ErrPermission) }

func mountTmpfs(dir string, options tmpfsOptions) error {
	mode, data := uint32(options.mode.Perm()), ""
	if options.mode&os.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	if options.group != nil {
		mode |= unix.S_ISGID
		data = fmt.Sprintf(",gid=%d", *options.group)
	}
	if options.size > 0 {
		data += fmt.Sprintf(",size=%d", options.size)
	}
	data = fmt.Sprintf("mode=%o%s", mode, data)
	var flags uintptr
	if options.restricted {
		flags = unix.MS_NOSUID | unix.MS_NODEV
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", flags, data+",noswap")
	if errors.Is(err, unix.EINVAL) { // noswap requires Linux 6.3
		err = unix.Mount("tmpfs", dir, "tmpfs", flags, data)
	}
	if err != nil {
		return fmt.Errorf("mount tmpfs (%s) at %s: %w", data, dir, err)
	}
	return nil
}

// isTmpfs reports whether a tmpfs is mounted at the directory. Any other mount there is an error.
func isTmpfs(path string) (bool, error) {
	dir, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	return isTmpfsMount(dir)
}

func isTmpfsMount(dir *os.File) (bool, error) {
	var stat unix.Statx_t
	if err := unix.Statx(int(dir.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &stat); err != nil {
		return false, fmt.Errorf("check for a mount at %s: %w", dir.Name(), err)
	}
	if stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, errors.New("check for mounts: the kernel is older than 5.8")
	}
	if stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return false, nil
	}
	var fileSystem unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fileSystem); err != nil {
		return false, fmt.Errorf("check the mount at %s: %w", dir.Name(), err)
	}
	if fileSystem.Type != unix.TMPFS_MAGIC {
		return false, fmt.Errorf("%s: %w", dir.Name(), errForeignMount)
	}
	return true, nil
}

// errForeignMount reports a mount inside a pod's volumes that this package has not made.
var errForeignMount = errors.New("a file system that is not a volume is mounted there; unmount it")
