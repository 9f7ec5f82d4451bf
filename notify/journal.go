package notify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/heraldnode/herald/alert"
	"github.com/heraldnode/herald/checkpoint"
	"github.com/heraldnode/herald/internal/wakeup"
)

const (
	checkpointName    = "notify"
	checkpointVersion = 1
	// saveInterval is the least time between two saves. What a crash loses is told again.
	saveInterval = time.Second
	// expireInterval is how often alerts are looked for that can be forgotten, as long as there are any.
	expireInterval = time.Minute
)

// record is the content of the checkpoint, or a change of it: by the alert's key, nil if it was forgotten.
type record struct {
	Alerts map[string]*savedItem `json:"alerts"`
}

type savedItem struct {
	Alert   alert.Alert                `json:"alert"`
	Muted   bool                       `json:"muted,omitempty"`
	EndedAt time.Time                  `json:"endedAt,omitzero"`
	Told    map[string]acknowledgement `json:"told,omitempty"` // by the name of the sink
}

// journal is which alerts have changed since they were saved.
type journal struct {
	log   *checkpoint.Log[record] // nil: nothing is saved
	wake  wakeup.Signal
	mu    sync.Mutex
	dirty map[string]struct{}
}

func (j *journal) mark(key string) {
	j.mu.Lock()
	j.dirty[key] = struct{}{}
	j.mu.Unlock()
	j.wake.Set()
}

// take returns the changed keys and forgets them.
func (j *journal) take() map[string]struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	keys := j.dirty
	j.dirty = map[string]struct{}{}
	return keys
}

// restore loads the checkpoint. A damaged one was quarantined: everything is told again, which is better than not to start.
func (n *Notifier) restore() error {
	n.journal.wake, n.journal.dirty = wakeup.New(), map[string]struct{}{}
	if n.config.Checkpoints == nil {
		return nil
	}
	var err error
	if n.journal.log, err = checkpoint.NewLog[record](n.config.Checkpoints, checkpointName, checkpointVersion); err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	records, err := n.journal.log.Load()
	var invalid *checkpoint.InvalidFileError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &invalid):
		n.config.Logger.Error("Failed to load acknowledgements; alerts are told again", "err", err)
		return nil
	case err != nil:
		return fmt.Errorf("notify: %w", err)
	}
	now := time.Now()
	for _, r := range records {
		for key, saved := range r.Alerts {
			if saved == nil {
				delete(n.items, key)
				continue
			}
			n.items[key] = n.restoreItem(key, saved, now)
		}
	}
	return nil
}

// restoreItem does not trust times in the future: the clock was set back since.
func (n *Notifier) restoreItem(key string, saved *savedItem, now time.Time) *item {
	i := &item{
		key: key, group: groupOf(saved.Alert.Labels), alert: saved.Alert, muted: saved.Muted,
		endedAt: clamp(saved.EndedAt, now), told: make([]told, len(n.sinks)), isRestored: true,
	}
	for _, s := range n.sinks {
		acknowledged := saved.Told[s.name]
		acknowledged.At = clamp(acknowledged.At, now)
		i.told[s.index].acknowledgement = acknowledged
	}
	return i
}

func clamp(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}

// keep saves changes and forgets what all sinks know, until the context is done.
func (n *Notifier) keep(ctx context.Context) {
	expire := time.NewTimer(expireInterval)
	defer expire.Stop()
	isFailing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-expire.C:
		case <-n.journal.wake:
			err := n.save()
			if err != nil && !isFailing {
				n.config.Logger.Error("Failed to save acknowledgements", "err", err)
			}
			isFailing = err != nil
			if !sleep(ctx, saveInterval) {
				return
			}
		}
		expire.Stop()
		if n.expire() {
			expire.Reset(expireInterval)
		}
	}
}

// expire forgets what can be forgotten, logs what was lost, and reports whether there is anything left.
func (n *Notifier) expire() bool {
	n.mu.Lock()
	n.expireLocked(time.Now())
	count, lost := len(n.items), n.lost
	for _, s := range n.sinks {
		count += len(s.units)
	}
	n.lost = nil
	n.mu.Unlock()
	for _, l := range lost {
		n.config.Logger.Error("Alert was not delivered", "sink", l.sink, "alert", l.key, "result", l.result)
	}
	return count > 0
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// save writes what has changed since the last call.
func (n *Notifier) save() error {
	keys := n.journal.take()
	if n.journal.log == nil || len(keys) == 0 {
		return nil
	}
	n.mu.Lock()
	change := record{Alerts: make(map[string]*savedItem, len(keys))}
	for key := range keys {
		change.Alerts[key] = n.savedLocked(n.items[key])
	}
	n.mu.Unlock()
	if err := n.journal.log.Append(change, n.snapshot); err != nil {
		for key := range keys {
			n.journal.mark(key)
		}
		return err
	}
	return nil
}

func (n *Notifier) snapshot() record {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := record{Alerts: make(map[string]*savedItem, len(n.items))}
	for key, i := range n.items {
		all.Alerts[key] = n.savedLocked(i)
	}
	return all
}

// savedLocked returns nil for an alert that was forgotten.
func (n *Notifier) savedLocked(i *item) *savedItem {
	if i == nil {
		return nil
	}
	saved := &savedItem{Alert: i.alert, Muted: i.muted, EndedAt: i.endedAt, Told: map[string]acknowledgement{}}
	for _, s := range n.sinks {
		if t := i.told[s.index].acknowledgement; t != (acknowledgement{}) {
			saved.Told[s.name] = t
		}
	}
	return saved
}
