package manager

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleDelay is how long a rule file must be unchanged before it is read, so that a partially written one is not used.
	settleDelay = 100 * time.Millisecond
	// scanPeriod is how often rule files are examined without a notification, which can be lost.
	scanPeriod = time.Minute
)

// watchFiles reads rule files when they change, until ctx ends.
func (m *Manager) watchFiles(ctx context.Context) {
	if len(m.config.Paths) == 0 {
		return
	}
	for ctx.Err() == nil {
		if err := m.watchOnce(ctx); err != nil {
			m.config.Logger.Debug("Failed to watch rule files", "err", err)
		}
	}
}

// watchOnce reads rule files once after a change, or after scanPeriod if nothing changed.
func (m *Manager) watchOnce(ctx context.Context) error {
	period := time.NewTimer(scanPeriod)
	defer period.Stop()
	watcher, err := m.config.NewWatcher()
	if err != nil {
		select {
		case <-ctx.Done():
		case <-period.C:
			m.scanFiles()
		}
		return err
	}
	defer watcher.Close()
	for _, path := range m.config.Paths {
		err = errors.Join(err, watcher.Add(filepath.Dir(path)))
		_ = watcher.Add(path) // it need not exist: its parent is watched
	}
	m.scanFiles() // something may have changed before the watch started
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-period.C:
			return err
		case <-watcher.Errors:
			return err
		case event := <-watcher.Events:
			if !m.concerns(event.Name) {
				continue
			}
			settle(ctx, watcher.Events)
			if event.Op.Has(fsnotify.Create) || event.Op.Has(fsnotify.Remove) || event.Op.Has(fsnotify.Rename) {
				return err // another file or folder is at the name
			}
			m.scanFiles()
		}
	}
}

// concerns reports whether a name is that of a path, or in a folder of rules.
func (m *Manager) concerns(name string) bool {
	for _, path := range m.config.Paths {
		if name == path || filepath.Dir(name) == path {
			return true
		}
	}
	return false
}

// settle waits until there are no more events for a while.
func settle(ctx context.Context, events <-chan fsnotify.Event) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-time.After(settleDelay):
			return
		}
	}
}

func (m *Manager) scanFiles() {
	if loaded, changed := m.loader.scan(); changed {
		m.queue.add(func(p *pending) { p.rules = loaded })
	}
}
