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
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"
)

// maxEntries is how many names a manifest directory may have. No node runs as many pods; more is a mistake, such as the
// path of a mail folder.
const maxEntries = 20_000

// Listing is what one look at the path found.
type Listing struct {
	// Known is false until a look found something good or nothing bad: nothing can be said yet about what should run.
	Known bool
	// Pods are the last good version of every manifest that is there.
	Pods []*v1.Pod
	// Problems are all that is wrong now.
	Problems []Problem
	// Ignored are the files that were passed over because of their names, apart from hidden ones.
	Ignored []string

	delayed bool // some file is being written and was not read
}

// place tells a directory from another one at the same path.
type place struct{ dev, ino uint64 }

// dirEntry is a name that may be a manifest.
type dirEntry struct {
	name, path string
	link       bool
}

// Scan looks at the path and returns what should run: always all of it, rebuilt from what is there now, so that what
// was removed cannot come back (BUG-19). Files that did not change since the last call are not read again.
//
// Run does the same on every occasion, except that it leaves files alone that are just being written. Others may call
// Scan, once or repeatedly, where Run is not running.
func (f *File) Scan() Listing { return f.scan(0) }

func (f *File) scan(patience time.Duration) Listing {
	f.found = place{}
	in, single, err := f.open()
	if err != nil {
		return f.unavailable(err)
	}
	defer in.Close()
	entries, ignored, err := f.list(in, single)
	if err != nil {
		return f.unavailable(err)
	}
	f.found = place{deviceOf(&in.stat), in.stat.Ino}
	if len(entries) == 0 && len(f.files) > 0 && f.found.dev != f.place.dev {
		return f.keep(errUnmounted)
	}
	f.single, f.place = single, f.found
	f.listing = f.readAll(in, entries, patience)
	f.listing.Ignored = ignored
	return f.listing
}

// open finds the directory that holds the manifests, which is the path or, when that is a file, its parent.
func (f *File) open() (in *folder, single bool, err error) {
	in, err = openFolder(f.path)
	if errors.Is(err, unix.ENOTDIR) {
		single = true
		in, err = openFolder(filepath.Dir(f.path))
	}
	if err != nil {
		return nil, false, err
	}
	if f.config.AllowUnsafePermissions {
		return in, single, nil
	}
	if err := f.agent.refuse(in.path, ownerOf(&in.stat)); err != nil {
		in.Close()
		if single {
			err = fmt.Errorf("is in %s, which %w", in.path, err)
		}
		return nil, false, err
	}
	return in, single, nil
}

func openFolder(path string) (*folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot be opened: %w", err)
	}
	in := &folder{File: os.NewFile(uintptr(fd), path), path: path}
	if err := unix.Fstat(fd, &in.stat); err != nil {
		in.Close()
		return nil, fmt.Errorf("cannot be examined: %w", err)
	}
	return in, nil
}

// list finds the manifests by name, in the order of their names.
func (f *File) list(in *folder, single bool) (entries []dirEntry, ignored []string, err error) {
	if single {
		return []dirEntry{{name: filepath.Base(f.path), path: f.path, link: true}}, nil, nil
	}
	found, err := readNames(in)
	if err != nil {
		return nil, nil, err
	}
	if f.missesOne(found) {
		// A listing is no snapshot: a file that is renamed meanwhile can be in neither place. Only what is missing
		// twice is gone.
		again, err := readNames(in)
		if err != nil {
			return nil, nil, err
		}
		for name, mode := range again {
			found[name] = mode
		}
	}
	for name, mode := range found {
		switch verdict := judgeName(name, f.config.Extensions); {
		case verdict == manifestName:
			entries = append(entries, dirEntry{name: name, path: in.path + "/" + name, link: mode&fs.ModeSymlink != 0})
		case verdict == ignoredName && !mode.IsDir():
			ignored = append(ignored, in.path+"/"+name)
		}
	}
	slices.SortFunc(entries, func(a, b dirEntry) int { return cmp.Compare(a.name, b.name) })
	slices.Sort(ignored)
	return entries, ignored, nil
}

func (f *File) missesOne(found map[string]fs.FileMode) bool {
	for name := range f.files {
		if _, here := found[name]; !here {
			return true
		}
	}
	return false
}

// readNames lists the directory from its beginning.
func readNames(in *folder) (map[string]fs.FileMode, error) {
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("cannot be listed: %w", err)
	}
	entries, err := in.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot be listed: %w", err)
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("has more than %d entries, so it is not taken for a manifest directory", maxEntries)
	}
	names := make(map[string]fs.FileMode, len(entries))
	for _, entry := range entries {
		names[entry.Name()] = entry.Type()
	}
	return names, nil
}

// readAll brings every file up to date and forgets those that are gone.
func (f *File) readAll(in *folder, entries []dirEntry, patience time.Duration) Listing {
	files := make(map[string]manifestFile, len(entries))
	all := make([]authored, 0, len(entries))
	var listing Listing
	for _, entry := range entries {
		file := f.read(in, entry, f.files[entry.name], patience)
		files[entry.name] = file
		all = append(all, authored{path: entry.path, pods: file.pods})
		listing.Problems = append(listing.Problems, file.problems()...)
		listing.delayed = listing.delayed || !file.delayed.IsZero()
	}
	pods, owners, duplicates := settleNames(all, f.owners)
	f.files, f.owners = files, owners
	listing.Pods = pods
	listing.Problems = append(listing.Problems, duplicates...)
	good := len(pods) > 0 || len(listing.Problems) == 0
	listing.Known = f.listing.Known || good && !listing.delayed
	return listing
}

var errUnmounted = errors.New("is empty and on another file system than before, as after an unmount")

// unavailable decides what a path that could not be examined means. A path that never was there is a node without
// static pods (CFG-13), and a single file that was removed from its folder is a removed manifest. A whole directory
// that vanishes looks exactly like one whose disk failed: the kubelet ends all its pods (CFG-13), Herald keeps them and
// complains, for the same reason as with a broken file (BUG-18).
func (f *File) unavailable(err error) Listing {
	missing := errors.Is(err, fs.ErrNotExist) && !f.linkRemains()
	switch {
	case missing && f.place == place{}, missing && f.single && f.parentRemains():
		f.files, f.owners = nil, nil
		f.listing = Listing{Known: true}
		return f.complain("does not exist, so no pod comes from it")
	default:
		return f.keep(err)
	}
}

// linkRemains reports whether the path is there but leads nowhere.
func (f *File) linkRemains() bool {
	_, err := os.Lstat(f.path)
	return err == nil
}

// parentRemains reports whether the folder that held the single file is still that folder.
func (f *File) parentRemains() bool {
	var stat unix.Stat_t
	err := unix.Stat(filepath.Dir(f.path), &stat)
	return err == nil && deviceOf(&stat) == f.place.dev
}

// keep returns the last listing with what is wrong now.
func (f *File) keep(err error) Listing {
	if !f.listing.Known {
		return f.complain(fmt.Sprintf("%v; its pods are unknown", err))
	}
	return f.complain(fmt.Sprintf("%v; its pods stay as they are (%d)", err, len(f.listing.Pods)))
}

// complain returns the last listing with a problem of the whole path in place of its own.
func (f *File) complain(message string) Listing {
	listing := f.listing
	listing.Problems = []Problem{{Location: f.path, Message: message}}
	return listing
}
