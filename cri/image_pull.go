package cri

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pullGroup shares each pull among concurrent requests for the same image. Each request leaves with its own context (BUG-27).
// A pull that no request waits for any more is cancelled; layers that the runtime has by then are not downloaded again.
type pullGroup struct {
	slots chan struct{} // semaphore, one per pull; nil: no limit
	times pullTimes

	mu    sync.Mutex // guards pulls and sharedPull.waiters
	pulls map[pullKey]*sharedPull
}

// pullKey identifies a pull. Credentials are part of it: no pod gets an image with another pod's credentials. Annotations and
// sandbox are not; the request that starts the pull provides them.
type pullKey struct {
	image, handler string
	credentials    [32]byte
}

type sharedPull struct {
	waiters int
	cancel  context.CancelFunc
	done    chan struct{} // closed when result is final
	result  pullResult
}

type pullResult struct {
	ref      string
	image    *runtimeapi.Image // nil: unknown
	duration time.Duration
	err      error
}

// newPullGroup returns a group with at most limit concurrent pulls; 0 is no limit.
func newPullGroup(limit int) *pullGroup {
	g := &pullGroup{pulls: map[pullKey]*sharedPull{}}
	if limit > 0 {
		g.slots = make(chan struct{}, limit)
	}
	return g
}

// do waits for the pull of the key, which it starts with run unless it is in progress.
func (g *pullGroup) do(ctx context.Context, key pullKey, run func(context.Context) pullResult) pullResult {
	pull := g.join(ctx, key, run)
	select {
	case <-pull.done:
		return pull.result
	case <-ctx.Done():
		g.leave(key, pull)
		return pullResult{err: ctx.Err()}
	}
}

func (g *pullGroup) join(ctx context.Context, key pullKey, run func(context.Context) pullResult) *sharedPull {
	g.mu.Lock()
	defer g.mu.Unlock()
	if pull := g.pulls[key]; pull != nil {
		pull.waiters++
		return pull
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	pull := &sharedPull{waiters: 1, cancel: cancel, done: make(chan struct{})}
	g.pulls[key] = pull
	go func() {
		defer cancel()
		pull.result = g.runInSlot(ctx, run)
		g.mu.Lock()
		g.removeLocked(key, pull)
		g.mu.Unlock()
		close(pull.done)
	}()
	return pull
}

func (g *pullGroup) runInSlot(ctx context.Context, run func(context.Context) pullResult) pullResult {
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		case <-ctx.Done():
			return pullResult{err: ctx.Err()}
		}
	}
	return run(ctx)
}

func (g *pullGroup) leave(key pullKey, pull *sharedPull) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if pull.waiters--; pull.waiters == 0 {
		pull.cancel()
		g.removeLocked(key, pull)
	}
}

// removeLocked prevents further requests from joining the pull. The key may belong to a later pull already.
func (g *pullGroup) removeLocked(key pullKey, pull *sharedPull) {
	if g.pulls[key] == pull {
		delete(g.pulls, key)
	}
}

// Delays between failed pulls of an image, as the kubelet applies them.
const (
	initialPullBackoff = 10 * time.Second
	maxPullBackoff     = 5 * time.Minute
	// pullFailureTTL is how long a failure counts.
	pullFailureTTL = 2 * maxPullBackoff
)

// pullBackoff holds failed pulls. As for the kubelet, they count per pod and image: a recreated pod pulls at once.
type pullBackoff struct {
	mu       sync.Mutex // guards failures
	failures map[backoffKey]pullFailure
}

type backoffKey struct {
	podUID types.UID
	image  string
}

type pullFailure struct {
	at      time.Time
	delay   time.Duration
	message string // "<reason>: <cause>"
}

func newPullBackoff() *pullBackoff {
	return &pullBackoff{failures: map[backoffKey]pullFailure{}}
}

// remaining returns how long the pull must wait and the message of the failure; 0 means that it may start.
func (b *pullBackoff) remaining(key backoffKey, now time.Time) (time.Duration, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	failure := b.failures[key]
	return max(0, failure.at.Add(failure.delay).Sub(now)), failure.message
}

// fail records a failure and doubles the delay. It drops expired failures of all pods.
func (b *pullBackoff) fail(key backoffKey, now time.Time, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.failures, func(_ backoffKey, failure pullFailure) bool { return now.Sub(failure.at) > pullFailureTTL })
	delay := min(max(initialPullBackoff, 2*b.failures[key].delay), maxPullBackoff)
	b.failures[key] = pullFailure{at: now, delay: delay, message: message}
}

func (b *pullBackoff) reset(key backoffKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.failures, key)
}
