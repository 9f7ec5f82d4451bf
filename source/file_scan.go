package source

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// maxEntries is the maximum number of entries in a manifest directory. No node runs as many pods: a larger directory is a
// configuration mistake, such as the path of a mail directory.
const maxEntries = 20_000

// Listing is the result of a scan.
type Listing struct {
	// Known is false until a scan found a valid pod or no problem. Until then the set of pods is unknown.
	Known bool
	// Pods holds the pods of the last valid version of each manifest.
	Pods []*v1.Pod
	// Problems holds the current problems.
	Problems []Problem
	// Ignored holds the files that were skipped because of their names.
	Ignored []IgnoredFile

	delayed bool // a file is being written and was not read
}

// directoryID identifies a directory. The zero value stands for none.
type directoryID struct{ dev, ino uint64 }

// directory is the open directory of the manifests. Files are opened relative to it, so that all of them come from one
// directory even if its path is replaced meanwhile.
type directory struct {
	*os.File
	path string
	stat unix.Stat_t
}

// dirEntry is an entry whose name may be a manifest's.
type dirEntry struct {
	name, path string
	isSymlink  bool // or may be one
}

// Scan reads the path and returns the pods. The listing is always complete and rebuilt from the current files, so that
// removed pods cannot come back (BUG-19). Files that did not change since the last call are not read again.
//
// Run scans in the same way, except that it does not read files that are being written. Scan must not be called while Run
// runs.
func (f *File) Scan() Listing { return f.scan(0) }

func (f *File) scan(settle time.Duration) Listing {
	f.found = directoryID{}
	dir, single, err := f.openDirectory()
	if err != nil {
		return f.unavailable(err)
	}
	defer dir.Close()
	entries, ignored, err := f.list(dir, single)
	if err != nil {
		return f.unavailable(err)
	}
	f.found = directoryID{deviceOf(&dir.stat), dir.stat.Ino}
	if len(entries) == 0 && len(f.files) > 0 && f.found.dev != f.scanned.dev {
		return f.keepPods(errUnmounted)
	}
	f.single, f.scanned = single, f.found
	f.listing = f.readAll(dir, entries, settle)
	f.listing.Ignored = ignored
	return f.listing
}

// openDirectory opens the directory of the manifests: the path or, if that is a file, its parent.
func (f *File) openDirectory() (dir *directory, single bool, err error) {
	dir, err = openDirectory(f.path)
	if errors.Is(err, unix.ENOTDIR) {
		single = true
		dir, err = openDirectory(filepath.Dir(f.path))
	}
	if err != nil {
		return nil, false, err
	}
	if f.config.AllowUnsafePermissions {
		return dir, single, nil
	}
	if err := f.permissions.Check(dir.path, &dir.stat); err != nil {
		dir.Close()
		if single {
			err = fmt.Errorf("is in %s, which %w", dir.path, err)
		}
		return nil, false, err
	}
	return dir, single, nil
}

func openDirectory(path string) (*directory, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", err)
	}
	dir := &directory{File: os.NewFile(uintptr(fd), path), path: path}
	if err := unix.Fstat(fd, &dir.stat); err != nil {
		dir.Close()
		return nil, fmt.Errorf("cannot be examined: %w", err)
	}
	return dir, nil
}

// list returns the manifests of the directory, sorted by name, and the ignored files.
func (f *File) list(dir *directory, single bool) (entries []dirEntry, ignored []IgnoredFile, err error) {
	if single {
		return []dirEntry{{name: filepath.Base(f.path), path: f.path, isSymlink: true}}, nil, nil
	}
	modes, err := readNames(dir)
	if err != nil {
		return nil, nil, err
	}
	if f.missesKnownFile(modes) {
		// A directory listing is not a snapshot: a file that is renamed meanwhile can be missing under both names. A file is
		// gone only if it is missing twice.
		again, err := readNames(dir)
		if err != nil {
			return nil, nil, err
		}
		for name, mode := range again {
			modes[name] = mode
		}
	}
	for name, mode := range modes {
		switch reason := reasonToIgnore(name, f.config.Extensions); {
		case reason == "":
			entries = append(entries, dirEntry{name: name, path: dir.path + "/" + name, isSymlink: mode&fs.ModeSymlink != 0})
		case !mode.IsDir() && !strings.HasPrefix(name, ".."): // the links of projected volumes
			ignored = append(ignored, IgnoredFile{Path: dir.path + "/" + name, Reason: reason})
		}
	}
	slices.SortFunc(entries, func(a, b dirEntry) int { return cmp.Compare(a.name, b.name) })
	slices.SortFunc(ignored, func(a, b IgnoredFile) int { return cmp.Compare(a.Path, b.Path) })
	return entries, ignored, nil
}

func (f *File) missesKnownFile(modes map[string]fs.FileMode) bool {
	for name := range f.files {
		if _, found := modes[name]; !found {
			return true
		}
	}
	return false
}

// readNames lists the directory from its beginning.
func readNames(dir *directory) (map[string]fs.FileMode, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot be listed: %w", err)
	}
	entries, err := dir.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot be listed: %w", err)
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("has more than %d entries and is not used as a manifest directory", maxEntries)
	}
	modes := make(map[string]fs.FileMode, len(entries))
	for _, entry := range entries {
		modes[entry.Name()] = entry.Type()
	}
	return modes, nil
}

// IgnoredFile is a file of the manifest directory that is not read.
type IgnoredFile struct {
	Path string
	// Reason is hidden, backup or extension.
	Reason string
}

// reasonToIgnore returns why a file is not read, from its name alone, or "". Names with a leading dot belong to editors and tools:
// swap files, and the ..data directories of projected volumes. A backup left by an editor or package manager must not run as a
// second pod or replace the original (BUG-32).
func reasonToIgnore(name string, extensions []string) string {
	switch {
	case strings.HasPrefix(name, "."):
		return "hidden"
	case isBackup(name):
		return "backup"
	case slices.Contains(extensions, AnyExtension), slices.Contains(extensions, strings.ToLower(filepath.Ext(name))):
		return ""
	default:
		return "extension"
	}
}

func isBackup(name string) bool {
	name = strings.ToLower(name)
	if strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return true
	}
	if strings.Contains(name, ".dpkg-") {
		return true
	}
	for _, suffix := range [...]string{
		"~", ".bak", "-bak", ".backup", ".orig", ".rej", ".swp", ".swo", ".swx", ".tmp", ".temp", ".part", ".old", "-old",
		".save", ".rpmsave", ".rpmnew", ".rpmorig", ".ucf-old", ".ucf-new", ".ucf-dist",
	} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// readAll updates the state of every file and drops the state of removed files.
func (f *File) readAll(dir *directory, entries []dirEntry, settle time.Duration) Listing {
	files := make(map[string]manifestFile, len(entries))
	defined := make([]filePods, 0, len(entries))
	var listing Listing
	for _, entry := range entries {
		file := f.read(dir, entry, f.files[entry.name], settle)
		files[entry.name] = file
		defined = append(defined, filePods{path: entry.path, pods: file.pods})
		listing.Problems = append(listing.Problems, file.problems()...)
		listing.delayed = listing.delayed || !file.delayedSince.IsZero()
	}
	pods, owners, duplicates := resolveDuplicates(defined, f.owners)
	f.files, f.owners = files, owners
	listing.Pods = pods
	listing.Problems = append(listing.Problems, duplicates...)
	usable := len(pods) > 0 || len(listing.Problems) == 0
	listing.Known = f.listing.Known || usable && !listing.delayed
	return listing
}

// filePods holds the pods of one manifest file.
type filePods struct {
	path string
	pods []*v1.Pod
}

// resolveDuplicates selects one file for each pod name. The previous owner keeps the name as long as it defines the pod.
// Otherwise the first file gets it (CFG-20). It returns the pods, the file that owns each name, and a problem for each
// skipped pod.
func resolveDuplicates(files []filePods, previous map[podid.FullName]string) (
	pods []*v1.Pod, owners map[podid.FullName]string, problems []Problem,
) {
	owners = map[podid.FullName]string{}
	for _, file := range files {
		for _, pod := range file.pods {
			name := podid.FullNameOf(pod)
			if _, owned := owners[name]; !owned || previous[name] == file.path {
				owners[name] = file.path
			}
		}
	}
	for _, file := range files {
		for _, pod := range file.pods {
			name := podid.FullNameOf(pod)
			if owners[name] == file.path {
				pods = append(pods, pod)
				continue
			}
			problems = append(problems, Problem{
				Location: file.path,
				Field:    "metadata.name",
				Pod:      name,
				Message: fmt.Sprintf("skipped: pod %s in namespace %s is also defined in %s; remove one of them",
					name.Name, name.Namespace, owners[name]),
			})
		}
	}
	return pods, owners, problems
}

var errUnmounted = errors.New("is empty and on a different file system than before, as after an unmount")

// unavailable returns the listing for a path that cannot be read. A path that never existed is a node without static pods
// (CFG-13), and a single file that was removed from its directory is a removed manifest. A directory that disappears looks
// exactly like a failed disk: the kubelet terminates all its pods (CFG-13), Herald keeps them and reports a problem, as it
// does for an invalid file (BUG-18).
func (f *File) unavailable(err error) Listing {
	missing := errors.Is(err, fs.ErrNotExist) && !f.isDanglingSymlink()
	switch {
	case missing && f.scanned == directoryID{}, missing && f.single && f.parentExists():
		f.files, f.owners = nil, nil
		f.listing = Listing{Known: true}
		return f.withProblem("does not exist; no static pods are read")
	default:
		return f.keepPods(err)
	}
}

// isDanglingSymlink reports whether the path, known not to resolve, exists as a symbolic link.
func (f *File) isDanglingSymlink() bool {
	_, err := os.Lstat(f.path)
	return err == nil
}

// parentExists reports whether the directory of the single file is still on the same file system.
func (f *File) parentExists() bool {
	var stat unix.Stat_t
	err := unix.Stat(filepath.Dir(f.path), &stat)
	return err == nil && deviceOf(&stat) == f.scanned.dev
}

// keepPods returns the last listing with the error as its problem.
func (f *File) keepPods(err error) Listing {
	if !f.listing.Known {
		return f.withProblem(fmt.Sprintf("%v; its pods are unknown", err))
	}
	return f.withProblem(fmt.Sprintf("%v; its pods are kept (%d)", err, len(f.listing.Pods)))
}

// withProblem returns the last listing with one problem of the whole path instead of its own problems.
func (f *File) withProblem(message string) Listing {
	listing := f.listing
	listing.Problems = []Problem{{Location: f.path, Message: message, Unavailable: true}}
	return listing
}
