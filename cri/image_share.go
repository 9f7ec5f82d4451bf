package cri

import (
	"context"
	"sync"
	"time"
)

// pulls shares each pull among all who want the same at the same time. Everybody leaves with their own context (BUG-27);
// a pull that nobody waits for any more is ended, and what the runtime has of it by then is not fetched again.
type pulls struct {
	slots chan struct{} // each pull holds one; nil: there is no limit

	mu       sync.Mutex // guards what follows, and pull.waiting
	underWay map[pullKey]*pull
}

// pullKey tells pulls apart. Credentials are part of it: nobody gets an image by another one's. Whose pod's annotations
// and sandbox go with the request is not: they are the first one's.
type pullKey struct {
	image, handler string
	credentials    [32]byte
}

type pull struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed once pulled is there, which nobody changes then
	pulled
}

type pulled struct {
	ref  string
	size uint64 // 0: unknown
	took time.Duration
	err  error
}

// newPulls makes at most limit pulls at once; 0 is no limit.
func newPulls(limit int) *pulls {
	p := &pulls{underWay: map[pullKey]*pull{}}
	if limit > 0 {
		p.slots = make(chan struct{}, limit)
	}
	return p
}

// do waits for the pull of that key, which run makes unless it is under way.
func (p *pulls) do(ctx context.Context, key pullKey, run func(context.Context) pulled) pulled {
	joined := p.join(ctx, key, run)
	select {
	case <-joined.done:
		return joined.pulled
	case <-ctx.Done():
		p.leave(key, joined)
		return pulled{err: ctx.Err()}
	}
}

func (p *pulls) join(ctx context.Context, key pullKey, run func(context.Context) pulled) *pull {
	p.mu.Lock()
	defer p.mu.Unlock()
	if found := p.underWay[key]; found != nil {
		found.waiting++
		return found
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	begun := &pull{waiting: 1, cancel: cancel, done: make(chan struct{})}
	p.underWay[key] = begun
	go func() {
		defer cancel()
		begun.pulled = p.inSlot(ctx, run)
		p.mu.Lock()
		p.dropLocked(key, begun)
		p.mu.Unlock()
		close(begun.done)
	}()
	return begun
}

func (p *pulls) inSlot(ctx context.Context, run func(context.Context) pulled) pulled {
	if p.slots != nil {
		select {
		case p.slots <- struct{}{}:
			defer func() { <-p.slots }()
		case <-ctx.Done():
			return pulled{err: ctx.Err()}
		}
	}
	return run(ctx)
}

func (p *pulls) leave(key pullKey, left *pull) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left.waiting--; left.waiting == 0 {
		left.cancel()
		p.dropLocked(key, left)
	}
}

// dropLocked keeps others from joining. The key may stand for a later pull by now.
func (p *pulls) dropLocked(key pullKey, ended *pull) {
	if p.underWay[key] == ended {
		delete(p.underWay, key)
	}
}
