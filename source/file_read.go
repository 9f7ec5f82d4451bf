package source

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
	"github.com/heraldnode/herald/source/manifest"
)

// racyWindow is the minimum age of a file, when read, for its stamp to reveal a later change. Two writes within one tick of
// the file system's clock leave the same stamp, and some clocks tick every two seconds.
const racyWindow = 2 * time.Second

// stamp distinguishes versions of a file without reading it.
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

// isReliableAt reports whether a file that was read at that time cannot change without a change of its stamp.
func (s stamp) isReliableAt(readAt time.Time) bool {
	return readAt.UnixNano()-max(s.mtime, s.ctime) > int64(racyWindow)
}

func deviceOf(stat *unix.Stat_t) uint64 {
	return uint64(stat.Dev) //nolint:unconvert // its type differs between operating systems
}

func modeOf(stat *unix.Stat_t) uint32 {
	return uint32(stat.Mode) //nolint:unconvert // its type differs between operating systems
}

// manifestFile is the state of one file. Its pods are those of the last valid version. They stay until another valid
// version is read or the file is removed (CFG-15, BUG-18).
type manifestFile struct {
	pods         []*v1.Pod
	goodAt       time.Time // when the version was read that defines the pods, zero if none was
	stamp        stamp
	reliable     bool // an equal stamp means equal content
	digest       [sha256.Size]byte
	decodeErrors []Problem // of the content with that digest
	readErrors   []Problem // of the last attempt to read the file
	delayedSince time.Time // when reading was first delayed because the file is being written, zero if it is not
}

// problems returns the current problems, with what is used instead.
func (m manifestFile) problems() []Problem {
	problems := m.decodeErrors
	if m.readErrors != nil {
		problems = m.readErrors
	}
	return withLastGood(problems, m.pods, m.goodAt)
}

// withLastGood returns the problems with the time of the last valid version and, if that defines only one pod, its name.
func withLastGood(problems []Problem, pods []*v1.Pod, goodAt time.Time) []Problem {
	if goodAt.IsZero() {
		return problems
	}
	problems = slices.Clone(problems)
	for i := range problems {
		problems[i].LastGood = goodAt
		if len(pods) == 1 {
			problems[i].Pod = podid.FullNameOf(pods[0])
		}
	}
	return problems
}

// unreadable returns the unchanged state with the error of the last attempt.
func (m manifestFile) unreadable(path string, err error) manifestFile {
	m.readErrors = []Problem{{Location: path, Message: err.Error()}}
	return m
}

// read returns the new state of one file. An unchanged file costs one stat. A file that was modified less than settle ago is
// read later: a partially written manifest can be valid.
func (f *File) read(dir *directory, entry dirEntry, file manifestFile, settle time.Duration) manifestFile {
	since := file.delayedSince
	file.readErrors, file.delayedSince = nil, time.Time{}
	var stat unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), entry.name, &stat, 0); err != nil {
		return file.unreadable(entry.path, fmt.Errorf("cannot be found; its last valid version is kept: %w", err))
	}
	if err := f.check(entry.path, &stat, entry.isSymlink); err != nil {
		return file.unreadable(entry.path, err)
	}
	if file.reliable && file.stamp == stampOf(&stat) {
		return file
	}
	now := time.Now()
	if age := now.Sub(time.Unix(stat.Mtim.Unix())); 0 <= age && age < settle {
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) < f.config.Period {
			file.delayedSince = since
			return file
		}
	}
	data, stat, err := f.load(dir, entry)
	if err != nil {
		return file.unreadable(entry.path, err)
	}
	file.stamp = stampOf(&stat)
	file.reliable = file.stamp.isReliableAt(now)
	return f.decode(entry.path, data, file)
}

// decode returns the new state of a file with this content. Content that was decoded before is not decoded again.
func (f *File) decode(path string, data []byte, file manifestFile) manifestFile {
	digest := sha256.Sum256(data)
	if digest == file.digest {
		return file
	}
	file.digest = digest
	pods, err := f.config.Decode(data, manifest.Origin{Source: podid.File, Location: path, NodeName: f.config.NodeName})
	if err != nil {
		file.decodeErrors = decodeProblems(path, err)
		return file
	}
	file.pods, file.decodeErrors, file.goodAt = pods, nil, time.Now()
	return file
}

// load reads a file that passed check, and checks it again once it is open: it may have been replaced. A pipe or terminal
// that replaced it neither blocks the agent nor becomes its controlling terminal.
func (f *File) load(dir *directory, entry dirEntry) ([]byte, unix.Stat_t, error) {
	var stat unix.Stat_t
	fd, err := unix.Openat(int(dir.Fd()), entry.name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, stat, fmt.Errorf("cannot be opened; its last valid version is kept: %w", err)
	}
	file := os.NewFile(uintptr(fd), entry.path)
	defer file.Close()
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, stat, fmt.Errorf("cannot be examined: %w", err)
	}
	if err := f.check(entry.path, &stat, false); err != nil {
		return nil, stat, err
	}
	data, err := io.ReadAll(io.LimitReader(file, manifest.MaxBytes+1))
	if err != nil {
		return nil, stat, fmt.Errorf("cannot be read; its last valid version is kept: %w", err)
	}
	if len(data) > manifest.MaxBytes {
		return nil, stat, errFileTooLarge
	}
	return data, stat, nil
}

var errFileTooLarge = fmt.Errorf("is larger than %d bytes, the maximum size of a manifest", manifest.MaxBytes)

// check returns an error if the file must not be read.
func (f *File) check(path string, stat *unix.Stat_t, isSymlink bool) error {
	if fileType := modeOf(stat) & unix.S_IFMT; fileType != unix.S_IFREG {
		return fmt.Errorf("is %s, not a regular file", typeName(fileType))
	}
	if stat.Size > manifest.MaxBytes {
		return errFileTooLarge
	}
	if f.config.AllowUnsafePermissions {
		return nil
	}
	if err := f.permissions.Check(path, stat); err != nil {
		return err
	}
	if isSymlink {
		return f.checkTarget(path)
	}
	return nil
}

// checkTarget checks the target of a symbolic link: a user who can write there can replace the manifest. A link within the
// manifest directory, as in a projected volume, may lead through trusted directories. A link to the outside is rejected. If
// the configured path is itself a link, the operator chose it, and its target may be in any trusted directory.
func (f *File) checkTarget(link string) error {
	target, err := filepath.EvalSymlinks(link)
	if err != nil {
		return fmt.Errorf("is a dangling symbolic link; its last valid version is kept: %w", err)
	}
	parent := filepath.Dir(target)
	if link == f.path {
		return f.checkTargetDirectory(parent)
	}
	root, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return fmt.Errorf("is in a directory that cannot be resolved; its last valid version is kept: %w", err)
	}
	if !strings.HasPrefix(target, root+"/") {
		return fmt.Errorf("links to %s, outside the manifest directory (cp --remove-destination %s %s)", target, target, link)
	}
	for ; parent != root; parent = filepath.Dir(parent) {
		if err := f.checkTargetDirectory(parent); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) checkTargetDirectory(path string) error {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Errorf("links to %s, which cannot be examined: %w", path, err)
	}
	if err := f.permissions.Check(path, &stat); err != nil {
		return fmt.Errorf("links to %s, which %w", path, err)
	}
	return nil
}

func typeName(fileType uint32) string {
	switch fileType {
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFIFO:
		return "a named pipe"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	default:
		return "a special file"
	}
}
