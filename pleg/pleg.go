package pleg

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// PLEG is the pod lifecycle event generator. Every method may be called from any goroutine, before, during and after Run.
// Make one with New.
type PLEG struct {
	config  Config
	metrics *metrics
	queue   *workqueue.Typed[podid.UID] // pods to be inspected; each at most once, and never twice at a time

	mu      sync.Mutex // guards all below; never held across a call of the runtime
	records map[podid.UID]*record
	list    []*observed.Pod
	shown   map[podid.UID]*observed.Pod // the list by UID
	listed  time.Time                   // when the newest list began
	failing error                       // why the newest try to list gave none
	changed map[podid.UID]bool
	more    chan struct{} // capacity 1: look again, something changed
}

// New makes a PLEG that knows nothing yet.
func New(config Config) (*PLEG, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &PLEG{
		config:  config,
		queue:   workqueue.NewTyped[podid.UID](),
		records: map[podid.UID]*record{},
		changed: map[podid.UID]bool{},
		more:    make(chan struct{}, 1),
	}
	p.metrics, err = newMetrics(config.Metrics, p)
	return p, err
}

// Get is the newest that is known of the pod. It is never nil: of an unknown pod it shows nothing (PLEG-15). Its time is zero
// while nobody has looked: there was no list yet, or it shows the pod and says no more of it.
func (p *PLEG) Get(uid podid.UID) *observed.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.podLocked(uid)
}

func (p *PLEG) podLocked(uid podid.UID) *observed.Pod {
	r, known := p.records[uid]
	switch {
	case !known:
		return &observed.Pod{UID: uid, At: p.listed}
	case r.pod == nil:
		return &observed.Pod{UID: uid}
	default:
		return r.pod
	}
}

// GetNewerThan is what the pod was like at some moment after that one. It has the runtime asked at once if nobody knows
// yet, and waits for the answer: until ctx ends, and no longer (PLEG-15). If the runtime cannot tell, that is the error.
func (p *PLEG) GetNewerThan(ctx context.Context, uid podid.UID, moment time.Time) (*observed.Pod, error) {
	for asked := false; ; asked = true {
		p.mu.Lock()
		pod, err, known := p.knownSinceLocked(uid, moment)
		if known {
			p.mu.Unlock()
			return pod, err
		}
		if _, found := p.records[uid]; !asked || !found {
			p.suspectLocked(uid)
		}
		news := p.records[uid].waitForNews()
		p.mu.Unlock()
		p.queue.Add(uid)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the runtime's state of pod %s: %w", uid, ctx.Err())
		case <-news:
		}
	}
}

func (p *PLEG) knownSinceLocked(uid podid.UID, moment time.Time) (*observed.Pod, error, bool) {
	r, found := p.records[uid]
	switch {
	case !found:
		return p.podLocked(uid), nil, p.listed.After(moment)
	case r.asOf(p.listed).After(moment):
		return p.podLocked(uid), nil, true
	case r.err != nil && r.failed.After(moment):
		return nil, r.err, true
	default:
		return nil, nil, false
	}
}

// Refresh has the pod looked at now, without waiting for the next list. However often it is called, one look follows, and
// one does follow.
func (p *PLEG) Refresh(uid podid.UID) {
	p.mu.Lock()
	p.suspectLocked(uid)
	p.mu.Unlock()
	p.queue.Add(uid)
}

// suspectLocked marks the pod as one that must be inspected before anybody may rely on what is known of it.
func (p *PLEG) suspectLocked(uid podid.UID) {
	r, found := p.records[uid]
	if !found {
		r = &record{}
		p.records[uid] = r
	}
	r.asked++
}

// Pods is the newest complete list, without details, and when it was begun: zero if there was none yet.
func (p *PLEG) Pods() ([]*observed.Pod, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.list, p.listed
}

// WaitForChanges waits for pods whose state is not what it was when they were last returned here, and returns them all. One
// goroutine calls it.
func (p *PLEG) WaitForChanges(ctx context.Context) ([]podid.UID, error) {
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.more:
		}
		p.mu.Lock()
		uids := slices.Sorted(maps.Keys(p.changed))
		clear(p.changed)
		p.mu.Unlock()
		if len(uids) > 0 {
			return uids, nil
		}
	}
}

// Healthy is nil while lists are made in time. Slow pods do not count, a runtime that does not answer does (PLEG-11,
// BUG-38).
func (p *PLEG) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch age := time.Since(p.listed); {
	case p.listed.IsZero() && p.failing == nil:
		return fmt.Errorf("the runtime was never heard of")
	case p.listed.IsZero():
		return fmt.Errorf("the runtime was never heard of: %w", p.failing)
	case age > p.config.UnhealthyAfter && p.failing == nil:
		return fmt.Errorf("the runtime was last heard of %v ago", age.Round(time.Second))
	case age > p.config.UnhealthyAfter:
		return fmt.Errorf("the runtime was last heard of %v ago: %w", age.Round(time.Second), p.failing)
	default:
		return nil
	}
}

func (p *PLEG) markChangedLocked(uid podid.UID) {
	p.changed[uid] = true
	select {
	case p.more <- struct{}{}:
	default:
	}
}
