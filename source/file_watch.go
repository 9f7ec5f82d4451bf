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
)

// How long to wait before a watch that failed is tried again (CFG-23).
const (
	watchRetryFirst = time.Second
	watchRetryMax   = 20 * time.Second
)

// pathWatch tells when something may have changed at a path. It watches the directory there, and the parent: that is
// where a single file is replaced (CFG-22), and where the directory itself comes and goes.
//
// Its goroutine is run; all other methods may be called by any goroutine.
type pathWatch struct {
	path   string
	open   func() (*fsnotify.Watcher, error)
	settle time.Duration
	period time.Duration
	logger *slog.Logger
	hints  chan struct{} // capacity 1: look again
	stale  chan struct{} // capacity 1: watch anew

	mu  sync.Mutex // guards err
	err error      // why nothing is watched now
}

func newPathWatch(config FileConfig, path string) *pathWatch {
	return &pathWatch{
		path:   path,
		open:   config.NewWatcher,
		settle: config.Settle,
		period: config.Period,
		logger: config.Logger,
		hints:  make(chan struct{}, 1),
		stale:  make(chan struct{}, 1),
	}
}

// run watches until ctx ends. Whatever goes wrong, the path is looked at and a new watch is tried.
func (w *pathWatch) run(ctx context.Context) {
	delay := watchRetryFirst
	for {
		began := time.Now()
		err := w.watch(ctx)
		w.fail(err)
		pause := w.settle
		if err != nil {
			if time.Since(began) > watchRetryMax {
				delay = watchRetryFirst
			}
			pause, delay = delay, min(2*delay, watchRetryMax)
			w.logger.Debug("watch on the manifest path failed", "path", w.path, "error", err, "retryAfter", pause)
		}
		w.hint()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// watch hints at every change until the watch fails, or is no longer on what is at the path; the latter is no error.
func (w *pathWatch) watch(ctx context.Context) error {
	watcher, err := w.open()
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer watcher.Close()
	inside, err := w.add(watcher)
	if err != nil {
		return err
	}
	w.fail(nil)
	w.hint() // for what changed before the watch began
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.stale:
			return nil
		case err, open := <-watcher.Errors:
			if !open {
				return fsnotify.ErrClosed
			}
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("read: %w", err)
			}
			w.hint() // too much happened to be told: look, whatever it was
		case event, open := <-watcher.Events:
			if !open {
				return fsnotify.ErrClosed
			}
			ours := event.Name == w.path || event.Name == filepath.Dir(w.path)
			if ours && touchesName(event.Op) {
				return nil
			}
			if ours || !inside || filepath.Dir(event.Name) == w.path {
				w.hint()
			}
		}
	}
}

// touchesName reports whether a name was given to something, or taken from it: a watch on what had it is of no more
// use.
func touchesName(op fsnotify.Op) bool {
	return op.Has(fsnotify.Create) || op.Has(fsnotify.Remove) || op.Has(fsnotify.Rename)
}

// add starts to watch, and reports whether the path is a directory that is watched itself. Without it, every event in
// the parent counts, since a single file may be a link to another name there.
func (w *pathWatch) add(watcher *fsnotify.Watcher) (inside bool, err error) {
	parent := filepath.Dir(w.path)
	outerErr := watcher.Add(parent)
	var stat unix.Stat_t
	err = unix.Stat(w.path, &stat)
	if err == nil && modeOf(&stat)&unix.S_IFMT == unix.S_IFDIR {
		if err := watcher.Add(w.path); err != nil {
			return false, fmt.Errorf("add %s: %w", w.path, err)
		}
		return true, nil
	}
	if outerErr != nil {
		return false, fmt.Errorf("add %s: %w", parent, outerErr)
	}
	return false, nil
}

// anew has the watch set up again.
func (w *pathWatch) anew() {
	select {
	case w.stale <- struct{}{}:
	default:
	}
}

func (w *pathWatch) hint() {
	select {
	case w.hints <- struct{}{}:
	default:
	}
}

func (w *pathWatch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// problems tells that changes are seen late, and why. A path that is not there is the listing's to report.
func (w *pathWatch) problems() []Problem {
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
		Location: w.path,
		Message:  fmt.Sprintf("changes are seen every %v only, because they cannot be watched: %v%s", w.period, err, remedy),
	}}
}
