package containerlog

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/heraldnode/herald/internal/wakeup"
	"github.com/heraldnode/herald/podid"
)

// watcher wakes followers when something in the directory of their log changes. All of them share one inotify instance: a user may
// have no more than 128 by default. Followers poll as well, so a failure delays lines but loses none.
type watcher struct {
	config  Config
	stopped chan struct{} // closed when run ends

	mu        sync.Mutex        // guards the fields below; held while watches are added and removed
	notify    *fsnotify.Watcher // nil if it is not running
	followers map[string]map[*follower]struct{}
}

// follower is a subscription to a directory.
type follower struct {
	dir    string
	uid    podid.UID
	signal wakeup.Signal
}

func newWatcher(config Config) *watcher {
	return &watcher{config: config, stopped: make(chan struct{}), followers: map[string]map[*follower]struct{}{}}
}

// subscribe returns a follower that is woken at changes from now on.
func (w *watcher) subscribe(dir string, uid podid.UID) *follower {
	added := &follower{dir: dir, uid: uid, signal: wakeup.New()}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.followers[dir] == nil {
		w.followers[dir] = map[*follower]struct{}{}
		w.watchLocked(dir)
	}
	w.followers[dir][added] = struct{}{}
	return added
}

func (w *watcher) unsubscribe(removed *follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.followers[removed.dir], removed)
	if len(w.followers[removed.dir]) > 0 {
		return
	}
	delete(w.followers, removed.dir)
	if w.notify != nil {
		_ = w.notify.Remove(removed.dir) // it may have been removed already
	}
}

// watchLocked watches a directory by its path. If a pod has put a link there, the follower is woken at the wrong times, no more: it
// reads from the directory that it has open.
func (w *watcher) watchLocked(dir string) {
	if w.notify == nil {
		return
	}
	if err := w.notify.Add(dir); err != nil {
		w.config.Logger.Debug("Failed to watch log directory, polling it", "dir", dir, "err", err)
	}
}

// run watches until ctx ends. An instance that fails is replaced.
func (w *watcher) run(ctx context.Context) error {
	defer close(w.stopped)
	var changes sync.WaitGroup
	defer changes.Wait()
	if w.config.Changes != nil {
		changes.Go(func() { w.passChanges(ctx) })
	}
	const retryPeriod = 10 * time.Second
	for isFirst := true; ctx.Err() == nil; isFirst = false {
		if err := w.watch(ctx); err != nil && isFirst {
			w.config.Logger.Warn("Failed to watch log directories, polling them", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPeriod):
		}
	}
	return nil
}

// passChanges wakes the followers of pods whose state has changed: a container may have ended.
func (w *watcher) passChanges(ctx context.Context) {
	for uid := range w.config.Changes(ctx) {
		w.wake(func(f *follower) bool { return f.uid == uid })
	}
}

// watch runs one inotify instance until it fails or ctx ends.
func (w *watcher) watch(ctx context.Context) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	w.setInstance(notify)
	defer func() {
		w.setInstance(nil)
		_ = notify.Close()
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-notify.Events:
			if !ok {
				return errors.New("inotify instance was closed")
			}
			w.wakeDir(filepath.Dir(event.Name))
		case err, ok := <-notify.Errors:
			if !ok {
				return errors.New("inotify instance was closed")
			}
			w.wake(func(*follower) bool { return true }) // events were lost
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
		}
	}
}

// setInstance watches all directories with another instance, and wakes all followers: events between the two are lost.
func (w *watcher) setInstance(notify *fsnotify.Watcher) {
	w.mu.Lock()
	w.notify = notify
	for dir := range w.followers {
		w.watchLocked(dir)
	}
	w.mu.Unlock()
	w.wake(func(*follower) bool { return true })
}

func (w *watcher) wakeDir(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for follower := range w.followers[dir] {
		follower.signal.Set()
	}
}

func (w *watcher) wake(matches func(*follower) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, followers := range w.followers {
		for follower := range followers {
			if matches(follower) {
				follower.signal.Set()
			}
		}
	}
}
