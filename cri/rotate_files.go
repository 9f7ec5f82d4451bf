package cri

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Beside a log <n>.log are its older parts:
//
//	<n>.log.<time>        the one before
//	<n>.log.<time>.gz     those before that
//	<n>.log.<time>.tmp    one that is being compressed
const (
	compressedEnd = ".gz"
	unfinishedEnd = ".tmp"
)

// rotatedLogs are the older parts, and what is unfinished, by name, which is oldest first.
func rotatedLogs(root *os.Root, log string) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), filepath.Dir(log))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), filepath.Base(log)+".") {
			found = append(found, filepath.Join(filepath.Dir(log), entry.Name()))
		}
	}
	return found, err
}

// tidyRotated leaves the newest of the older parts, compressed.
func tidyRotated(ctx context.Context, root *os.Root, log string, keep int) error {
	all, err := rotatedLogs(root, log)
	if err != nil {
		return err
	}
	kept, removed := sortRotated(all, keep)
	for _, file := range removed {
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, file := range kept {
		if strings.HasSuffix(file, compressedEnd) {
			continue
		}
		if err := compress(ctx, root, file); err != nil {
			return err
		}
	}
	return nil
}

// sortRotated tells which parts stay. What a compression left that was cut off goes: its unfinished file, or the part that
// it had finished with.
func sortRotated(all []string, keep int) (kept, removed []string) {
	for _, file := range all {
		if strings.HasSuffix(file, unfinishedEnd) || slices.Contains(all, file+compressedEnd) {
			removed = append(removed, file)
		} else {
			kept = append(kept, file)
		}
	}
	surplus := max(0, len(kept)-keep)
	return kept[surplus:], append(removed, kept[:surplus]...)
}

// compress replaces the file by a compressed one. At any moment there is one of them whole.
func compress(ctx context.Context, root *os.Root, file string) error {
	from, err := root.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", file)
	}
	unfinished := file + unfinishedEnd
	to, err := root.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	packed := gzip.NewWriter(to)
	_, err = io.Copy(packed, interruptible{ctx.Err, from})
	if err == nil {
		err = packed.Close()
	}
	if err == nil {
		err = to.Sync() // the other one is removed for good
	}
	err = errors.Join(err, to.Close())
	if err == nil {
		err = root.Rename(unfinished, file+compressedEnd)
	}
	if err != nil {
		return errors.Join(err, root.Remove(unfinished))
	}
	return root.Remove(file)
}

// interruptible reads until ended says why not.
type interruptible struct {
	ended func() error
	from  io.Reader
}

func (r interruptible) Read(buffer []byte) (int, error) {
	if err := r.ended(); err != nil {
		return 0, err
	}
	return r.from.Read(buffer)
}
