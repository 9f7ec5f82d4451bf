package status

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/heraldnode/herald/podid"
)

// Run sends statuses to the API server until ctx ends. Then it goes on for at most Config.FlushTimeout with what is not
// sent yet, most urgent first, keeps the rest on disk for the next start (BUG-10), and returns. It may be called once.
//
// Without an API server it only keeps statuses on disk.
func (m *Manager) Run(ctx context.Context) error {
	var keeping sync.WaitGroup
	keeping.Go(func() { m.keepLoop(ctx) })
	if m.config.API == nil {
		m.config.Log.Info("No API server: pod statuses stay on this node")
		<-ctx.Done()
	} else {
		m.send(ctx)
	}
	keeping.Wait()
	return m.keepAll()
}

// send runs the senders until ctx has ended and all is sent, or cannot be.
func (m *Manager) send(ctx context.Context) {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var senders sync.WaitGroup
	for range m.config.Workers {
		senders.Go(func() { m.sender(sending) })
	}
	m.fullPasses(ctx)
	deadline := time.AfterFunc(m.config.FlushTimeout, stop)
	defer deadline.Stop()
	m.flush(sending)
	m.queue.ShutDown()
	senders.Wait()
	m.endTimers()
}

// sender takes turns until the queue is shut down and empty, or ctx ends.
func (m *Manager) sender(ctx context.Context) {
	for m.throttle.enter(ctx) {
		uid, shutdown := m.queue.Get()
		if shutdown {
			m.throttle.leave()
			return
		}
		if ctx.Err() == nil {
			m.guardedTurn(ctx, uid)
		}
		m.queue.Done(uid)
		m.throttle.leave()
	}
}

// guardedTurn keeps one bad pod from ending the reports of all others (SM-3).
func (m *Manager) guardedTurn(ctx context.Context, uid podid.UID) {
	defer func() {
		if broken := recover(); broken != nil {
			m.config.Log.Error("Status of a pod could not be handled; trying again", "uid", uid, "panic", broken,
				"stack", string(debug.Stack()))
			m.putOff(job{entry: entry{uid: uid}}, failed, 0)
		}
	}()
	m.turn(ctx, uid)
}

// fullPasses compares all pods with what the API server says, now and then, until ctx ends.
func (m *Manager) fullPasses(ctx context.Context) {
	ticker := time.NewTicker(m.config.FullPass)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.pass()
		}
	}
}

// pass gives a turn to every pod for which something may have changed since its last one (SM-52, SM-53). Pods in back-off
// come by themselves.
func (m *Manager) pass() {
	type seen struct {
		pod     *v1.Pod
		settled settled
		version uint64
	}
	now := time.Now()
	m.mu.RLock()
	entries := make(map[podid.UID]seen, len(m.entries))
	for uid, e := range m.entries {
		if !now.Before(e.pause.until) {
			entries[uid] = seen{e.pod, e.settled, e.version}
		}
	}
	m.mu.RUnlock()
	for uid, e := range entries {
		if e.settled != (settled{known: m.knownCopy(uid, e.pod), version: e.version}) {
			m.again(uid)
		}
	}
}

// snapshot copies the entries that are wanted, so that they can be looked at without the lock.
func (m *Manager) snapshot(wanted func(*entry) bool) []entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	entries := make([]entry, 0, len(m.entries))
	for _, e := range m.entries {
		if wanted(e) {
			entries = append(entries, *e)
		}
	}
	return entries
}

// flush waits until the senders have sent all that can be sent, or ctx ends.
func (m *Manager) flush(ctx context.Context) {
	m.endPauses(func(p *pause) bool { return p.why != refused && p.why != throttled })
	for _, e := range m.snapshot((*entry).isOpen) {
		m.enqueue(e.uid, e.urgencyNow())
	}
	for ctx.Err() == nil && m.isSending() {
		select {
		case <-m.progress:
		case <-ctx.Done():
		}
	}
}

// isSending reports whether there is a pod that still can be sent.
func (m *Manager) isSending() bool {
	for _, e := range m.snapshot((*entry).isOnItsWay) {
		if m.aim(&job{entry: e}) {
			return true
		}
	}
	return false
}

// endTimers leaves nothing behind that would wake up.
func (m *Manager) endTimers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		e.pause.end()
	}
}
