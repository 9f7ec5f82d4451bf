package fakeruntime

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
func (r *Runtime) ListPods(ctx context.Context) (pods []*observed.Pod, err error) {
	err = r.do(ctx, Call{Method: "ListPods"}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range r.pods {
			pods = append(pods, p.observe())
		}
		return nil
	})
	return pods, err
}

// InspectPod is one pod in full. One that is not there has neither sandboxes nor containers.
func (r *Runtime) InspectPod(ctx context.Context, uid podid.UID) (seen *observed.Pod, err error) {
	err = r.do(ctx, Call{Method: "InspectPod", PodUID: uid}, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if p, found := r.pods[uid]; found {
			seen = p.observe()
		} else {
			seen = &observed.Pod{UID: uid, At: time.Now()}
		}
		return nil
	})
	return seen, err
}

// WatchPods calls back with each pod that changes until ctx ends. Changes that come while it is called are told once.
func (r *Runtime) WatchPods(ctx context.Context, changed func(podid.UID)) error {
	w := &watcher{changed: map[podid.UID]bool{}, wake: make(chan struct{}, 1)}
	r.mu.Lock()
	r.watchers[w] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		}
		r.mu.Lock()
		uids := w.changed
		w.changed = map[podid.UID]bool{}
		r.mu.Unlock()
		for uid := range uids {
			changed(uid)
		}
	}
}

func (r *Runtime) tellLocked(uid podid.UID) {
	for w := range r.watchers {
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
