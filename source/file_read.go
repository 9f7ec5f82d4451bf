package source

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// racyWindow is how old a file must have been when it was read for its stamp to tell a later change: two writes within
// one tick of a file system's clock leave the same stamp, and some clocks tick in steps of two seconds.
const racyWindow = 2 * time.Second

// stamp tells versions of a file apart without reading it.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
}

func stampOf(stat *unix.Stat_t) stamp {
	return stamp{
		dev: deviceOf(stat), ino: stat.Ino, size: stat.Size,
		mtime: stat.Mtim.Nano(), ctime: stat.Ctim.Nano(),
	}
}

func deviceOf(stat *unix.Stat_t) uint64 {
	return uint64(stat.Dev) //nolint:unconvert // its type is another one on other systems
}

func modeOf(stat *unix.Stat_t) uint32 {
	return uint32(stat.Mode) //nolint:unconvert // its type is another one on other systems
}

// settled reports whether the stamp is old enough at that time to change with every later write.
func (s stamp) settled(at time.Time) bool {
	return at.UnixNano()-max(s.mtime, s.ctime) > int64(racyWindow)
}

// manifestFile is what is known of one file. Its pods are those of the last version that was good; they stay until
// another good version comes or the file is gone (CFG-15, BUG-18).
type manifestFile struct {
	pods    []*v1.Pod
	stamp   stamp
	trusted bool // an equal stamp means the same content
	digest  [sha256.Size]byte
	faults  []Problem // of the content with that digest
	refusal []Problem // why the file could not be read this time
	delayed time.Time // since when it has not been read because somebody writes to it
}

func (m manifestFile) problems() []Problem {
	if m.refusal != nil {
		return m.refusal
	}
	return m.faults
}

// refused keeps what is known, and says why nothing newer is.
func (m manifestFile) refused(path string, err error) manifestFile {
	m.refusal = []Problem{{Location: path, Message: err.Error()}}
	return m
}

// folder is the open directory that the manifests are in. Files are opened relative to it, so that all of them come
// from one directory even when its path is given to another one meanwhile.
type folder struct {
	*os.File
	path string
	stat unix.Stat_t
}

// read brings what is known of one file up to date. It costs one stat when the file has not changed. With patience, a
// file that was written to just now is left for later: half a manifest can be a valid one.
func (f *File) read(in *folder, entry dirEntry, known manifestFile, patience time.Duration) manifestFile {
	since := known.delayed
	known.refusal, known.delayed = nil, time.Time{}
	var stat unix.Stat_t
	if err := unix.Fstatat(int(in.Fd()), entry.name, &stat, 0); err != nil {
		return known.refused(entry.path, fmt.Errorf("cannot be found, so its last good version stays: %w", err))
	}
	if err := f.inspect(entry.path, &stat, entry.link); err != nil {
		return known.refused(entry.path, err)
	}
	if known.trusted && known.stamp == stampOf(&stat) {
		return known
	}
	now := time.Now()
	if age := now.Sub(time.Unix(stat.Mtim.Unix())); 0 <= age && age < patience {
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) < f.config.Period {
			known.delayed = since
			return known
		}
	}
	data, stat, err := f.load(in, entry)
	if err != nil {
		return known.refused(entry.path, err)
	}
	known.stamp = stampOf(&stat)
	known.trusted = known.stamp.settled(now)
	return f.decode(entry.path, data, known)
}

// decode takes a version of the file that was read. The same bytes are not parsed twice.
func (f *File) decode(path string, data []byte, known manifestFile) manifestFile {
	digest := sha256.Sum256(data)
	if digest == known.digest {
		return known
	}
	known.digest = digest
	pods, err := f.config.Decode(data, manifest.Origin{Source: podid.File, Location: path, NodeName: f.config.NodeName})
	if err != nil {
		known.faults = problemsOf(path, err)
		return known
	}
	known.pods, known.faults = pods, nil
	return known
}

// load reads a file that was found to be harmless, and looks again once it is open: it may have been replaced. A pipe
// or a terminal that took its place does not block or take over the agent.
func (f *File) load(in *folder, entry dirEntry) ([]byte, unix.Stat_t, error) {
	var stat unix.Stat_t
	fd, err := unix.Openat(int(in.Fd()), entry.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, stat, fmt.Errorf("cannot be opened, so its last good version stays: %w", err)
	}
	file := os.NewFile(uintptr(fd), entry.path)
	defer file.Close()
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, stat, fmt.Errorf("cannot be examined: %w", err)
	}
	if err := f.inspect(entry.path, &stat, false); err != nil {
		return nil, stat, err
	}
	data, err := io.ReadAll(io.LimitReader(file, manifest.MaxBytes+1))
	if err != nil {
		return nil, stat, fmt.Errorf("cannot be read, so its last good version stays: %w", err)
	}
	if len(data) > manifest.MaxBytes {
		return nil, stat, errTooLarge
	}
	return data, stat, nil
}

var errTooLarge = fmt.Errorf("has more than the %d bytes that a manifest may have", manifest.MaxBytes)

// inspect says why a file must not be read, or nothing.
func (f *File) inspect(path string, stat *unix.Stat_t, link bool) error {
	if kind := modeOf(stat) & unix.S_IFMT; kind != unix.S_IFREG {
		return fmt.Errorf("is %s, and only regular files are read", kindName(kind))
	}
	if stat.Size > manifest.MaxBytes {
		return errTooLarge
	}
	if f.config.AllowUnsafePermissions {
		return nil
	}
	if err := f.agent.refuse(path, ownerOf(stat)); err != nil {
		return err
	}
	if link {
		return f.inspectTarget(path)
	}
	return nil
}

// inspectTarget looks at where a symbolic link leads to: whoever can write there can replace the manifest. A link within
// the folder, as those of a projected volume, may lead through folders that are as well guarded as the folder itself; one
// that leads out is refused. A path that is itself a link was given by the operator, and may lead anywhere that is
// guarded.
func (f *File) inspectTarget(link string) error {
	target, err := filepath.EvalSymlinks(link)
	if err != nil {
		return fmt.Errorf("leads nowhere, so its last good version stays: %w", err)
	}
	home := filepath.Dir(target)
	if link == f.path {
		return f.inspectHome(home)
	}
	top, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return fmt.Errorf("is in a folder that leads nowhere, so its last good version stays: %w", err)
	}
	if !strings.HasPrefix(target, top+"/") {
		return fmt.Errorf("leads to %s, out of the manifest folder (cp --remove-destination %s %s)", target, target, link)
	}
	for ; home != top; home = filepath.Dir(home) {
		if err := f.inspectHome(home); err != nil {
			return err
		}
	}
	return nil
}

// inspectHome looks at a folder that a link leads to, or through.
func (f *File) inspectHome(home string) error {
	var stat unix.Stat_t
	if err := unix.Stat(home, &stat); err != nil {
		return fmt.Errorf("cannot examine %s, where it leads to: %w", home, err)
	}
	if err := f.agent.refuse(home, ownerOf(&stat)); err != nil {
		return fmt.Errorf("leads to %s, which %w", home, err)
	}
	return nil
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	default:
		return "no ordinary file"
	}
}
