package engine

import (
	"context"
	"time"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// watcher is one WatchPods. Its wake-ups are level-triggered: who is slow hears once of what happened meanwhile.
type watcher struct {
	changed map[podid.UID]bool // guarded by the engine's lock
	wake    chan struct{}      // capacity 1: look at changed
}

// ListPods is every pod that the engine holds, in any state.
func (e *Engine) ListPods(ctx context.Context) (pods []*observed.Pod, err error) {
	err = e.do(ctx, Call{Method: "ListPods"}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, p := range e.pods {
			pods = append(pods, p.observe())
		}
		return nil
	})
	return pods, err
}

// InspectPod is one pod in full. One that is not there has neither sandboxes nor containers.
func (e *Engine) InspectPod(ctx context.Context, uid podid.UID) (seen *observed.Pod, err error) {
	err = e.do(ctx, Call{Method: "InspectPod", Pod: uid}, func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if p, found := e.pods[uid]; found {
			seen = p.observe()
		} else {
			seen = &observed.Pod{UID: uid, At: time.Now()}
		}
		return nil
	})
	return seen, err
}

// WatchPods calls back with each pod that changes until ctx ends. Changes that come while it is called are told once.
func (e *Engine) WatchPods(ctx context.Context, changed func(podid.UID)) error {
	w := &watcher{changed: map[podid.UID]bool{}, wake: make(chan struct{}, 1)}
	e.mu.Lock()
	e.watchers[w] = struct{}{}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		e.mu.Lock()
		uids := w.changed
		w.changed = map[podid.UID]bool{}
		e.mu.Unlock()
		for uid := range uids {
			changed(uid)
		}
	}
}

func (e *Engine) tellLocked(uid podid.UID) {
	for w := range e.watchers {
		w.changed[uid] = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (p *pod) observe() *observed.Pod {
	seen := &observed.Pod{UID: p.uid, Name: p.name, At: time.Now()}
	for _, s := range p.sandboxes {
		seen.Sandboxes = append(seen.Sandboxes, *s)
	}
	for _, c := range p.containers {
		seen.Containers = append(seen.Containers, c.seen)
	}
	seen.Sort()
	if newest, ok := seen.NewestSandbox(); ok && newest.Network != nil {
		seen.IPs = newest.Network.IPs
	}
	return seen
}
