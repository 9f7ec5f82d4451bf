package certificate

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"
)

const (
	// reloadPeriod is how often files are looked at, at most. They are looked at only when somebody asks for their content.
	reloadPeriod = time.Second
	maxFileBytes = 1 << 20
)

// reloaded is the content of files that others may replace. What cannot be used does not replace what was read before, and is tried
// again. It is safe for concurrent use.
type reloaded[T any] struct {
	paths  []string
	parse  func(contents [][]byte) (T, error)
	logger *slog.Logger

	// sem has capacity 1 and is held while the files are read: a channel instead of a mutex, because it is held across I/O. It guards
	// all below.
	sem       chan struct{}
	checkedAt time.Time
	contents  [][]byte // of the files that value was read from
	value     T
	isLoaded  bool
	err       error // of the last attempt
}

func newReloaded[T any](paths []string, parse func([][]byte) (T, error), logger *slog.Logger) *reloaded[T] {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &reloaded[T]{paths: paths, parse: parse, logger: logger, sem: make(chan struct{}, 1)}
}

// get returns the content of now, or the last that could be used. ok is false if there was none. err is why the files of now cannot be
// used.
func (r *reloaded[T]) get() (value T, ok bool, err error) {
	r.sem <- struct{}{}
	defer func() { <-r.sem }()
	now := time.Now()
	if r.checkedAt.IsZero() || now.Sub(r.checkedAt) >= reloadPeriod || now.Before(r.checkedAt) {
		r.checkedAt = now
		r.refreshLocked()
	}
	return r.value, r.isLoaded, r.err
}

func (r *reloaded[T]) refreshLocked() {
	before := r.err
	value, contents, err := r.readLocked()
	if r.err = err; err != nil {
		if before == nil || before.Error() != err.Error() {
			r.logger.Error("Failed to read certificate files", "err", err, "usesLast", r.isLoaded)
		}
		return
	}
	if r.isLoaded && !r.isSameLocked(contents) {
		r.logger.Info("Read new certificate files", "files", r.paths)
	}
	r.value, r.contents, r.isLoaded = value, contents, true
}

// readLocked reads the files. It compares their content, not their times: a file may be replaced twice within the resolution of times.
func (r *reloaded[T]) readLocked() (value T, contents [][]byte, err error) {
	for _, path := range r.paths {
		content, err := readFile(path)
		if err != nil {
			return value, nil, err
		}
		contents = append(contents, content)
	}
	if r.isSameLocked(contents) {
		return r.value, contents, nil
	}
	value, err = r.parse(contents)
	return value, contents, err
}

func (r *reloaded[T]) isSameLocked(contents [][]byte) bool {
	return slices.EqualFunc(contents, r.contents, bytes.Equal)
}

// readFile reads a regular file of reasonable size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path) // a pipe would block
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFileBytes)
	}
	return content, err
}
