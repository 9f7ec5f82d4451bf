package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// health is what the runtime says about itself, asked at intervals, so that nobody has to wait for its answer.
type health struct {
	of    Runtime
	asked chan struct{} // closed with the first answer

	mu     sync.Mutex // guards answer
	answer answer
}

type answer struct{ runtime, network error }

const (
	askEvery   = 5 * time.Second
	askAgain   = time.Second // while it is not ready
	askTimeout = 10 * time.Second
)

var errNotAsked = errors.New("the runtime has not answered yet")

func newHealth(of Runtime) *health {
	return &health{of: of, asked: make(chan struct{}), answer: answer{errNotAsked, errNotAsked}}
}

// await waits for the first answer, which comes even when the runtime gives none: after askTimeout.
func (h *health) await(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-h.asked:
	}
}

// runtime is what keeps the runtime from running pods, or nil.
func (h *health) runtime() error { return h.last().runtime }

// network is what keeps pods from getting a network, or nil.
func (h *health) network() error { return h.last().network }

func (h *health) last() answer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answer
}

func (h *health) watch(ctx context.Context) error {
	for first := true; ctx.Err() == nil; first = false {
		pause := askEvery
		if h.ask(ctx) != (answer{}) {
			pause = askAgain
		}
		if first {
			close(h.asked)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

func (h *health) ask(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var now answer
	now.runtime, now.network = h.of.Ready(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.runtime != nil { // it says nothing of the network, whose last state stands
		now = answer{fmt.Errorf("the runtime is not ready: %w", now.runtime), h.answer.network}
	}
	h.answer = now
	return now
}
