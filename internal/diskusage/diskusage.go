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

// Dir returns the space in bytes that the directory and everything below it takes: blocks, not sizes. Files with several names
// count once, other file systems that are mounted inside do not count. Containers may change the directory meanwhile: links do
// not lead out of it, and what disappears is left out. With an error, the result is what was found until then.
func Dir(ctx context.Context, path string) (int64, error) {
	root, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	return Root(ctx, root)
}

// Root is Dir for an open directory.
func Root(ctx context.Context, root *os.Root) (int64, error) {
	info, err := root.Lstat(".")
	if err != nil {
		return 0, err
	}
	m := measurement{device: info.Sys().(*syscall.Stat_t).Dev, linked: map[uint64]bool{}}
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
	return m.bytes, err
}

type measurement struct {
	device  uint64
	linked  map[uint64]bool // inodes with several names
	entries int
	bytes   int64
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
	m.bytes += stat.Blocks * 512
	return nil
}

// File returns the space in bytes that a file takes, or 0 if it does not exist.
func File(path string) (int64, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512, nil
}
