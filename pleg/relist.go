package pleg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/heraldnode/herald/observed"
	"github.com/heraldnode/herald/podid"
)

// Run relists and inspects pods until ctx ends. It must be called only once.
func (p *PLEG) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for range p.config.MaxInspections {
		running.Go(func() { p.runInspector(ctx) })
	}
	running.Go(func() { p.watchEvents(ctx) })
	running.Go(func() {
		<-ctx.Done()
		p.queue.ShutDown()
	})
	for ctx.Err() == nil {
		p.relist(ctx)
		sleep(ctx, p.config.RelistPeriod)
	}
	running.Wait()
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// relist lists all pods and enqueues those that changed. It does not wait for their inspections (PLEG-22). A failed list
// changes nothing (PLEG-2).
func (p *PLEG) relist(ctx context.Context) {
	begin := time.Now()
	callCtx, cancel := context.WithTimeout(ctx, p.config.CallTimeout)
	pods, err := p.config.Runtime.ListPods(callCtx)
	cancel()
	if err != nil {
		p.handleListError(ctx, err)
		return
	}
	p.metrics.observeRelist(begin)
	wasStale := p.Stale()
	for _, uid := range p.handleList(pods, begin) {
		p.queue.Add(uid)
	}
	if wasStale {
		p.config.OnFresh()
	}
}

func (p *PLEG) handleListError(ctx context.Context, err error) {
	p.mu.Lock()
	first := p.listErr == nil
	p.listErr = err
	p.mu.Unlock()
	if first && ctx.Err() == nil {
		p.config.Logger.Error("Failed to list pods, keeping their last known state", "err", err)
	}
}

// handleList compares a list with the cache and returns the pods to inspect.
func (p *PLEG) handleList(pods []*observed.Pod, begin time.Time) []podid.UID {
	p.mu.Lock()
	defer p.mu.Unlock()
	listed := make(map[podid.UID]*observed.Pod, len(pods))
	var stale []podid.UID
	for _, pod := range pods {
		listed[pod.UID] = pod
		r, found := p.records[pod.UID]
		if found && !r.isStale() && r.matches(pod) {
			continue
		}
		if !found || !r.isStale() {
			p.requestInspectionLocked(pod.UID)
		}
		stale = append(stale, pod.UID)
	}
	for uid, r := range p.records {
		r.notify() // a confirmed state may satisfy GetNewerThan
		switch {
		case listed[uid] != nil:
		case r.isStale():
			stale = append(stale, uid)
		case r.pod.At.Before(begin): // otherwise the pod was created while the list was made
			delete(p.records, uid)
			if hasChanged(&observed.Pod{}, r.pod) {
				p.markChangedLocked(uid)
			}
		}
	}
	if p.listErr != nil && !p.listedAt.IsZero() {
		p.config.Logger.Info("Listing pods works again", "downtime", begin.Sub(p.listedAt).Round(time.Second))
	}
	p.list, p.listed, p.listedAt, p.listErr = pods, listed, begin, nil
	return stale
}

// runInspector inspects queued pods until the queue shuts down.
func (p *PLEG) runInspector(ctx context.Context) {
	for {
		uid, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if ctx.Err() == nil {
			p.inspect(ctx, uid)
		}
		p.queue.Done(uid)
	}
}

func (p *PLEG) inspect(ctx context.Context, uid podid.UID) {
	begin := time.Now()
	p.mu.Lock()
	r, found := p.records[uid]
	if !found || !r.isStale() {
		p.mu.Unlock()
		return
	}
	requested := r.requested // later requests need another inspection
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.config.CallTimeout)
	pod, err := p.config.Runtime.InspectPod(ctx, uid)
	cancel()
	if err == nil && pod.At.IsZero() {
		err = errors.New("the runtime reported no inspection time")
	}
	p.metrics.observeInspection(begin)
	if err != nil {
		p.handleInspectError(r, begin, fmt.Errorf("inspect pod %s: %w", uid, err))
		return
	}
	p.handleInspection(r, requested, pod)
}

// handleInspectError keeps the last known state. The pod is inspected again with the next relist (PLEG-6).
func (p *PLEG) handleInspectError(r *record, begin time.Time, err error) {
	p.mu.Lock()
	first := r.err == nil
	r.err, r.failedAt = err, begin
	r.notify()
	p.mu.Unlock()
	if first {
		p.config.Logger.Warn("Failed to inspect pod, keeping its last known state", "err", err)
	}
}

// handleInspection stores the inspected state and then reports the change (PLEG-5). r is still the pod's record because
// stale records are never deleted.
//
// An inspection that began before the last relist is checked against that list: a pod that is not listed is gone, and a pod
// that is listed differently is inspected again.
func (p *PLEG) handleInspection(r *record, requested uint64, pod *observed.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	previous := r.pod
	listed, isOlder := p.listed[pod.UID], pod.At.Before(p.listedAt)
	if isOlder && listed == nil {
		pod = &observed.Pod{UID: pod.UID, At: p.listedAt}
	}
	r.pod, r.err, r.served = withPreviousIPs(pod, previous), nil, requested
	if isOlder && listed != nil && !r.matches(listed) {
		r.requested++
	}
	if hasChanged(r.pod, previous) {
		p.markChangedLocked(pod.UID)
	}
	r.notify()
}

// watchEvents inspects the pods that the runtime's events name (PLEG-19). It reopens a broken stream with exponential
// backoff. Relisting continues meanwhile.
func (p *PLEG) watchEvents(ctx context.Context) {
	initial := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: time.Minute}
	for backoff := initial; ctx.Err() == nil; {
		begin := time.Now()
		err := p.config.Runtime.WatchPods(ctx, p.Refresh)
		if errors.Is(err, errors.ErrUnsupported) {
			p.config.Logger.Info("Runtime has no event stream, relying on relisting")
			return
		}
		if time.Since(begin) > time.Minute {
			backoff = initial
		}
		p.metrics.streamErrors.Inc()
		sleep(ctx, backoff.Step())
	}
}

// record is the cached state of one pod. PLEG.mu guards it. Pods are replaced, never modified.
type record struct {
	pod *observed.Pod // last inspected state, nil if never inspected
	// requested counts the requests for an inspection: the pod was listed differently, or a caller asked. served is the
	// value of requested when the last successful inspection began.
	requested, served uint64
	// err is the error of the newest inspection, which began at failedAt. Nil if it succeeded.
	err      error
	failedAt time.Time
	updated  chan struct{} // closed to wake waiting callers; nil if there are none
}

// isStale reports whether the pod must be inspected before the record is reliable.
func (r *record) isStale() bool { return r.requested > r.served }

// subscribe returns a channel that is closed by the next notify.
func (r *record) subscribe() <-chan struct{} {
	if r.updated == nil {
		r.updated = make(chan struct{})
	}
	return r.updated
}

func (r *record) notify() {
	if r.updated != nil {
		close(r.updated)
		r.updated = nil
	}
}

// validAt returns the latest time at which the record is known to be correct: the time of its inspection, or of a later list
// that showed the same state.
func (r *record) validAt(listedAt time.Time) time.Time {
	var inspectedAt time.Time
	if r.pod != nil {
		inspectedAt = r.pod.At
	}
	if r.isStale() || listedAt.Before(inspectedAt) {
		return inspectedAt
	}
	return listedAt
}

// matches reports whether the list shows the pod as it was inspected.
func (r *record) matches(listed *observed.Pod) bool {
	return r.pod != nil && slices.Equal(summarize(r.pod), summarize(listed))
}

// summary is what a list reports about a sandbox or a container.
type summary struct {
	id    string
	state observed.State
}

// summarize returns the summaries of all sandboxes and containers, sorted by ID. A sandbox counts as a container (PLEG-4).
func summarize(pod *observed.Pod) []summary {
	summaries := make([]summary, 0, len(pod.Sandboxes)+len(pod.Containers))
	for _, sandbox := range pod.Sandboxes {
		state := observed.Exited
		if sandbox.Ready {
			state = observed.Running
		}
		summaries = append(summaries, summary{id: sandbox.ID, state: state})
	}
	for _, container := range pod.Containers {
		summaries = append(summaries, summary{id: container.ID.ID, state: container.State})
	}
	slices.SortFunc(summaries, func(a, b summary) int { return cmp.Compare(a.id, b.id) })
	return summaries
}

// withPreviousIPs carries the addresses over if the pod has lost them and has no ready sandbox that could get new ones
// (PLEG-10).
func withPreviousIPs(pod, previous *observed.Pod) *observed.Pod {
	if previous == nil || len(pod.IPs) > 0 || len(previous.IPs) == 0 || pod.ReadySandboxes() > 0 || len(pod.Sandboxes) == 0 {
		return pod
	}
	updated := *pod
	updated.IPs = previous.IPs
	return &updated
}

// hasChanged reports whether the change from previous is worth a sync. The removal of an exited container is not (PLEG-17).
func hasChanged(pod, previous *observed.Pod) bool {
	if previous == nil {
		previous = &observed.Pod{}
	}
	if len(pod.IPs) > 0 && !slices.Equal(pod.IPs, previous.IPs) {
		return true
	}
	states := map[string]observed.State{}
	for _, current := range summarize(pod) {
		states[current.id] = current.state
	}
	for _, before := range summarize(previous) {
		state, found := states[before.id]
		if (found && state != before.state) || (!found && before.state != observed.Exited) {
			return true
		}
		delete(states, before.id)
	}
	return len(states) > 0
}
