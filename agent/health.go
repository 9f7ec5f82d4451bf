package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// health is what the runtime says about itself, asked at intervals, so that nobody has to wait for its answer.
type health struct {
	of Runtime

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

func newHealth(of Runtime) *health { return &health{of: of, answer: answer{errNotAsked, errNotAsked}} }

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
	for ctx.Err() == nil {
		pause := askEvery
		if now := h.ask(ctx); now != (answer{}) {
			pause = askAgain
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
	h.answer = now
	return now
}
