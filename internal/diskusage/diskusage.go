// Package diskusage measures how much space directories take on disk.
package diskusage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// maxEntries bounds the work and the memory for one directory.
const maxEntries = 2_000_000

// Usage is how much space something takes: bytes of its blocks, not sizes, and inodes.
type Usage struct{ Bytes, Inodes int64 }

// Plus returns the sum.
func (u Usage) Plus(other Usage) Usage {
	return Usage{Bytes: u.Bytes + other.Bytes, Inodes: u.Inodes + other.Inodes}
}

// Dir returns the space that the directory and everything below it takes. Files with several names
// count once, other file systems that are mounted inside do not count. Containers may change the directory meanwhile: links do
// not lead out of it, and what disappears is left out. With an error, the result is what was found until then.
func Dir(ctx context.Context, path string) (Usage, error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, nil
	}
	if err != nil {
		return Usage{}, err
	}
	defer root.Close()
	return Root(ctx, root)
}

// Root is Dir for an open directory.
func Root(ctx context.Context, root *os.Root) (Usage, error) { return walk(ctx, root, false) }

// Files is Root without the directories: only what is in files counts.
func Files(ctx context.Context, root *os.Root) (Usage, error) { return walk(ctx, root, true) }

func walk(ctx context.Context, root *os.Root, filesOnly bool) (Usage, error) {
	info, err := root.Lstat(".")
	if err != nil {
		return Usage{}, err
	}
	m := measurement{device: info.Sys().(*syscall.Stat_t).Dev, linked: map[uint64]bool{}, filesOnly: filesOnly}
	err = fs.WalkDir(root.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return m.add(entry)
	})
	if err != nil {
		err = fmt.Errorf("measure %s: %w", root.Name(), err)
	}
	return m.usage, err
}

type measurement struct {
	device  uint64
	linked  map[uint64]bool // inodes with several names
	entries int
	// filesOnly leaves out directories.
	filesOnly bool
	usage     Usage
}

func (m *measurement) add(entry fs.DirEntry) error {
	if m.entries++; m.entries > maxEntries {
		return fmt.Errorf("more than %d files", maxEntries)
	}
	info, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	if stat.Dev != m.device {
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if !entry.IsDir() && stat.Nlink > 1 {
		if m.linked[stat.Ino] {
			return nil
		}
		m.linked[stat.Ino] = true
	}
	if entry.IsDir() && m.filesOnly {
		return nil
	}
	m.usage = m.usage.Plus(Usage{Bytes: stat.Blocks * 512, Inodes: 1})
	return nil
}

// File returns the space that a file takes, none if it does not exist.
func File(path string) (Usage, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Usage{}, nil
	}
	if err != nil {
		return Usage{}, err
	}
	return Usage{Bytes: info.Sys().(*syscall.Stat_t).Blocks * 512, Inodes: 1}, nil
}
