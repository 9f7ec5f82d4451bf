package status

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

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
		m.config.Logger.Info("No API server: pod statuses stay on this node")
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
	m.queue.end()
	senders.Wait()
	m.endTimers()
}

// sender takes turns until the queue has ended and is empty, or ctx ends.
func (m *Manager) sender(ctx context.Context) {
	for m.throttle.enter(ctx) {
		uid, more := m.queue.take()
		if !more {
			m.throttle.leave()
			return
		}
		if ctx.Err() == nil {
			m.guardedTurn(ctx, uid)
		}
		m.queue.done(uid)
		m.throttle.leave()
	}
}

// guardedTurn keeps one bad pod from ending the reports of all others (SM-3).
func (m *Manager) guardedTurn(ctx context.Context, uid podid.UID) {
	defer func() {
		if broken := recover(); broken != nil {
			m.config.Logger.Error("Status of a pod could not be handled; trying again", "uid", uid, "panic", broken,
				"stack", string(debug.Stack()))
			m.putOff(job{entry: entry{uid: uid}}, failed, 0)
		}
	}()
	m.turn(ctx, uid)
}
