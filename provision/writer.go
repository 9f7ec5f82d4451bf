package provision

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/ptr"

	"github.com/heraldnode/herald/provision/resolve"
)

// The layout of a volume's directory, as in the kubelet:
//
//	..2026_11_15_06_30_00.123   the files
//	..data -> ..2026_...        the current directory of files; swapped atomically
//	web.conf -> ..data/web.conf the path that containers open
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// atomicWriter updates the directory of one volume. It works from what it finds, so it completes an update that a crash
// interrupted. It never leaves the directory, whatever links are in it.
type atomicWriter struct {
	root   *os.Root
	group  *int64
	nested []string // mount points inside the volume
}

// hasFiles reports whether the volume was complete at some time.
func hasFiles(dir string) bool {
	target, err := os.Readlink(path.Join(dir, dataLink))
	if err != nil || !isDataDir(target) {
		return false
	}
	info, err := os.Lstat(path.Join(dir, target))
	return err == nil && info.IsDir()
}

func isDataDir(name string) bool {
	return strings.HasPrefix(name, "..") && len(name) > 2 && !strings.Contains(name, "/") && name != dataLink
}

// write does not need fsync: files that a power failure left incomplete differ in content, and are written again before any
// container starts.
func (w *atomicWriter) write(files resolve.Files) error {
	// Links first, although they dangle for a moment: if ..data exists, all links exist.
	if err := errors.Join(w.linkFiles(files), w.createMountPoints()); err != nil {
		return fmt.Errorf("create links of volume files: %w", err)
	}
	current := w.currentDir()
	if current == "" || !w.contains(current, files) {
		var err error
		if current, err = w.publish(files); err != nil {
			return fmt.Errorf("write volume files: %w", err)
		}
	}
	if err := w.removeStale(current, files); err != nil {
		return fmt.Errorf("remove old volume files: %w", err)
	}
	return nil
}

// currentDir returns the target of ..data, or "" if it is not a valid one.
func (w *atomicWriter) currentDir() string {
	target, err := w.root.Readlink(dataLink)
	if err != nil || !isDataDir(target) {
		return ""
	}
	if info, err := w.root.Lstat(target); err != nil || !info.IsDir() {
		return ""
	}
	return target
}

// contains compares the content: a file that was modified by others is written again.
func (w *atomicWriter) contains(dir string, files resolve.Files) bool {
	found := 0
	err := fs.WalkDir(w.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, wanted := files[strings.TrimPrefix(name, dir+"/")]
		if !wanted || !entry.Type().IsRegular() {
			return fs.ErrInvalid
		}
		if info, err := entry.Info(); err != nil || info.Size() != int64(len(file.Data)) {
			return errors.Join(fs.ErrInvalid, err)
		}
		data, err := w.root.ReadFile(name)
		if err != nil || !bytes.Equal(data, file.Data) {
			return errors.Join(fs.ErrInvalid, err)
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}

// publish writes all files into a new directory and makes it current.
func (w *atomicWriter) publish(files resolve.Files) (string, error) {
	dir := time.Now().UTC().Format("..2006_01_02_15_04_05.") + strconv.FormatUint(rand.Uint64(), 36)
	if err := w.writeDir(dir, files); err != nil {
		return "", errors.Join(err, w.remove(dir))
	}
	if info, err := w.root.Lstat(dataLink); err == nil && info.Mode().Type() != fs.ModeSymlink {
		if err := w.remove(dataLink); err != nil { // not ours, and in the way
			return "", err
		}
	}
	if err := w.remove(newDataLink); err != nil {
		return "", err
	}
	if err := w.root.Symlink(dir, newDataLink); err != nil {
		return "", err
	}
	return dir, w.root.Rename(newDataLink, dataLink)
}

func (w *atomicWriter) writeDir(dir string, files resolve.Files) error {
	dirs := map[string]bool{dir: true}
	for name := range files {
		for parent := path.Dir(name); parent != "."; parent = path.Dir(parent) {
			dirs[path.Join(dir, parent)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) { // parents first
		if err := w.root.Mkdir(name, 0o700); err != nil {
			return err
		}
		if err := setModeAndGroup(w.root, name, 0o755, w.group); err != nil {
			return err
		}
	}
	for name, file := range files {
		if err := w.writeFile(path.Join(dir, name), file); err != nil {
			return err
		}
	}
	return nil
}

func (w *atomicWriter) writeFile(name string, content resolve.File) error {
	file, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content.Data)
	mode, user, group := fs.FileMode(content.Mode), int(ptr.Deref(content.Owner, -1)), -1
	if w.group != nil {
		mode, group = mode|0o440, int(*w.group)
	}
	if err == nil && (user >= 0 || group >= 0) {
		err = chown(file, user, group)
	}
	if err == nil {
		err = file.Chmod(mode)
	}
	return errors.Join(err, file.Close())
}

// linkFiles creates the links that containers open.
func (w *atomicWriter) linkFiles(files resolve.Files) error {
	for name := range files {
		visible, _, _ := strings.Cut(name, "/")
		target := path.Join(dataLink, visible)
		if found, err := w.root.Readlink(visible); err == nil && found == target || w.isMountPoint(visible) {
			continue
		}
		if err := w.remove(visible); err != nil {
			return err
		}
		if err := w.root.Symlink(target, visible); err != nil {
			return err
		}
	}
	return nil
}

// isMountPoint reports whether a running container may have a mount at or below the directory, which removing it would end.
func (w *atomicWriter) isMountPoint(visible string) bool {
	isNested := slices.ContainsFunc(w.nested, func(place string) bool { return strings.HasPrefix(place+"/", visible+"/") })
	info, err := w.root.Lstat(visible)
	return isNested && err == nil && info.IsDir()
}

func (w *atomicWriter) createMountPoints() error {
	for _, place := range w.nested {
		visible, _, _ := strings.Cut(place, "/")
		if info, err := w.root.Lstat(visible); err == nil && !info.IsDir() {
			continue // a file of the volume serves as the mount point
		}
		if err := w.root.MkdirAll(place, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeStale removes links of removed files, directories that are not current, and what a crash left.
func (w *atomicWriter) removeStale(current string, files resolve.Files) error {
	visible := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		visible[first] = true
	}
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		name := entry.Name()
		isStale := strings.HasPrefix(name, "..") && name != dataLink && name != current
		if target, err := w.root.Readlink(name); err == nil && target == path.Join(dataLink, name) && !visible[name] {
			isStale = true
		}
		if isStale {
			errs = append(errs, w.remove(name))
		}
	}
	return errors.Join(errs...)
}

func (w *atomicWriter) remove(name string) error {
	dir, err := w.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return removeTree(dir, name, neverCancelled)
}

// setModeAndGroup sets a directory's mode and, if not nil, its group, which new entries inherit. A directory that has both is
// not touched, so watchers are not notified.
func setModeAndGroup(root *os.Root, name string, mode os.FileMode, group *int64) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if group != nil {
		mode |= os.ModeSetgid
	}
	hasGroup := group == nil || int64(info.Sys().(*syscall.Stat_t).Gid) == *group
	if hasGroup && info.Mode()&^os.ModeType == mode {
		return nil
	}
	if group != nil {
		if err := chown(dir, -1, int(*group)); err != nil {
			return err
		}
	}
	return dir.Chmod(mode)
}

// chown must be called before the mode is set: the kernel clears mode bits when the owner changes.
func chown(file *os.File, user, group int) error {
	err := file.Chown(user, group)
	switch {
	case err != nil && user >= 0:
		return fmt.Errorf("securityContext.runAsUser, securityContext.fsGroup: change owner to user %d, group %d: %w", user, group, err)
	case err != nil:
		return fmt.Errorf("securityContext.fsGroup: change group to %d: %w", group, err)
	}
	return nil
}
