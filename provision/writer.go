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

	"github.com/heraldnode/herald/provision/resolve"
)

// A volume's folder, as the kubelet lays it out:
//
//	..2026_11_15_06_30_00.123   the files
//	..data -> ..2026_...        which of such folders is in force; swapped in one step
//	web.conf -> ..data/web.conf what containers open
const (
	dataLink    = "..data"
	newDataLink = "..data_tmp"
)

// writer brings one volume's folder up to date. It goes by what it finds, so that it finishes what a crash cut short, and
// never leaves the folder, whatever links are in it.
type writer struct {
	root   *os.Root
	group  *int64
	nested []string
}

// hasFiles reports that the volume was complete at some time.
func hasFiles(folder string) bool {
	target, err := os.Readlink(path.Join(folder, dataLink))
	if err != nil || !isDataFolder(target) {
		return false
	}
	info, err := os.Lstat(path.Join(folder, target))
	return err == nil && info.IsDir()
}

func isDataFolder(name string) bool {
	return strings.HasPrefix(name, "..") && len(name) > 2 && !strings.Contains(name, "/") && name != dataLink
}

// write needs no fsync: what a power cut leaves half-written differs from files, and is written again before any container
// starts.
func (w *writer) write(files resolve.Files) error {
	// The names come first, although they lead nowhere for a moment: where there is a ..data, all names are there.
	if err := errors.Join(w.link(files), w.makeNested()); err != nil {
		return fmt.Errorf("make the names of the volume's files: %w", err)
	}
	current := w.current()
	if current == "" || !w.holds(current, files) {
		var err error
		if current, err = w.publish(files); err != nil {
			return fmt.Errorf("write the volume's files: %w", err)
		}
	}
	if err := w.tidy(current, files); err != nil {
		return fmt.Errorf("remove the volume's old files: %w", err)
	}
	return nil
}

// current is the folder in force; "" if there is none that is ours.
func (w *writer) current() string {
	target, err := w.root.Readlink(dataLink)
	if err != nil || !isDataFolder(target) {
		return ""
	}
	if info, err := w.root.Lstat(target); err != nil || !info.IsDir() {
		return ""
	}
	return target
}

// holds compares by content: a file that somebody else changed is written again.
func (w *writer) holds(folder string, files resolve.Files) bool {
	found := 0
	err := fs.WalkDir(w.root.FS(), folder, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, wanted := files[strings.TrimPrefix(name, folder+"/")]
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

// publish writes all files into a new folder and puts it in force.
func (w *writer) publish(files resolve.Files) (string, error) {
	folder := time.Now().UTC().Format("..2006_01_02_15_04_05.") + strconv.FormatUint(rand.Uint64(), 36)
	if err := w.fill(folder, files); err != nil {
		return "", errors.Join(err, w.remove(folder))
	}
	if info, err := w.root.Lstat(dataLink); err == nil && info.Mode().Type() != fs.ModeSymlink {
		if err := w.remove(dataLink); err != nil { // not ours, and in the way
			return "", err
		}
	}
	if err := w.remove(newDataLink); err != nil {
		return "", err
	}
	if err := w.root.Symlink(folder, newDataLink); err != nil {
		return "", err
	}
	return folder, w.root.Rename(newDataLink, dataLink)
}

func (w *writer) fill(folder string, files resolve.Files) error {
	folders := map[string]bool{folder: true}
	for name := range files {
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			folders[path.Join(folder, above)] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(folders)) { // the outer ones first
		if err := w.root.Mkdir(name, 0o700); err != nil {
			return err
		}
		if err := share(w.root, name, 0o755, w.group); err != nil {
			return err
		}
	}
	for name, file := range files {
		if err := w.fillFile(path.Join(folder, name), file); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) fillFile(name string, file resolve.File) error {
	opened, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = opened.Write(file.Data)
	mode, user, group := fs.FileMode(file.Mode), -1, -1
	if file.Owner != nil {
		user = int(*file.Owner)
	}
	if w.group != nil {
		mode, group = mode|0o440, int(*w.group)
	}
	if err == nil && (user >= 0 || group >= 0) {
		err = own(opened, user, group)
	}
	if err == nil {
		err = opened.Chmod(mode)
	}
	return errors.Join(err, opened.Close())
}

// link makes the names that containers open.
func (w *writer) link(files resolve.Files) error {
	for name := range files {
		visible, _, _ := strings.Cut(name, "/")
		target := path.Join(dataLink, visible)
		if found, err := w.root.Readlink(visible); err == nil && found == target || w.isMountedOn(visible) {
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

// isMountedOn says that a running container may have something mounted there, which would end with the folder.
func (w *writer) isMountedOn(visible string) bool {
	isNested := slices.ContainsFunc(w.nested, func(place string) bool { return strings.HasPrefix(place+"/", visible+"/") })
	info, err := w.root.Lstat(visible)
	return isNested && err == nil && info.IsDir()
}

func (w *writer) makeNested() error {
	for _, place := range w.nested {
		visible, _, _ := strings.Cut(place, "/")
		if info, err := w.root.Lstat(visible); err == nil && !info.IsDir() {
			continue // one of the files is where something else is mounted: that will do
		}
		if err := w.root.MkdirAll(place, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// tidy removes names of files that are gone, folders that are no longer in force and what a crash left.
func (w *writer) tidy(current string, files resolve.Files) error {
	visible := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(name, "/")
		visible[first] = true
	}
	entries, err := fs.ReadDir(w.root.FS(), ".")
	if err != nil {
		return err
	}
	var failed []error
	for _, entry := range entries {
		name := entry.Name()
		isOld := strings.HasPrefix(name, "..") && name != dataLink && name != current
		if target, err := w.root.Readlink(name); err == nil && target == path.Join(dataLink, name) && !visible[name] {
			isOld = true
		}
		if isOld {
			failed = append(failed, w.remove(name))
		}
	}
	return errors.Join(failed...)
}

func (w *writer) remove(name string) error {
	folder, err := w.root.Open(".")
	if err != nil {
		return err
	}
	defer folder.Close()
	return removeTree(folder, name, neverStop)
}

// share gives a folder its mode and, if there is one, its group, which what is made in it inherits. A folder that has them
// is left alone, so that nobody who watches it is woken.
func share(root *os.Root, name string, mode os.FileMode, group *int64) error {
	opened, err := root.Open(name)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	if group != nil {
		mode |= os.ModeSetgid
	}
	isOwned := group == nil || int64(info.Sys().(*syscall.Stat_t).Gid) == *group
	if isOwned && info.Mode()&^os.ModeType == mode {
		return nil
	}
	if group != nil {
		if err := own(opened, -1, int(*group)); err != nil {
			return err
		}
	}
	return opened.Chmod(mode)
}

// own sets owner and group before the mode, which the kernel cuts down when they change.
func own(opened *os.File, user, group int) error {
	err := opened.Chown(user, group)
	switch {
	case err != nil && user >= 0:
		return fmt.Errorf("securityContext.runAsUser, securityContext.fsGroup: give files to user %d, group %d: %w", user, group, err)
	case err != nil:
		return fmt.Errorf("securityContext.fsGroup: give files to group %d: %w", group, err)
	}
	return nil
}
