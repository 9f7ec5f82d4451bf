package cri

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
func rotatedLogs(log string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(log))
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
func tidyRotated(ctx context.Context, log string, keep int) error {
	all, err := rotatedLogs(log)
	if err != nil {
		return err
	}
	kept, removed := sortRotated(all, keep)
	for _, file := range removed {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, file := range kept {
		if strings.HasSuffix(file, compressedEnd) {
			continue
		}
		if err := compress(ctx, file); err != nil {
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
func compress(ctx context.Context, file string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	unfinished := file + unfinishedEnd
	to, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
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
		err = os.Rename(unfinished, file+compressedEnd)
	}
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return os.Remove(file)
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
