package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/heraldnode/herald/internal/wakeup"
)

// Backoff of a failed watch (CFG-23).
const (
	minWatchBackoff = time.Second
	maxWatchBackoff = 20 * time.Second
)

// pathWatcher signals possible changes at a path. It watches the directory at the path and its parent, where a single file
// is replaced (CFG-22) and where the directory itself is created and removed.
//
// One goroutine calls run. The other methods are safe for concurrent use.
type pathWatcher struct {
	path       string
	newWatcher func() (*fsnotify.Watcher, error)
	settle     time.Duration
	period     time.Duration
	logger     *slog.Logger
	changed    wakeup.Signal // set when a scan is due
	restart    wakeup.Signal // set by the owner to replace the watch

	mu  sync.Mutex // guards err
	err error      // why nothing is watched, nil if the watch works
}

func newPathWatcher(config FileConfig, path string) *pathWatcher {
	return &pathWatcher{
		path:       path,
		newWatcher: config.NewWatcher,
		settle:     config.Settle,
		period:     config.Period,
		logger:     config.Logger,
		changed:    wakeup.New(),
		restart:    wakeup.New(),
	}
}

// run watches until ctx is done. After each failure it signals a change and starts a new watch.
func (w *pathWatcher) run(ctx context.Context) {
	backoff := minWatchBackoff
	for {
		started := time.Now()
		err := w.watch(ctx)
		w.setErr(err)
		delay := w.settle
		if err != nil {
			if time.Since(started) > maxWatchBackoff {
				backoff = minWatchBackoff
			}
			delay, backoff = backoff, min(2*backoff, maxWatchBackoff)
			w.logger.Debug("Failed to watch manifest path", "path", w.path, "err", err, "retryAfter", delay)
		}
		w.changed.Set()
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// watch signals changes until the watch fails. It returns nil if the watched directory is no longer the one at the path.
func (w *pathWatcher) watch(ctx context.Context) error {
	watcher, err := w.newWatcher()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer watcher.Close()
	isDirectory, err := w.add(watcher)
	if err != nil {
		return err
	}
	w.setErr(nil)
	w.changed.Set() // something may have changed before the watch started
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.restart:
			return nil
		case err, open := <-watcher.Errors:
			if !open {
				return fsnotify.ErrClosed
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("read: %w", err)
			}
			w.changed.Set() // events were lost
		case event, open := <-watcher.Events:
			if !open {
				return fsnotify.ErrClosed
			}
			isWatched := event.Name == w.path || event.Name == filepath.Dir(w.path)
			if isWatched && changesIdentity(event.Op) {
				return nil
			}
			if isWatched || !isDirectory || filepath.Dir(event.Name) == w.path {
				w.changed.Set()
			}
		}
	}
}

// changesIdentity reports whether the name now belongs to another file, or to none. A watch on the old file is useless.
func changesIdentity(op fsnotify.Op) bool {
	return op.Has(fsnotify.Create) || op.Has(fsnotify.Remove) || op.Has(fsnotify.Rename)
}

// add adds the paths to the watcher and reports whether the path is a watched directory. If it is not, every event in the
// parent counts: a single file may be a symbolic link to another name there.
func (w *pathWatcher) add(watcher *fsnotify.Watcher) (isDirectory bool, err error) {
	parent := filepath.Dir(w.path)
	parentErr := watcher.Add(parent)
	var stat unix.Stat_t
	err = unix.Stat(w.path, &stat)
	if err == nil && modeOf(&stat)&unix.S_IFMT == unix.S_IFDIR {
		if err := watcher.Add(w.path); err != nil {
			return false, fmt.Errorf("add %s: %w", w.path, err)
		}
		return true, nil
	}
	if parentErr != nil {
		return false, fmt.Errorf("add %s: %w", parent, parentErr)
	}
	return false, nil
}

func (w *pathWatcher) setErr(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// problems returns a problem if changes are not watched. A missing path is reported by the scan.
func (w *pathWatcher) problems() []Problem {
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	remedy := ""
	switch {
	case errors.Is(err, unix.ENOSPC):
		remedy = "; raise fs.inotify.max_user_watches"
	case errors.Is(err, unix.EMFILE):
		remedy = "; raise fs.inotify.max_user_instances or the limit of open files"
	}
	return []Problem{{
		Location:    w.path,
		Message:     fmt.Sprintf("cannot be watched, changes are found only every %v: %v%s", w.period, err, remedy),
		Unavailable: true,
	}}
}
